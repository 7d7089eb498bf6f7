"""What lies beside a model: other models, the same one as text, photographs that it does not register."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from splatbatch.plain_text import counted
from splatbatch.scene.audit.findings import Finding, Sink
from splatbatch.scene.colmap import binary, text
from splatbatch.scene.colmap.files import PARTS, ModelError, shown
from splatbatch.scene.colmap.types import Camera, Image
from splatbatch.scene.geometry import limits
from splatbatch.scene.patches import Patch, models_beside
from splatbatch.scene.photos.folders import is_folder, photographs_below

_SAME = 1e-6  # relative: text may hold six digits only


def check_beside(patch: Patch, images: tuple[Image, ...], scribe: Sink) -> Iterator[Finding]:
    """Yield other models that are not trained, text that differs from binary, and photographs without a pose."""
    yield from _check_models(patch, scribe)
    yield from _check_formats(patch.sparse, scribe)
    if is_folder(patch.images) and patch.images.resolve().parent in patch.sparse.resolve().parents[:2]:
        yield from _check_registered(patch.images, images, scribe)


def _check_models(patch: Patch, scribe: Sink) -> Iterator[Finding]:
    counts = models_beside(patch.sparse)
    if len(counts) > 1:
        others = ", ".join(f"{path.name} ({counted(count, 'image')})" for path, count in counts if path != patch.sparse)
        own = next((count for path, count in counts if path == patch.sparse), 0)
        message = f"{patch.sparse.name} with {counted(own, 'image')}, the most, is trained; {others} beside it: not"
        remedy = "Merge them (colmap model_merger), or move those away that are not meant."
        yield scribe.note("several_models", shown(str(patch.sparse.parent)), message, remedy)


def _check_formats(sparse: Path, scribe: Sink) -> Iterator[Finding]:
    if not all((sparse / f"{part}.{suffix}").is_file() for part in PARTS for suffix in ("bin", "txt")):
        return
    try:
        what = _difference(sparse)
    except ModelError as error:
        what = f"{error.path.name} cannot be read: {error.what}"
    if what:
        remedy = "Remove the older of the two: the .bin files are read, here and by COLMAP."
        yield scribe.note("formats_differ", shown(str(sparse)), f"text and binary model differ: {shown(what)}", remedy)


def _difference(sparse: Path) -> str:
    """Return the first difference between the two forms of a model; empty if there is none."""
    cameras = [{one.id: one for one in read(sparse)} for read in (_binary_cameras, _text_cameras)]
    if cameras[0].keys() != cameras[1].keys():
        return f"{counted(len(cameras[0]), 'camera')} in cameras.bin, {len(cameras[1])} in cameras.txt"
    for number, camera in cameras[0].items():
        if _unlike_cameras(camera, cameras[1][number]):
            return f"camera {number} is {_spell(camera)} in cameras.bin and {_spell(cameras[1][number])} in cameras.txt"
    images = [{one.name: one for one in read(sparse / f"images.{end}")} for read, end in _IMAGES]
    if images[0].keys() != images[1].keys():
        return (
            f"{counted(len(images[0]), 'image')} in images.bin, {len(images[1])} in images.txt, not of the same names"
        )
    for name, image in images[0].items():
        other = images[1][name]
        if any(_unlike(*pair) for pair in zip(_pose(image), _pose(other), strict=True)):
            return f"the pose of {name}"
    points = [count(sparse / f"points3D.{end}") for count, end in _POINTS]
    return (
        f"{counted(points[0], 'point')} in points3D.bin, {points[1]} in points3D.txt" if points[0] != points[1] else ""
    )


_IMAGES = ((binary.read_images, "bin"), (text.read_images, "txt"))
_POINTS = ((binary.count_points, "bin"), (text.count_points, "txt"))


def _binary_cameras(sparse: Path) -> list[Camera]:
    return binary.read_cameras(sparse / "cameras.bin")


def _text_cameras(sparse: Path) -> list[Camera]:
    return text.read_cameras(sparse / "cameras.txt")


def _unlike_cameras(one: Camera, other: Camera) -> bool:
    facts = [(each.model, each.width, each.height, len(each.params)) for each in (one, other)]
    return facts[0] != facts[1] or any(_unlike(*pair) for pair in zip(one.params, other.params, strict=True))


def _unlike(one: float, other: float) -> bool:
    return abs(one - other) > _SAME * max(1.0, abs(one), abs(other))


def _pose(image: Image) -> tuple[float, ...]:
    return (*image.quat, *image.translation, float(image.camera_id))


def _spell(camera: Camera) -> str:
    return f"{camera.model} {camera.width}x{camera.height} ({', '.join(f'{value:.7g}' for value in camera.params)})"


def _check_registered(folder: Path, images: tuple[Image, ...], scribe: Sink) -> Iterator[Finding]:
    there = photographs_below(folder)
    known = {image.name for image in images} & set(there)
    if known and len(known) < limits.REGISTERED * len(there):
        message = f"{len(known)} of its {len(there)} photographs have a pose in the model"
        remedy = "Look for a larger model, or register the rest (more features, sequential or exhaustive matching)."
        yield scribe.note("unregistered", shown(str(folder)), message, remedy)
