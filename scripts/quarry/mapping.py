"""From pictures to a reconstruction, by COLMAP: features, matches, incremental mapping with the rig, true scale."""

from pathlib import Path
from typing import Any

import numpy as np

from quarry.flight import HEIGHT_PX, OVERSIZE, WIDTH_PX, View, large_params, right_from_left

MAX_FEATURES = 780  # per picture: enough points, small files
NUM_THREADS = 1  # sums and random draws in one order: the same result every time


def reconstruct(pictures: Path, work: Path, seed: int) -> Any:
    """Return the reconstruction of the pictures below `pictures`; RuntimeError if one is not registered."""
    import pycolmap

    pycolmap.set_random_seed(seed)
    database = work / "database.db"
    _extract(pycolmap, database, pictures)
    _apply_rig(pycolmap, database)
    _match(pycolmap, database, seed)
    options = pycolmap.IncrementalPipelineOptions()
    options.num_threads = options.mapper.num_threads = NUM_THREADS
    options.random_seed = options.mapper.random_seed = seed
    options.ba_refine_sensor_from_rig = False  # keeps the baseline
    models = pycolmap.incremental_mapping(database, pictures, work, options)
    num_pictures = len(list(pictures.glob("*/*.jpg")))
    best = max(models.values(), key=lambda model: model.num_reg_images(), default=None)
    if best is None or best.num_reg_images() != num_pictures:
        raise RuntimeError(f"COLMAP registered {best and best.num_reg_images()} of {num_pictures} pictures")
    return best


def move_to_world(model: Any, views: list[View]) -> float:
    """Turn, scale and shift `model` onto the known camera centres; returns the rms left over, in metres."""
    import pycolmap

    known = {view.name: view.centre.astype(float) for view in views}
    images = sorted(model.images.values(), key=lambda image: image.name)
    found = np.stack([image.projection_center() for image in images])
    wanted = np.stack([known[image.name] for image in images])
    scale, rotation, shift = similarity(found, wanted)
    model.transform(pycolmap.Sim3d(scale, pycolmap.Rotation3d(rotation), shift))
    moved = np.stack([image.projection_center() for image in images])
    return float(np.sqrt(np.mean(np.sum((moved - wanted) ** 2, -1))))


def similarity(source: np.ndarray, target: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Return scale, rotation, shift with target ~ scale * rotation @ source + shift, least squares (Umeyama 1991)."""
    mean_source, mean_target = source.mean(0), target.mean(0)
    a, b = source - mean_source, target - mean_target
    u, spread, vt = np.linalg.svd(b.T @ a)
    keep = np.diag([1, 1, np.sign(np.linalg.det(u @ vt))])
    rotation = u @ keep @ vt
    scale = float((spread * np.diag(keep)).sum() / (a**2).sum())
    return scale, rotation, mean_target - scale * rotation @ mean_source


def _extract(pycolmap: Any, database: Path, pictures: Path) -> None:
    options = pycolmap.FeatureExtractionOptions()
    options.num_threads, options.use_gpu = NUM_THREADS, False
    options.sift.max_num_features = MAX_FEATURES
    options.sift.first_octave = 0
    reader = pycolmap.ImageReaderOptions(camera_model="PINHOLE")
    pycolmap.extract_features(
        database,
        pictures,
        camera_mode=pycolmap.CameraMode.PER_FOLDER,
        reader_options=reader,
        extraction_options=options,
        device=pycolmap.Device.cpu,
    )


def _apply_rig(pycolmap: Any, database: Path) -> None:
    """Tell COLMAP what a calibration sheet has: intrinsics (focal length 1% off, refined later), the eyes' offset."""
    cameras = []
    for eye in ("left", "right"):
        fx, fy, cx, cy = large_params(eye)
        camera = pycolmap.Camera(
            model="PINHOLE",
            width=WIDTH_PX * OVERSIZE,
            height=HEIGHT_PX * OVERSIZE,
            params=[fx * 1.01, fy * 1.01, cx, cy],
            has_prior_focal_length=True,
        )
        cameras.append(pycolmap.RigConfigCamera(ref_sensor=eye == "left", image_prefix=f"{eye}/", camera=camera))
    rotation, translation = right_from_left()
    cameras[1].cam_from_rig = pycolmap.Rigid3d(pycolmap.Rotation3d(rotation), translation)
    with pycolmap.Database.open(database) as opened:
        pycolmap.apply_rig_config([pycolmap.RigConfig(cameras=cameras)], opened)


def _match(pycolmap: Any, database: Path, seed: int) -> None:
    matching = pycolmap.FeatureMatchingOptions()
    matching.num_threads, matching.use_gpu = NUM_THREADS, False
    verification = pycolmap.TwoViewGeometryOptions()
    verification.ransac.random_seed = seed
    pycolmap.match_exhaustive(
        database, matching_options=matching, verification_options=verification, device=pycolmap.Device.cpu
    )
