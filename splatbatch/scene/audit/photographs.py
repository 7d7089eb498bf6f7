"""Checks of photographs and masks as files: whether they can be read, and whether sizes agree with the cameras."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from splatbatch.groups import grouped
from splatbatch.scene.audit.findings import FIX, AuditFinding, FindingWriter
from splatbatch.scene.colmap.files import shown
from splatbatch.scene.colmap.types import Camera, Floats, Image
from splatbatch.scene.geometry.limits import LEAST_OBSERVATIONS
from splatbatch.scene.photos.folders import (
    MASK_COUNTS,
    FoundPhotograph,
    Location,
    MissingPhotograph,
    MisspeltName,
    photographs_below,
    reduced_copies,
)
from splatbatch.scene.photos.headers import (
    Header,
    Headers,
    ImageHeader,
    NearSize,
    Relation,
    SameSize,
    ScaledSize,
    ShapeMismatch,
    Size,
    Trait,
    TransposedSize,
    Unreadable,
    relate,
    size_text,
    spell_factor,
)
from splatbatch.scene.photos.pixels import decode_grey
from splatbatch.text import list_some

_TRAITS: dict[Trait, tuple[str, str]] = {
    "cmyk": ("cmyk", "has four colour channels (CMYK)"),
    "deep": ("sixteen_bit", "has more than 8 bits per channel"),
    "alpha": ("alpha", "has an alpha channel"),
    "animated": ("animated", "holds several frames or pages"),
}
_PIXELS_PER_BYTE, _HEAD = 250, 400
"""A mask with fewer bytes than pixels / 250 + 400 may be of one colour and is decoded.

A PNG of one colour has a byte for 1000 pixels of 8 bits.
"""
_MOST_DECODED, _SOME_DECODED = 64, 8  # of those that may be of one colour; of all, evenly taken
_MOST_IGNORED, _MOST_HIDDEN = 0.98, 0.9  # shares of a photograph, and of its keypoints
_SCALE = f"If the photographs were resized: {FIX.format('scale')}."
_CROP = f"If the photographs were cropped: {FIX.format('crop')}."


@dataclass(frozen=True)
class AuditedImage:
    """An image of the model with its camera, and the place of the file with the image's name."""

    image: Image
    camera: Camera
    place: Location
    header: Header | None
    """Header of the photograph, or why it cannot be read; None where there is no file of exactly this name."""
    keypoints: Floats
    """Sampled keypoints in pixels of the camera, [N, 2]; none where the model has no tracks."""


def check_photos(shots: list[AuditedImage], images: Path, writer: FindingWriter) -> Iterator[AuditFinding]:
    """Yield findings about photograph files: missing, misspelt, unreadable, or of unusual pixel format or orientation.

    Sizes are left to `check_sizes`. If most photographs are missing, at least two, and as many unknown ones lie there,
    a single finding says that they may be renamed.

    Args:
        shots: images of a model.
        images: folder of the photographs.
        writer: makes the findings.
    """
    renamed = list(_renamed(shots, images, writer))
    yield from renamed
    for shot in shots:
        match shot.place, shot.header:
            case FoundPhotograph(), ImageHeader() as photo:
                yield from _check_photo(shot, photo, writer)
            case FoundPhotograph(path), Unreadable() as fault:
                where = f" at {os.path.realpath(path)}" if fault.fault == "missing" else ""  # where a link leads
                yield writer.note(
                    f"{fault.fault}_image", shown(shot.image.name), f"cannot be read: {shown(fault.what + where)}"
                )
            case MisspeltName(actual, "NFC" | "NFD" as form), _:
                message = f"lies there with its accents encoded in another way; the model has Unicode form {form}"
                remedy = (
                    f"Rename the files to the model's form: convmv -f utf8 -t utf8 --{form.lower()} -r --notest IMAGES."
                )
                yield writer.note("unicode_form", shown(shot.image.name), message, remedy)
            case MisspeltName(actual), _:
                yield writer.note("wrong_case", shown(shot.image.name), f"is called {shown(actual)} on disk")
            case MissingPhotograph(_, elsewhere), _ if elsewhere:
                message = f"no such file; but {shown(elsewhere)} is there"
                remedy = "Move the files to where the image names in the model say, or rename the images in the model."
                yield writer.note("missing_image", shown(shot.image.name), message, remedy)
            case MissingPhotograph(similar), _ if not renamed:
                message = "no such file" + (f"; there is {shown(similar)}" if similar else "")
                remedy = "Copy the photograph there, or make a model without it: splatbatch reconstruct IMAGES."
                yield writer.note("missing_image", shown(shot.image.name), message, remedy)


def _renamed(shots: list[AuditedImage], images: Path, writer: FindingWriter) -> Iterator[AuditFinding]:
    """Yield one finding where most photographs are missing and as many files lie there that the model lacks."""
    absent = [
        shot.image.name for shot in shots if isinstance(shot.place, MissingPhotograph) and not shot.place.elsewhere
    ]
    if len(absent) < 2 or 2 * len(absent) <= len(shots):
        return
    known = {shot.image.name for shot in shots}
    unknown = [name for name in photographs_below(images) if name not in known]
    if len(unknown) < len(absent):
        return
    message = (
        f"{len(absent)} images of the model have no file, for example {shown(absent[0])};"
        f" {len(unknown)} photographs there are not in the model, for example {shown(unknown[0])}"
    )
    remedy = "If the photographs were renamed, undo that; else make a model: splatbatch reconstruct IMAGES."
    yield writer.note("missing_image", shown(str(images)), message, remedy)


def _check_photo(shot: AuditedImage, photo: ImageHeader, writer: FindingWriter) -> Iterator[AuditFinding]:
    subject = shown(shot.image.name)
    for trait in photo.traits:
        kind, message = _TRAITS[trait]
        yield writer.note(kind, subject, message)
    if photo.orientation != 1 and photo.size == shot.camera.size:
        message = f"EXIF orientation is {photo.orientation}, but the camera fits the pixels as stored"
        yield writer.note("exif_orientation", subject, message)


def check_pairing(images: Path, writer: FindingWriter) -> Iterator[AuditFinding]:
    """Yield findings about file names in a photograph folder and its reduced copies (images_2, images_4, images_8).

    `name_clash`: files differ only in their extension, or files of one name in several sub-folders have a single copy.
    `shifted_pairing`: the folders do not hold the same names, extensions aside. No finding without such copies beside
    the folder.
    """
    siblings = reduced_copies(images).values()
    if not siblings:
        return
    originals = photographs_below(images)
    yield from _check_clashes(images, originals, writer)
    for sibling in siblings:
        copies = photographs_below(sibling)
        yield from _check_clashes(sibling, copies, writer)
        yield from _check_shift((images, originals), (sibling, copies), writer)


def _check_clashes(folder: Path, names: list[str], writer: FindingWriter) -> Iterator[AuditFinding]:
    stems = Counter(map(_stem, names))
    for stem in sorted(stem for stem, count in stems.items() if count > 1):
        alike = ", ".join(shown(name) for name in names if _stem(name) == stem)
        subject = f"{folder.name}/{shown(stem)}"
        yield writer.note(
            "name_clash", subject, f"several files differ only in their extension: {alike}", "Rename all files but one."
        )


def _check_shift(
    ours: tuple[Path, list[str]], theirs: tuple[Path, list[str]], writer: FindingWriter
) -> Iterator[AuditFinding]:
    (images, originals), (sibling, copies) = ours, theirs
    stems, copied = set(map(_stem, originals)), set(map(_stem, copies))
    if stems == copied:
        return
    flat = Counter(PurePosixPath(stem).name for stem in stems)
    merged = sorted(name for name, count in flat.items() if count > 1 and name in copied and name not in stems)
    for name in merged:
        message = f"{flat[name]} photographs of {images.name}/ have this name in sub-folders, but only one copy exists"
        remedy = f"Make {sibling.name}/ again with the sub-folders of {images.name}/."
        yield writer.note("name_clash", f"{sibling.name}/{shown(name)}", message, remedy)
    lacks, extra = sorted(stems - copied), sorted(copied - stems)
    message = f"{len(copies)} files here, {len(originals)} in {images.name}/"
    message += "".join(
        f"; {verb} {list_some(map(shown, names))}" for verb, names in (("lacks", lacks), ("has", extra)) if names
    )
    remedy = f"Make {sibling.name}/ again from {images.name}/, or remove it; pair files by name, never in order."
    yield writer.note("shifted_pairing", f"{sibling.name}/", message, remedy)


def _stem(name: str) -> str:
    return str(PurePosixPath(name).with_suffix(""))


def check_masks(
    masks: Mapping[str, Path], shots: list[AuditedImage], headers: Headers, writer: FindingWriter, *, every: bool
) -> Iterator[AuditFinding]:
    """Yield findings about masks that are unreadable, unlike their photograph in shape, or ignore nearly all of it.

    That is 98 % of its pixels, or 90 % of its keypoints.

    Args:
        masks: path of each mask, by the name of its photograph; photographs without a mask are not in it.
        shots: images of the model.
        headers: headers that were already read, those of all masks among them.
        writer: makes the findings.
        every: decode all masks; otherwise up to 15, evenly taken, and those whose small file suggests a single colour,
            until 64 are decoded.

    Raises:
        OSError: a mask was removed after its header was read.
        KeyError: the header of a mask is not in `headers`.
    """
    paired = [(shot, masks[shot.image.name]) for shot in shots if shot.image.name in masks]
    step, num_decoded = len(paired) // _SOME_DECODED or 1, 0
    for at, (shot, path) in enumerate(paired):
        mask = headers.of(str(path))
        if isinstance(mask, Unreadable):
            message = f"the mask of {shown(shot.image.name)} cannot be read: {shown(mask.what)}"
            yield writer.note("unreadable_mask", named(path), message)
        elif isinstance(mask, ImageHeader):
            photo = shot.header
            if isinstance(photo, ImageHeader) and not isinstance(relate(photo.size, mask.size), SameSize | ScaledSize):
                sizes = f"{size_text(mask.size)} px; photograph {shown(shot.image.name)} has {size_text(photo.size)} px"
                yield writer.note("mask_size", named(path), sizes)
            # os.stat, because thousands of masks are checked
            may_be_black = os.stat(path).st_size < mask.width * mask.height / _PIXELS_PER_BYTE + _HEAD  # noqa: PTH116
            if every or not at % step or (may_be_black and num_decoded < _MOST_DECODED):
                num_decoded += 1
                yield from _check_values(shot, path, writer)


def _check_values(shot: AuditedImage, path: Path, writer: FindingWriter) -> Iterator[AuditFinding]:
    mask, name = decode_grey(path), shown(shot.image.name)
    if mask is None:
        return
    is_ignored, brightest = mask < MASK_COUNTS, int(mask.max())
    if is_ignored.mean() < _MOST_IGNORED:
        places = np.nan_to_num(shot.keypoints / np.maximum(shot.camera.size, 1)).clip(0, 0.999999)
        column, row = (places * mask.shape[::-1]).astype(np.int64).T
        num, hidden = len(places), int(is_ignored[row, column].sum())
        if hidden >= max(LEAST_OBSERVATIONS, _MOST_HIDDEN * num):
            message = f"ignores {hidden} of {num} keypoints of {name}, by which it was reconstructed"
            yield writer.note("mask_share", named(path), message)
    elif 0 < brightest < MASK_COUNTS:
        message = f"the values of the mask are 0 to {brightest} only: nothing of {name} is trained"
        remedy = f"Masks must hold 0 and 255: multiply the values by {255 // brightest}."
        yield writer.note("mask_values", named(path), message, remedy)
    elif brightest == 0:
        yield writer.note("black_mask", named(path), f"is black all over: nothing of {name} is trained")
    else:
        yield writer.note("mask_share", named(path), f"ignores {100 * is_ignored.mean():.1f} % of {name}")


def check_mask_names(masks: Path, images: Path, writer: FindingWriter) -> Iterator[AuditFinding]:
    """Yield one finding if masks match no photograph, or there are none; none for a folder without photographs.

    The mask of photo.jpg is called photo.jpg.png or photo.png.

    Args:
        masks: folder of the masks.
        images: folder of the photographs.
        writer: makes the finding.
    """
    names = photographs_below(masks)
    photographs = photographs_below(images)
    wanted = {f"{name}.png" for name in photographs} | {f"{_stem(name)}.png" for name in photographs}
    lost = [name for name in names if name not in wanted]
    if photographs and (lost or not names):
        message = f"{len(lost)} of {len(names)} masks belong to no photograph: {list_some(map(shown, lost))}"
        remedy = f"Name masks after photographs: {shown(photographs[0])}.png, or {shown(_stem(photographs[0]))}.png."
        yield writer.note("mask_names", shown(str(masks)), message if names else "holds no masks", remedy)


def named(path: Path) -> str:
    """Return the name of a mask for findings: its folder and file."""
    return shown(f"{path.parent.name}/{path.name}")


@dataclass(frozen=True)
class CameraRow:
    """One row of the audit's table: a camera of a patch, with the sizes of its photographs on disk.

    `size` is the camera's width and height in pixels; `num_images` counts its images, missing photographs among them.
    """

    patch: str
    """Name of the patch; "source" for the source reconstruction."""
    camera_id: int
    """Id of the camera; the photographs of cameras that are judged like it (`alike_cameras`) count in its row."""
    prefixes: tuple[str, ...]
    """Sub-folders of the camera's photographs, sorted; "" for the photograph folder itself."""
    model: str
    size: Size
    num_images: int
    sizes: tuple[tuple[Size, int], ...]
    """Each size of a photograph on disk (width and height in pixels) with its count, the most frequent first.

    Missing and unreadable photographs are left out; empty if all are.
    """


def camera_rows(patch: str, shots: list[AuditedImage], alike: Mapping[int, int]) -> tuple[CameraRow, ...]:
    """Return one row per camera that an image uses, in the order of camera ids.

    Args:
        patch: name of the patch.
        shots: images of its model.
        alike: ids of cameras that are judged as if they were another, with that camera's id: both share a row.
    """
    of_camera = grouped((alike.get(shot.camera.id, shot.camera.id), shot) for shot in shots)
    rows = []
    for number, own in sorted(of_camera.items()):
        camera, names = own[0].camera, {shot.image.name.rpartition("/")[0] for shot in own}
        sizes = Counter(shot.header.size for shot in own if isinstance(shot.header, ImageHeader))
        ordered = tuple(sorted(sizes.items(), key=lambda item: (-item[1], item[0])))
        rows.append(CameraRow(patch, number, tuple(sorted(names)), camera.model, camera.size, len(own), ordered))
    return tuple(rows)


def check_sizes(
    shots: list[AuditedImage], rows: tuple[CameraRow, ...], writer: FindingWriter, divisor: int = 1
) -> Iterator[AuditFinding]:
    """Yield findings about sizes: cameras whose photographs differ in size, then photographs unlike their camera.

    Between them come cameras whose photographs are reduced by another factor than those of the first. Missing and
    unreadable photographs, and cameras without a positive size, are left out.

    Args:
        shots: images of the model.
        rows: the cameras of these images.
        writer: makes the findings.
        divisor: factor by which photographs are expected to be smaller than their camera: 4 in images_4; 1: equal.
    """
    as_meant = ScaledSize(1 / divisor)
    sound = [row for row in rows if min(row.size) > 0]
    for row in (row for row in sound if len({frozenset(size) for size, _ in row.sizes}) > 1):  # turned ones are named
        seen = ", ".join(f"{count} of {size_text(size)}" for size, count in row.sizes)
        message = f"its photographs have {len(row.sizes)} sizes: {seen}; the model says {size_text(row.size)}"
        yield writer.note("mixed_sizes", _camera_named(row), message)
    alike = [row for row in sound if len(row.sizes) == 1]
    for row in alike[1:]:
        if any(_differ(alike[0], row, axis) for axis in (0, 1)):
            ratios = " and ".join(
                f"{size_text(each.sizes[0][0])} for {size_text(each.size)} ({_camera_named(each)})"
                for each in (alike[0], row)
            )
            message = f"photographs are reduced by different factors: {ratios}"
            yield writer.note("unlike_ratios", f"{_camera_named(alike[0])}, {_camera_named(row)}", message)
    for shot in shots:
        photo, camera = shot.header, shot.camera.size
        if isinstance(photo, ImageHeader) and min(camera) > 0:
            relation = relate(camera, photo.size)
            if relation not in {SameSize(), as_meant}:
                kind, what, remedy = _describe(relation, photo)
                sizes = f"{size_text(photo.size)} px, but camera {shot.camera.id} says {size_text(camera)}"
                yield writer.note(kind, shown(shot.image.name), f"{sizes}: {what}", remedy)


def _differ(one: CameraRow, other: CameraRow, axis: int) -> bool:
    """Return whether photographs and cameras have unlike ratios along an axis; a pixel of rounding is tolerated."""
    ratios = [row.sizes[0][0][axis] / row.size[axis] for row in (one, other)]
    is_exact = any(row.sizes[0][0] == row.size for row in (one, other))
    rounding = 0.0 if is_exact else 1 / one.size[axis] + 1 / other.size[axis]
    return abs(ratios[0] - ratios[1]) > rounding


def _camera_named(row: CameraRow) -> str:
    folders = ", ".join(f"{shown(prefix)}/" for prefix in row.prefixes if prefix)
    return f"camera {row.camera_id}" + (f" ({folders})" if folders else "")


def _describe(relation: Relation, photo: ImageHeader) -> tuple[str, str, str]:
    """Return kind, explanation and remedy of a finding about a photograph's size."""
    match relation:
        case ScaledSize(factor):
            return (
                "scaled",
                f"resized ({spell_factor(factor)})",
                f"Bring the camera to this size: {FIX.format('scale')}. Or use the model's own photographs.",
            )
        case NearSize(factor, off):
            scaled = "" if factor == 1 else f"resized ({spell_factor(factor)}) and "
            sides = [(pixels, side) for pixels, side in zip(off, ("width", "height"), strict=True) if pixels]
            parts = [f"{abs(pixels)} px {'more' if pixels > 0 else 'less'} in {side}" for pixels, side in sides]
            what = f"{scaled}{' and '.join(parts) or 'less than a pixel off'}: rounding or a crop"
            return "few_pixels_off", what, f"{_SCALE} {_CROP}"
        case TransposedSize():
            why = f"; its EXIF orientation {photo.orientation} was applied when the model was made"
            what = f"width and height are exchanged{why if photo.orientation > 4 else ': the file was turned since'}"
            return "transposed", what, "Turn the photographs back as COLMAP saw them; no change of cameras helps."
        case ShapeMismatch() | SameSize():
            return "other_size", "another shape (cropped, padded or another camera's)", f"{_CROP} {_SCALE}"
