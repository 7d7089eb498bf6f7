"""Checks of a COLMAP model for the audit: its images, points, cameras, rigs, and its text and binary files.

A patch is also compared with the source, the reconstruction that the patch was cut from.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from splatbatch.config import Evaluation
from splatbatch.errors import SceneError
from splatbatch.scene.audit.findings import RECUT, REPAIR, AuditFinding, FindingWriter
from splatbatch.scene.colmap import binary, text
from splatbatch.scene.colmap.files import PARTS, ModelError, shown
from splatbatch.scene.colmap.reconstruction import Reconstruction, reader_of
from splatbatch.scene.colmap.rigs import CAMERA, Rigs, read_rigs
from splatbatch.scene.colmap.types import (
    CAMERA_MODELS,
    Camera,
    Floats,
    Image,
    centers_of,
    finite,
    misspelt,
)
from splatbatch.scene.geometry import limits
from splatbatch.scene.overlap import share_seen_by_few
from splatbatch.scene.patches import Patch, models_beside
from splatbatch.scene.photos.folders import is_folder, photographs_below
from splatbatch.scene.photos.headers import size_text
from splatbatch.scene.photos.undistort import is_distorted, undistorted_camera
from splatbatch.scene.rotations import angle, from_quats
from splatbatch.text import percent, plural

_FARTHEST = 1e18  # a squared distance of more is infinite in float32; see splats.ply.LARGEST_COORDINATE
_HUGE = 1e100  # below it nothing overflows, and thousands of centres need not be computed
OVERLAP_TOLD = 0.2
"""Share of the surface seen from fewer than three places, from which on the finding `little_overlap` is reported.

Patches of usual flights have 0 to 0.16; with every second photograph of a flight removed, 0.1 to 0.3.
"""
NOTHING = Evaluation(holdout_every=0)
"""Hold-out settings of the source reconstruction, which is not trained: no photograph is held out."""
_LEAST_TRAINED = 2  # photographs: below that nothing has depth
# Focal length over the longer side of the image. COLMAP itself drops cameras outside 0.1 … 10 (mapper options
# min_focal_length_ratio, max_focal_length_ratio); 0.05 is 169 degrees of view, which no pinhole image has.
_POSSIBLE, _USUAL = (0.05, 100.0), (0.1, 10.0)
_MAX_STRETCH = 1.2  # fx / fy; square pixels have 1
_CENTRAL = (0.2, 0.8)  # share of the side where principal points lie, even those of crops mostly
_SAME = 1e-6  # relative: far below a thousandth of a pixel; text may hold six digits only
_SAME_ANGLE = 1e-4  # radians, 0.006 degrees
_SAME_PLACE = 1e-4  # of the extent of the source's cameras
_ROUNDED = 1e-4  # of the extent of the cameras: some tenths of a pixel


def check_model(
    model: Reconstruction, writer: FindingWriter, evaluation: Evaluation, num_held_out: int
) -> Iterator[AuditFinding]:
    """Yield findings about the images of a model, then about its points; none for an intact model.

    A model without images gives the single finding `no_images`.

    Args:
        model: model of a patch, read with its tracks.
        writer: makes the findings.
        evaluation: hold-out settings of the patch.
        num_held_out: number of the patch's photographs that are held out.

    Raises:
        AssertionError: the points were read without their tracks.
        ModelError: the model was removed since it was read.
    """
    count = len(model.images)
    if count == 0:
        yield writer.note("no_images", "images", "0 images: the patch is empty")
    elif (left := count - num_held_out) < _LEAST_TRAINED:
        message = f"{plural(count, 'image')}, of which {num_held_out} held out: {left} left to train from"
        yield writer.note("too_few_images", "images", message)
    elif evaluation.holdout_list and not num_held_out:
        yield writer.note(
            "few_images",
            "images",
            f"{shown(str(evaluation.holdout_list))} names none of them",
            f"Write names as the model has them, such as {shown(model.images[0].name)}, one on each line.",
        )
    elif evaluation.holdout_list is None and count < evaluation.holdout_every and num_held_out < 2:
        few = f"{plural(count, 'image')}, fewer than evaluation.holdout_every ({evaluation.holdout_every})"
        yield writer.note("few_images", "images", f"{few}: {'only 1' if num_held_out else 'none'} is held out")
    for name, count in Counter(image.name for image in model.images).items():
        if count > 1:
            ids = ", ".join(str(image.id) for image in model.images if image.name == name)
            yield writer.note("duplicate_name", shown(name), f"{count} images have this name (ids {ids})")
    yield from _check_poses(model.images, writer)
    if model.images:
        yield from _check_points(model, writer)


def check_overlap(model: Reconstruction, writer: FindingWriter, holdout: Collection[str]) -> Iterator[AuditFinding]:
    """Yield one finding if training photographs see a fifth of the surface or more from fewer than three places.

    The fifth is `OVERLAP_TOLD`. No finding where the share cannot be computed: too few points, or no photograph to
    train on.

    Args:
        model: model of a patch.
        writer: makes the finding.
        holdout: names of the photographs that are held out; empty: none.
    """
    share = share_seen_by_few(model, holdout)
    if share is not None and share >= OVERLAP_TOLD:
        message = f"training photographs see {100 * share:.0f} % of the surface from fewer than three places"
        message += ": there the splat is 5 to 10 dB worse, and more steps do not help"
        remedy = f"Take more photographs: `splatbatch plan-capture {shown(writer.patch)}` plans them."
        yield writer.note("little_overlap", "overlap", message, remedy)


def check_places(model: Reconstruction, writer: FindingWriter) -> Iterator[AuditFinding]:
    """Yield findings about points that are too far away, and about coordinates that were rounded as float32.

    `far_points`: beyond `limits.FAR_EXTENTS` times the extent of the cameras, where no angle between cameras can have
    placed them; an error for half of the points. `rounded_points`: by more than 1e-4 of that extent.
    """
    xyz, centers, extent = model.points.xyz, finite(centers_of(model.images)), _extent(model.images)
    with np.errstate(all="ignore"):
        far = np.linalg.norm(xyz - centers[:1].sum(axis=0), axis=1) > limits.FAR_EXTENTS * extent
        step = np.spacing(np.abs(centers).max(initial=0).astype(np.float32))
        is_rounded = step > _ROUNDED * extent and (xyz == xyz.astype(np.float32)).all()
    if far.any():
        message = (
            f"{far.sum()} of {len(far)} points lie over {limits.FAR_EXTENTS} times as far away as the cameras lie apart"
        )
        finding = writer.note("far_points", "points3D", message)
        yield replace(finding, severity="error") if far.mean() > limits.HALF else finding
    if is_rounded:
        yield writer.note(
            "rounded_points", "points3D", f"all were rounded to steps of {step:.3g} units, as float32 does"
        )


def _check_poses(images: tuple[Image, ...], writer: FindingWriter) -> Iterator[AuditFinding]:
    for image in images:
        pose = (*image.quat, *image.translation)
        is_finite = all(map(math.isfinite, pose))
        if is_finite and not any(image.quat):
            yield writer.note("no_pose", shown(image.name), "has no pose (its quaternion is 0, 0, 0, 0)")
        elif not is_finite or (max(map(abs, pose)) > _HUGE and not np.isfinite(image.center()).all()):
            why = "too large" if is_finite else "not finite"
            message = f"pose is {why}: quaternion {_spell(image.quat)}, translation {_spell(image.translation)}"
            yield writer.note("bad_pose", shown(image.name), message)


def _check_points(model: Reconstruction, writer: FindingWriter) -> Iterator[AuditFinding]:
    points, total = model.points, len(model.points)
    if total == 0:
        yield writer.note("no_points", "points3D", "the model has no points")
        return
    if num_bad := int((~(np.abs(points.xyz) <= _FARTHEST)).any(axis=1).sum()):
        what = f"lie beyond {_FARTHEST:.0e}, where float32 computes no distances, or at coordinates that are not finite"
        yield writer.note("bad_points", "points3D", f"{num_bad} of {total} points {what}")
    files, path = reader_of(model.folder, "points3D")
    if files is text and (stated := text.stated_points(path)) > total:
        yield writer.note("cut_short", path.name, f"holds {total:,} points, but its head states {stated:,}")
    tracks = points.tracks
    assert tracks is not None  # noqa: S101 - see check_model
    is_ours = np.isin(tracks.image_ids, [image.id for image in model.images])
    if unseen := total - np.count_nonzero(np.bincount(tracks.points[is_ours], minlength=total)):
        message = f"{unseen} of {total} points are seen by no image of the patch"
        remedy = (
            f"{RECUT} Keep points that at least two images of the patch see."
            if points.track_lengths.any()
            else "Training needs no tracks (which images see which point), but geometry and colours of photographs"
            " cannot be checked without them."
        )
        yield writer.note("unseen_points", "points3D", message, remedy)


def _spell(facts: Sequence[str | float]) -> str:
    return ", ".join(fact if isinstance(fact, str) else f"{fact:.7g}" for fact in facts)


def check_camera(camera: Camera, writer: FindingWriter) -> Iterator[AuditFinding]:
    """Yield findings about a camera's model, size, parameters, focal length, principal point and distortion.

    A wrong size, or a wrong number or value of parameters, ends the check there. Panoramas and unknown models have no
    focal length, principal point or distortion to check.
    """
    subject, model = writer.camera(camera.id), CAMERA_MODELS.get(camera.model)
    if camera.model not in writer.rules.camera_models | writer.rules.undistorts:
        why, remedy = f"; {writer.rules.name} takes {', '.join(sorted(writer.rules.camera_models))}", ""
        if known := misspelt(camera.model):
            why, remedy = f", which COLMAP spells {known}", f"Write {known} in cameras.txt."
        yield writer.note("unsupported_model", subject, f"camera model {shown(camera.model)}{why}", remedy)
    if not all(0 < side <= limits.LONGEST_PX for side in camera.size):
        yield writer.note("bad_camera_size", subject, f"its size of {size_text(camera.size)} px is impossible")
    elif model is not None and len(model.params) != len(camera.params):
        message = (
            f"{len(camera.params)} parameters, but {model.name} has {len(model.params)}: {', '.join(model.params)}"
        )
        yield writer.note("params_count", subject, message)
    elif not all(map(math.isfinite, camera.params)):
        values = ", ".join(f"{value:g}" for value in camera.params)
        yield writer.note("bad_params", subject, f"some of its parameters are no finite numbers: {values}")
    elif camera.has_center:
        yield from _check_pinhole(camera, subject, writer)
        if camera.model in writer.rules.undistorts and is_distorted(camera):
            yield _check_distortion(camera, subject, writer)


def _check_distortion(camera: Camera, subject: str, writer: FindingWriter) -> AuditFinding:
    try:
        straight = undistorted_camera(camera)
    except SceneError as error:
        return writer.note("unsupported_model", subject, error.message.removeprefix(f"camera {camera.id}: "))
    message = f"{camera.model}; undistorted, {size_text(camera.size)} px become {size_text(straight.size)} px"
    return writer.note("distorted", subject, message)


def _check_pinhole(camera: Camera, subject: str, writer: FindingWriter) -> Iterator[AuditFinding]:
    """Yield findings about focal lengths, then about the principal point."""
    ratios = [focal / max(camera.size) for focal in (camera.fx, camera.fy)]
    value = f"fx {camera.fx:.6g}, fy {camera.fy:.6g} px at {size_text(camera.size)}"
    if not all(_POSSIBLE[0] <= ratio <= _POSSIBLE[1] for ratio in ratios):
        yield writer.note("impossible_focal", subject, f"focal length is impossible: {value}")
    elif not all(_USUAL[0] <= ratio <= _USUAL[1] for ratio in ratios):
        message = f"focal length is {min(ratios):.3g} times the longer side: {value}"
        yield writer.note("unusual_focal", subject, message, f"Compare with the lens. If wrong: {REPAIR}")
    elif not 1 / _MAX_STRETCH <= camera.fx / camera.fy <= _MAX_STRETCH:
        message = f"pixels are not square: {value}"
        yield writer.note("unusual_focal", subject, message, f"Unless the photographs were stretched: {REPAIR}")
    shares = (camera.cx / camera.width, camera.cy / camera.height)
    where = f"principal point ({camera.cx:.6g}, {camera.cy:.6g}) in an image of {size_text(camera.size)} px"
    if not all(0 < share < 1 for share in shares):
        yield writer.note("principal_point_outside", subject, f"{where} lies outside")
    elif not all(_CENTRAL[0] <= share <= _CENTRAL[1] for share in shares):
        yield writer.note("principal_point_far", subject, f"{where} is far from the centre")


def check_rigs(model: Reconstruction, writer: FindingWriter) -> Iterator[AuditFinding]:
    """Yield at most one finding about rigs and frames; none for a model without these two files.

    `broken_rigs`: one file is missing or unreadable, or the files do not fit the images and cameras. `rigs_differ`:
    poses computed from frames and rigs differ from those of the images.
    """
    try:
        rigs = read_rigs(model.folder)
    except ModelError as error:
        yield writer.note("broken_rigs", shown(error.path.name), shown(error.what))
        return
    if rigs is None:
        return
    if what := rigs.misfit(model.images, model.cameras):
        yield writer.note("broken_rigs", "frames", what)
    elif moved := _moved_by_rigs(rigs, model.images):
        name, (degrees, share) = max(moved.items(), key=lambda item: item[1])
        message = (
            f"{len(moved)} of {len(model.images)} images have other poses in frames and rigs than in images:"
            f" {shown(name)} differs by {degrees:.2g} degrees and {percent(share)} of the scene"
        )
        yield writer.note("rigs_differ", "frames", message)


def _moved_by_rigs(rigs: Rigs, images: tuple[Image, ...]) -> dict[str, tuple[float, float]]:
    """Return by how many degrees and what share of the scene images differ from their pose by frame and rig."""
    of_id, sensors = {image.id: image for image in images}, {rig.id: dict(rig.sensors) for rig in rigs.rigs}
    extent = _extent(images)
    found = {}
    for frame in rigs.frames:
        for kind, sensor, number in frame.data:
            pose = sensors[frame.rig_id][kind, sensor]
            is_reference = next(iter(sensors[frame.rig_id])) == (kind, sensor)
            if kind != CAMERA or (pose is None and not is_reference):
                continue
            image, said = of_id[number], (_posed(pose) if pose else np.eye(4)) @ _posed(frame.pose)
            degrees = math.degrees(angle(said[:3, :3], image.rotation()))
            share = float(np.linalg.norm(-said[:3, :3].T @ said[:3, 3] - image.center())) / extent
            if degrees > math.degrees(_SAME_ANGLE) or share > _SAME_PLACE:
                found[image.name] = (degrees, share)
    return found


def _posed(pose: tuple[float, ...]) -> Floats:
    """Return the matrix [4, 4] of a pose: a quaternion (w first), then a translation."""
    return np.block([[from_quats(np.array([pose[:4]]))[0], np.array([pose[4:]]).T], [np.zeros(3), 1.0]])


@dataclass(frozen=True)
class SourceModel:
    """The reconstruction that patches were cut from: images by name, cameras by id, as `check_drift` needs them."""

    images: dict[str, Image]
    cameras: Mapping[int, Camera]
    extent: float
    """Diagonal of the box around the finite camera centres, in units of the model; 1 if that is 0."""


def as_source(images: tuple[Image, ...], cameras: Mapping[int, Camera]) -> SourceModel:
    """Return the source reconstruction, prepared for the comparison with patches (`check_drift`).

    Args:
        images: images of the source; of several with one name, the last counts.
        cameras: cameras of the source, by id.
    """
    return SourceModel({image.name: image for image in images}, cameras, _extent(images))


def _extent(images: tuple[Image, ...]) -> float:
    """Return the diagonal of the box around the finite camera centres, in units of the model; 1 if that is 0."""
    centers = finite(centers_of(images))
    return float(np.linalg.norm(np.ptp(centers, axis=0)) if len(centers) else 0) or 1.0


def check_drift(
    images: tuple[Image, ...], cameras: Mapping[int, Camera], source: SourceModel, writer: FindingWriter
) -> Iterator[AuditFinding]:
    """Yield findings about images of a patch that differ from the source reconstruction; images are matched by name.

    `not_in_source`: the source has no image of this name. `pose_drift`: the pose differs by more than 0.006 degrees, or
    by more than 1e-4 of the source's extent. `camera_drift`: size or model differ, or a parameter by more than a
    millionth.
    """
    seen = set()
    for image in images:
        original = source.images.get(image.name)
        if original is None:
            yield writer.note("not_in_source", shown(image.name), "the source reconstruction has no such image")
            continue
        if (image.quat, image.translation) != (original.quat, original.translation):
            with np.errstate(all="ignore"):
                moved = float(np.linalg.norm(image.center() - original.center()))
                turned = angle(image.rotation(), original.rotation())
            if turned > _SAME_ANGLE or moved > _SAME_PLACE * source.extent:
                message = f"its pose is {moved:.3g} units ({percent(moved / source.extent)} of the scene)"
                message += f" and {math.degrees(turned):.2g} degrees away from that in the source"
                yield writer.note("pose_drift", shown(image.name), message)
        pair = (image.camera_id, original.camera_id)
        if pair not in seen:
            seen.add(pair)
            ours, theirs = _facts(cameras[pair[0]]), _facts(source.cameras[pair[1]])
            if _differ(ours, theirs):
                yield writer.note(
                    "camera_drift",
                    f"camera {image.camera_id}",
                    f"{_spell(ours)} in the patch, {_spell(theirs)} in the source",
                )


def _facts(camera: Camera) -> tuple[str | float, ...]:
    return (camera.model, *camera.size, *camera.params)


def check_beside(patch: Patch, images: tuple[Image, ...], writer: FindingWriter) -> Iterator[AuditFinding]:
    """Yield findings about what lies beside the model of a patch.

    `several_models`: other numbered models lie in the same folder. `formats_differ`: .txt and .bin files differ, or one
    cannot be read; of points only the number is compared, keypoints are not. `unregistered`: fewer than half of the
    patch's own photographs have a pose, but at least one.

    Args:
        patch: the patch.
        images: images of its model.
        writer: makes the findings.

    Raises:
        PermissionError: a numbered folder beside the model may not be entered.
    """
    counts = models_beside(patch.sparse)
    if len(counts) > 1:
        others = ", ".join(f"{path.name} ({plural(count, 'image')})" for path, count in counts if path != patch.sparse)
        own = next((count for path, count in counts if path == patch.sparse), 0)
        message = f"{patch.sparse.name} with {plural(own, 'image')}, the most, is trained; not trained: {others}"
        yield writer.note("several_models", shown(str(patch.sparse.parent)), message)
    yield from _check_formats(patch.sparse, writer)
    if is_folder(patch.images) and patch.images.resolve().parent in patch.sparse.resolve().parents[:2]:
        there = photographs_below(patch.images)
        known = {image.name for image in images} & set(there)
        if known and len(known) < limits.REGISTERED * len(there):
            message = f"only {len(known)} of the {len(there)} photographs in this folder have a pose in the model"
            yield writer.note("unregistered", shown(str(patch.images)), message)


def _check_formats(sparse: Path, writer: FindingWriter) -> Iterator[AuditFinding]:
    if not all((sparse / f"{part}.{suffix}").is_file() for part in PARTS for suffix in ("bin", "txt")):
        return
    try:
        what = _difference(sparse)
    except ModelError as error:
        what = f"{error.path.name} cannot be read: {error.what}"
    if what:
        yield writer.note("formats_differ", shown(str(sparse)), f"text and binary model differ: {shown(what)}")


def _difference(sparse: Path) -> str:
    """Return the first difference between the two forms of a model; empty if there is none."""
    ours, theirs = (
        {
            **{f"camera {one.id} of cameras": _facts(one) for one in form.read_cameras(sparse / f"cameras.{end}")},
            **{
                f"{one.name} of images": (one.camera_id, *one.quat, *one.translation)
                for one in form.read_images(sparse / f"images.{end}")
            },
            "the number of points3D": (form.count_points(sparse / f"points3D.{end}"),),
        }
        for form, end in ((binary, "bin"), (text, "txt"))
    )
    for name in {**ours, **theirs}:
        one, other = ours.get(name, ()), theirs.get(name, ())
        if _differ(one, other):
            return f"{name}: {_spell(one) or 'nothing'} in the .bin file, {_spell(other) or 'nothing'} in the .txt file"
    return ""


def _differ(ours: Sequence[str | float], theirs: Sequence[str | float]) -> bool:
    """Return whether two lists differ in length, in a text, or in a number by more than `_SAME`."""
    return len(ours) != len(theirs) or any(map(_unlike, ours, theirs))


def _unlike(one: str | float, other: str | float) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return one != other
    return abs(one - other) > _SAME * max(1.0, abs(one), abs(other))
