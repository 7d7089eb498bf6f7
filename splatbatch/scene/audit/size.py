"""Every photograph against its own camera, every camera against the others: the audit that no trainer does."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from splatbatch.scene.audit.findings import Finding, Sink
from splatbatch.scene.audit.photographs import Shot
from splatbatch.scene.colmap.files import shown
from splatbatch.scene.photos.headers import Photo
from splatbatch.scene.photos.sizes import (
    Equal,
    FewPixels,
    Relation,
    Scaled,
    Size,
    Transposed,
    Unlike,
    relate,
    spell,
    spell_factor,
)

FIX = "splatbatch verify-dims --fix {} --out DIR"
_SCALE = f"If they were resized: {FIX.format('scale')}."
_CROP = f"If they were cropped: {FIX.format('crop')}."


@dataclass(frozen=True)
class CameraRow:
    """One camera of one patch and the sizes its photographs really have."""

    patch: str
    camera_id: int
    prefixes: tuple[str, ...]
    """Sub-folders its photographs lie in, "" for the folder itself."""
    model: str
    size: Size
    num_images: int
    sizes: tuple[tuple[Size, int], ...]
    """Every size seen with its count, the most frequent first; unreadable photographs have none."""


def camera_rows(patch: str, shots: list[Shot]) -> tuple[CameraRow, ...]:
    """Return one row per camera that an image uses, by id."""
    of_camera: dict[int, list[Shot]] = defaultdict(list)
    for shot in shots:
        of_camera[shot.camera.id].append(shot)
    return tuple(_row(patch, of_camera[number]) for number in sorted(of_camera))


def check_sizes(shots: list[Shot], rows: tuple[CameraRow, ...], scribe: Sink, divisor: int = 1) -> Iterator[Finding]:
    """Yield the cameras with mixed sizes or unlike ratios, then every photograph that deviates from its camera.

    Args:
        shots: the photographs.
        rows: their cameras.
        scribe: writes the findings.
        divisor: how much smaller the photographs are meant to be: 4 in images_4.
    """
    as_meant = Scaled(1 / divisor)
    sound = [row for row in rows if min(row.size) > 0]
    for row in sound:
        yield from _check_mixed(row, scribe)
    yield from _check_ratios([row for row in sound if len(row.sizes) == 1], scribe)
    relations: dict[tuple[Size, Size], Relation] = {}
    for shot in shots:
        camera = (shot.camera.width, shot.camera.height)
        if isinstance(shot.header, Photo) and min(camera) > 0:
            pair = (camera, shot.header.size)
            if pair not in relations:
                relations[pair] = relate(*pair)
            if relations[pair] not in {Equal(), as_meant}:
                yield _deviation(shot, shot.header, relations[pair], scribe)


def _row(patch: str, shots: list[Shot]) -> CameraRow:
    camera = shots[0].camera
    sizes = Counter(shot.header.size for shot in shots if isinstance(shot.header, Photo))
    prefixes = sorted({shot.image.name.rpartition("/")[0] for shot in shots})
    ordered = tuple(sorted(sizes.items(), key=lambda item: (-item[1], item[0])))
    size = (camera.width, camera.height)
    return CameraRow(patch, camera.id, tuple(prefixes), camera.model, size, len(shots), ordered)


def _check_mixed(row: CameraRow, scribe: Sink) -> Iterator[Finding]:
    if len(row.sizes) > 1:
        seen = ", ".join(f"{count} of {spell(size)}" for size, count in row.sizes)
        message = f"its photographs have {len(row.sizes)} sizes: {seen}; the camera says {spell(row.size)}"
        remedy = "Resize the odd ones from their originals, or give each size a camera of its own in COLMAP."
        yield scribe.note("mixed_sizes", _named(row), message, remedy)


def _check_ratios(rows: list[CameraRow], scribe: Sink) -> Iterator[Finding]:
    """Compare every camera with the first: a pixel of rounding is no difference."""
    for row in rows[1:]:
        first = rows[0]
        if any(_differ(first, row, axis) for axis in (0, 1)):
            ratios = " and ".join(
                f"{spell(each.sizes[0][0])} for {spell(each.size)} ({_named(each)})" for each in (first, row)
            )
            message = f"photographs and cameras have unlike ratios: {ratios}"
            remedy = f"Bring every camera to its photographs' true size: {FIX.format('scale')} (or crop)."
            yield scribe.note("unlike_ratios", f"{_named(first)}, {_named(row)}", message, remedy)


def _differ(one: CameraRow, other: CameraRow, axis: int) -> bool:
    ratios = [row.sizes[0][0][axis] / row.size[axis] for row in (one, other)]
    is_exact = any(row.sizes[0][0] == row.size for row in (one, other))
    rounding = 0.0 if is_exact else 1 / one.size[axis] + 1 / other.size[axis]
    return abs(ratios[0] - ratios[1]) > rounding


def _named(row: CameraRow) -> str:
    folders = ", ".join(f"{shown(prefix)}/" for prefix in row.prefixes if prefix)
    return f"camera {row.camera_id}" + (f" ({folders})" if folders else "")


def _deviation(shot: Shot, photo: Photo, relation: Relation, scribe: Sink) -> Finding:
    camera = shot.camera
    kind, what, remedy = _describe(relation, photo)
    message = f"{spell(photo.size)}, but camera {camera.id} says {spell((camera.width, camera.height))}: {what}"
    return scribe.note(kind, shown(shot.image.name), message, remedy)


def _describe(relation: Relation, photo: Photo) -> tuple[str, str, str]:
    """Return kind, explanation and remedy."""
    match relation:
        case Scaled(factor):
            use = f"Bring K to this size: {FIX.format('scale')}. Or use the photographs that the model was made from."
            return "scaled", f"resized ({spell_factor(factor)})", use
        case FewPixels(factor, off):
            scaled = "" if factor == 1 else f"resized ({spell_factor(factor)}) and "
            what = f"{scaled}{_spell_off(off)}, rounding or a crop (ambiguous)"
            return "few_pixels_off", what, f"{_SCALE} {_CROP}"
        case Transposed():
            why = f"; its EXIF orientation {photo.orientation} was applied when the model was made"
            what = f"width and height are exchanged{why if photo.orientation > 4 else ': it was turned since'}"
            return "transposed", what, "Turn the photographs back as COLMAP saw them; no change of K can mend this."
        case Unlike() | Equal():
            return "other_size", "another shape (cropped, padded or another camera's)", f"{_CROP} {_SCALE}"


def _spell_off(off: Size) -> str:
    parts = [
        f"{abs(pixels)} px {'more' if pixels > 0 else 'less'} in {side}"
        for pixels, side in zip(off, ("width", "height"), strict=True)
        if pixels
    ]
    return " and ".join(parts) or "less than a pixel off"
