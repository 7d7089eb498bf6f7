"""The stage "model": writes the model to train from, georeferenced by GPS, with photographs without distortion."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from splatbatch.files import write_json
from splatbatch.reconstruction.facts import OURS, ReconstructionRecord
from splatbatch.reconstruction.georeference import Georeference, PosedViews, georeference
from splatbatch.reconstruction.plan import ReconstructionPlan
from splatbatch.reconstruction.registration import facts_of
from splatbatch.reconstruction.stage import DATABASE, StageAttempt, open_database
from splatbatch.scene.photos.headers import ImageHeader, headers_of

if TYPE_CHECKING:
    import pycolmap

QUALITY = 95
"""JPEG quality, 0 to 100, of photographs without distortion; training compares renderings with these."""


def make(work: StageAttempt) -> dict[str, Any]:
    """Write the model to train from into the folder `work.told.out`: sparse/0, images/ and reconstruction.json.

    The model is the largest component, a group of photographs that were mapped together. Folders of an earlier
    reconstruction are replaced whole. The product of the attempt is a copy of reconstruction.json.

    Returns:
        For metrics.json: "registered", the number of photographs in the model, and "given", that of all usable
        photographs and files that cannot be used.

    Raises:
        SceneError: the plan cannot be read.
        LaterFormatError: a later version of splatbatch wrote the plan or the metrics of a stage.
        OSError: a product of an earlier stage cannot be read, or a file or folder cannot be written.
    """
    import pycolmap

    out, plan = Path(work.told.out), work.plan
    components = sorted(work.of("mapping").iterdir(), key=lambda one: int(one.name))
    models = [pycolmap.Reconstruction(one) for one in components]
    best, names = models[0], [one.name for one in plan.photographs]
    for one in models:
        rename(one, names)
    with work.scratch() as scratch:
        if plan.wanted.rig:
            as_rig(plan, best, scratch)
        found = in_place(plan, best)
        best.update_point_3d_errors()
        facts = facts_of(work, scratch, models, found)
        made = scratch / "undistorted"
        distorted = scratch / "distorted"
        distorted.mkdir()
        rename(best, plan.numbers)
        best.write(distorted)
        work.tell("undistortion", 0, best.num_reg_images())
        undistort(distorted, work.linked(scratch), made, work.threads)
        work.tell("undistortion", best.num_reg_images(), best.num_reg_images())
        straight = pycolmap.Reconstruction(made / "sparse")
        straight.update_point_3d_errors()
        rename(straight, names)
        photographs = {names[one - 1]: made / "images" / plan.numbers[one - 1] for one in straight.reg_image_ids()}
        _put(straight, photographs, out, facts)
    work.product.mkdir(exist_ok=True)
    write_json(work.product / OURS, facts.to_record())
    return {"registered": facts.registered, "given": facts.given}


def rename(model: pycolmap.Reconstruction, names: Sequence[str]) -> None:
    """Rename the images of a model in place: the image with id n gets the name `names[n - 1]`.

    Raises:
        IndexError: there are fewer names than the largest id.
    """
    for number in [*model.images]:
        model.image(number).name = names[number - 1]


def undistort(model: Path, images: Path, out: Path, threads: int) -> None:
    """Write a model and its photographs without distortion, as sparse/ and images/ in a folder.

    Photographs with an EXIF orientation are written without it: COLMAP reads pixels as they are stored, but copies the
    tag, by which other programs would rotate the result.

    Args:
        model: folder of the COLMAP model.
        images: folder of the photographs, under their names in the model.
        out: folder to write, which COLMAP creates.
        threads: number of threads to use.
    """
    import pycolmap

    options = pycolmap.UndistortCameraOptions()
    pycolmap.undistort_images(out, model, images, undistort_options=options, jpeg_quality=QUALITY, num_threads=threads)
    found = pycolmap.Reconstruction(model)
    cameras = {found.image(one).name: found.cameras[found.image(one).camera_id] for one in found.reg_image_ids()}
    headers = headers_of(out / "images" / name for name in cameras)
    for (name, camera), header in zip(cameras.items(), headers.values(), strict=True):
        given = None
        if isinstance(header, ImageHeader) and header.orientation != 1:
            given = pycolmap.Bitmap.read(images / name, True)
        if given is not None:
            straight, _ = pycolmap.undistort_image(options, given, camera)
            bare = pycolmap.Bitmap.from_array(straight.to_array())
            bare.set_jpeg_quality(QUALITY)
            bare.write(out / "images" / name)


def _put(model: pycolmap.Reconstruction, images: Mapping[str, Path], out: Path, facts: ReconstructionRecord) -> None:
    """Replace the sparse/ and images/ of an earlier run by a new model, each folder by a rename.

    reconstruction.json is written first, so that after an interruption the folders still count as ours.
    """
    aside = out / ".new"
    shutil.rmtree(aside, ignore_errors=True)
    (aside / "sparse" / "0").mkdir(parents=True)
    model.write(aside / "sparse" / "0")
    for photograph, path in images.items():
        (aside / "images" / photograph).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, aside / "images" / photograph)
    write_json(out / OURS, facts.to_record())
    for name in ("sparse", "images"):
        if (out / name).is_dir():
            (out / name).rename(aside / f"old-{name}")
        (aside / name).rename(out / name)
    shutil.rmtree(aside, ignore_errors=True)


def in_place(plan: ReconstructionPlan, model: pycolmap.Reconstruction) -> Georeference | None:
    """Transform a model in place into metres east, north and up by GPS; return the transform as a georeference.

    None if GPS does not fix one: fewer than three registered photographs have a position, or these lie in a line. The
    model then stays unchanged.

    Args:
        plan: plan of the reconstruction, for the GPS positions.
        model: model with the photographs' names of the plan.
    """
    import pycolmap

    placed = {one.name: one.place for one in plan.photographs if one.place is not None}
    images = sorted((model.image(one) for one in model.reg_image_ids()), key=lambda one: str(one.name))
    known = [one for one in images if one.name in placed]
    if len(known) < 3:
        return None
    turns = np.array([one.cam_from_world().rotation.matrix() for one in known])
    views = PosedViews(np.array([one.projection_center() for one in known]), turns[:, 2], -turns[:, 1])
    found = georeference(views, np.array([placed[one.name] for one in known], np.float64))
    if found is not None:
        one = found.similarity
        model.transform(pycolmap.Sim3d(one.scale, pycolmap.Rotation3d(one.rotation), one.translation))
    return found


def as_rig(plan: ReconstructionPlan, model: pycolmap.Reconstruction, scratch: Path) -> None:
    """Give the cameras of a rig constant relative poses, initialised from the model, then refine all poses.

    The refinement is a bundle adjustment; the model is changed in place.

    Args:
        plan: plan of the reconstruction, with the folders of the rig's cameras, the reference first.
        model: model with the photographs' names of the plan.
        scratch: folder on a local disk for a database.

    Raises:
        OSError: an earlier database in `scratch` cannot be removed.
    """
    import pycolmap

    config = pycolmap.RigConfig()
    config.cameras = [
        pycolmap.RigConfigCamera(ref_sensor=place == 0, image_prefix=f"{folder}/")
        for place, folder in enumerate(plan.wanted.rig)
    ]
    database = open_database(scratch / DATABASE, plan, range(len(plan.photographs)))
    for image in database.read_all_images():
        image.name = plan.photographs[image.image_id - 1].name
        database.update_image(image)
    pycolmap.apply_rig_config([config], database, model)
    database.close()
    options = pycolmap.BundleAdjustmentOptions()
    options.refine_sensor_from_rig = True
    options.refine_principal_point = True  # fixed at the image's centre it would shift cameras, and so baselines
    options.print_summary = False
    pycolmap.bundle_adjustment(model, options)
