"""Writes copies of models whose cameras are corrected to fit the photographs, for `verify-dims --fix`.

All copies are written or none. The originals stay as they are. A new K (focal lengths and principal point) that
keypoints or photographs do not confirm is not written.
"""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Literal

import numpy as np

from splatbatch.errors import SceneError
from splatbatch.files import Record
from splatbatch.scene.audit.audit import SOURCE, USUAL, Audit, AuditExtent, audit_patches, source_patch
from splatbatch.scene.audit.findings import OF_GEOMETRY, TrainerRules
from splatbatch.scene.colmap.copies import CameraFix, write_changed
from splatbatch.scene.colmap.reconstruction import Reconstruction, read_reconstruction
from splatbatch.scene.colmap.types import CAMERA_MODELS, Camera, Floats
from splatbatch.scene.geometry import limits
from splatbatch.scene.geometry.survey import TrackObservations, find_misfit, survey
from splatbatch.scene.image_match.match_context import ALIKE, AS_IS, MatchContext, Relabeling, grey_photographs
from splatbatch.scene.image_match.ncc_patches import Places
from splatbatch.scene.image_match.pairs import GROUPS, pairs_of
from splatbatch.scene.image_match.relabelings import CROPPED
from splatbatch.scene.partition.files import PATCH
from splatbatch.scene.partition.record import read_partition, write_partition
from splatbatch.scene.patches import Patch
from splatbatch.scene.photos.folders import is_folder, paths_of, reduced_copies
from splatbatch.scene.photos.headers import (
    NearSize,
    SameSize,
    ScaledSize,
    Size,
    TransposedSize,
    relate,
    size_text,
    sizes_of,
)
from splatbatch.scene.photos.pixels import FULL, Greys, correlation, greys_at
from splatbatch.scene.reprojection import ReprojectionError, reprojection_error

How = Literal["scale", "crop"]
# Models with one focal length, and the equivalent model with two: distortion acts on normalised
# coordinates (colmap/src/colmap/sensor/models.h), so the coefficients carry over and zeros fill the rest.
_TWO_FOCALS = {
    "SIMPLE_PINHOLE": "PINHOLE",
    "SIMPLE_RADIAL": "OPENCV",
    "RADIAL": "OPENCV",
    "SIMPLE_RADIAL_FISHEYE": "OPENCV_FISHEYE",
    "RADIAL_FISHEYE": "OPENCV_FISHEYE",
    "SIMPLE_DIVISION": "DIVISION",
    "SIMPLE_FISHEYE": "FISHEYE",
}
_ALONG_X, _ALONG_Y = frozenset({"f", "fx", "cx", "w"}), frozenset({"fy", "cy", "h"})
_STEPS_PX = (4, 1)  # of the search: coarse, then fine
_MOST_PX = 160
_LEAST_CONTRAST = 6.0  # standard deviation of the points' greys: without colours all are black
_AS_TONED, _MORE_TONED = 0.6, 0.1
"""Correlation of points' greys with pixels from which on they match, and a rise of it that is no accident.

Greys decorrelate within 2 to 10 px of real photographs.
"""
_CLEARLY = 0.01
"""Rise of the correlation from which on the other of scale and crop is considered right."""
_OF_SIZE = frozenset(
    {"scaled", "few_pixels_off", "other_size", "mixed_sizes", "k_left_behind", "size_alone", "k_rescaled"}
)
"""Size errors that a fix must remove; a copy that still has one is rejected."""
_OF_GEOMETRY = frozenset(OF_GEOMETRY) - {"wrong_pose", "k_rescaled", "reprojection"}
BLOCKING = _OF_GEOMETRY | {
    "missing_model", "corrupt_model", "bad_camera_size", "params_count", "bad_params", "transposed", "lens_mix",
}  # fmt: skip
"""Kinds of audit findings that forbid any fix of a model, since no change of its cameras' sizes removes them.

`lens_mix` (photographs of another lens than the camera's) is among them: under the wrong lens a wrong K seems right.
"""
_OF_PICTURES = frozenset({"other_pictures", "displaced", "lens_mix"})
"""Errors of photographs; a copy with one is rejected, even if its original has it."""
_NEW = _OF_GEOMETRY | {"unlike_ratios", "principal_point_outside", "reprojection", "wrong_pose"}
"""Errors that a copy must not have unless its original has them."""
_MOST = 8


def change_camera(camera: Camera, photo: Size, how: How) -> CameraFix:
    """Return the change that makes a camera fit photographs of another size; one without effect if the sizes are equal.

    Args:
        camera: the camera as the model has it, of a known camera model.
        photo: width and height of its photographs in pixels.
        how: `scale` multiplies both axes of K by the ratios of the sizes. `crop` shifts the principal point, as if the
            photographs were cut out of the middle of larger ones. If the sizes differ by a scale and a few pixels, K is
            scaled first.

    Raises:
        SceneError: width and height are exchanged; or, for `crop`, both sides differ by one factor, or the camera has
            no principal point.
        ValueError: the camera has another number of parameters than its model.
    """
    size, factor = camera.size, 1.0
    where = f"camera {camera.id} has {size_text(size)} pixels, its photographs have {size_text(photo)}"
    match relate(size, photo):
        case SameSize():
            return CameraFix(camera, camera)
        case TransposedSize():
            raise SceneError(
                f"{where}: width and height are exchanged",
                "Turn the photographs back to the orientation that COLMAP used.",
            )
        case ScaledSize(resize) if how == "crop":
            is_whole = (1 / resize).is_integer()
            by = f"exactly 1/{1 / resize:.0f}" if is_whole else f"{resize:.4g}"
            remedy = (
                "Use --fix scale. If the photographs were cropped alike on all sides, correct the camera in the program"
                " that made the model."
            )
            raise SceneError(
                f"{where}: both sides times {by}, so they were resized and not cropped",
                "Use --fix scale." if is_whole else remedy,
            )
        case NearSize(near):
            factor = near
    if how == "scale":
        return _apply(camera, photo, (photo[0] / size[0], photo[1] / size[1]), (0.0, 0.0))
    if not camera.has_center:
        raise SceneError(
            f"camera {camera.id}: {camera.model} has no principal point, which --fix crop would shift",
            "Use --fix scale.",
        )
    shift = ((photo[0] - size[0] * factor) / 2, (photo[1] - size[1] * factor) / 2)
    return _apply(camera, photo, (factor, factor), shift)


def rescaled(camera: Camera, size: Size, scale: tuple[float, float]) -> Camera:
    """Return a camera for photographs that were resized; the same object if `size` is that of the camera.

    Distortion coefficients stay as they are. A model with one focal length gets two if the factors differ.

    Args:
        camera: the camera before, of a known camera model.
        size: width and height of the resized photographs in pixels.
        scale: factors of the resize in x and y.

    Raises:
        ValueError: the camera has another number of parameters than its model.
    """
    return camera if size == camera.size else _apply(camera, size, scale, (0.0, 0.0)).after


def _apply(camera: Camera, photo: Size, scale: tuple[float, float], shift: tuple[float, float]) -> CameraFix:
    model = camera if scale[0] == scale[1] else _with_two_focals(camera)
    params = []
    for name, value in model.named_params():
        axis = 0 if name in _ALONG_X else 1
        moved = value * scale[axis] if name in _ALONG_X | _ALONG_Y else value
        params.append(moved + shift[axis] if name in {"cx", "cy"} else moved)
    after = replace(model, width=photo[0], height=photo[1], params=tuple(params))
    return CameraFix(camera, after, scale, shift)


def _with_two_focals(camera: Camera) -> Camera:
    if camera.model not in _TWO_FOCALS:
        return camera
    twin = CAMERA_MODELS[_TWO_FOCALS[camera.model]]
    focal, cx, cy, *distortion = camera.params
    params = (focal, focal, cx, cy, *distortion)
    return replace(camera, model=twin.name, params=params + (0.0,) * (len(twin.params) - len(params)))


def choose_change(
    survey: TrackObservations, rows: list[int], photo: Size, how: How, told: Collection[str] = _OF_SIZE
) -> CameraFix:
    """Return the change that makes a camera fit its photographs of one size; without effect if the camera fits already.

    The keypoints decide what is changed. If K agrees with the keypoints, both are changed alike. If K disagrees, K
    alone is changed, provided that the new K agrees with the keypoints. If K and keypoints fit the photographs already,
    width and height alone are changed. Without enough keypoints that have points, both are changed unverified.

    Args:
        survey: geometry of the model.
        rows: indices of the camera's images whose photographs have this size, in the order of `survey.images`.
        photo: width and height of these photographs in pixels.
        how: scale or crop, see `change_camera`.
        told: kinds of the audit's findings about the model. Keypoints that reach too far or not far enough lead to
            another K only if the audit found the same.

    Raises:
        SceneError: the camera model is unknown, no change makes K and keypoints agree, or `change_camera` raises it.
        ValueError: the camera has another number of parameters than its model.
    """
    camera = survey.cameras[survey.images[rows[0]].camera_id]
    if camera.model not in CAMERA_MODELS:
        raise SceneError(
            f"camera {camera.id}: unknown camera model {camera.model}",
            "Undistort photographs and model: colmap image_undistorter.",
        )
    misfit = find_misfit(camera, photo, survey.reach_of(camera, rows))
    if misfit and misfit.kind == "size_alone":
        return CameraFix(camera, replace(camera, width=photo[0], height=photo[1]), has_keypoints=False)
    if misfit and misfit.meant and photo == camera.size and misfit.kind in told:
        meant = change_camera(replace(camera, width=misfit.meant[0], height=misfit.meant[1]), photo, how)
        return replace(meant, before=camera)
    change = change_camera(camera, photo, how)
    if not change.moves_pixels:
        return change
    views, before, after = survey.only(rows), change.before, change.after
    if not len(views.obs()):
        return change  # nothing can be verified: no image has enough keypoints with points
    agreed, alone = (float(np.median(views.with_camera(camera).errors)) for camera in (before, after))
    if agreed <= limits.trusted_px(before):
        return change
    if alone <= limits.trusted_px(after) and survey.reach_of(after, rows).lies_within(after.size):
        return replace(change, has_keypoints=False)
    raise SceneError(
        f"camera {before.id}: K (focal lengths, principal point) and keypoints disagree by {agreed:.4g} px (median);"
        f" with K for {size_text(after.size)} they would disagree by {alone:.4g} px, so that this is no fix",
        "First correct the other errors that `splatbatch verify-dims` reports.",
    )


@dataclass(frozen=True)
class CameraFixPlan:
    """Planned camera changes of one model.

    `changes` has each change once, by camera id. `of_image` has the change of each image by image id; images that
    keep their camera are left out of `of_image`.
    """

    patch: Patch
    model: Reconstruction
    changes: tuple[CameraFix, ...]
    of_image: Mapping[int, CameraFix]

    @property
    def rows(self) -> list[int]:
        """Indices, in `model.images`, of the images whose camera is changed."""
        return [row for row, image in enumerate(self.model.images) if image.id in self.of_image]


def plan_model(patch: Patch, how: How, told: Collection[str], reasons: list[str]) -> CameraFixPlan:
    """Return the planned changes of the cameras of a model, after reading the model and the headers of its photographs.

    A camera whose photographs have several sizes is split: each size that needs a change gets a camera with a new id.
    Photographs that cannot be read count as of the most frequent size.

    Args:
        patch: the patch with the model.
        how: scale or crop, see `change_camera`.
        told: kinds of the audit's findings about the model.
        reasons: list to which a text is appended for every camera that cannot be changed safely.

    Raises:
        ModelError: a file of the model is missing or broken.
    """
    model = read_reconstruction(patch.sparse)
    paths = paths_of(patch.images, (image.name for image in model.images))
    read = sizes_of(paths.values())
    sizes = {image.id: read[path] for image in model.images if (path := paths.get(image.name)) in read}
    found, used = survey(model, {}), sorted({image.camera_id for image in model.images})
    groups = [group for number in used for group in _groups(found, number, sizes, reasons)]
    next_id = max(model.cameras) + 1
    changes: list[CameraFix] = []
    of_image: dict[int, CameraFix] = {}
    for size, rows in groups:
        try:
            change = choose_change(found, rows, size, how, told)
        except SceneError as error:
            reasons.append(f"{patch.name}: {error.message} → {error.hint}")
            continue
        if change.moves_pixels:
            # the other images of a camera keep it
            is_whole = len(rows) == (found.camera_ids == change.before.id).sum()
            own = change if is_whole else replace(change, after=replace(change.after, id=next_id))
            next_id = max(next_id, own.after.id + 1)
            changes.append(own)
            of_image |= {found.images[row].id: own for row in rows}
    return CameraFixPlan(patch, model, tuple(changes), of_image)


def _groups(
    found: TrackObservations, camera_id: int, sizes: Mapping[int, Size], reasons: list[str]
) -> list[tuple[Size, list[int]]]:
    """Return the images of a camera by the size of their photographs; unreadable ones join the largest group."""
    groups: dict[Size, list[int]] = defaultdict(list)
    unread: list[int] = []
    for row, image in enumerate(found.images):
        if image.camera_id == camera_id:
            (groups[sizes[image.id]] if image.id in sizes else unread).append(row)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    if ordered:
        ordered[0][1].extend(unread)
    else:
        reasons.append(f"camera {camera_id}: none of its photographs can be read → Copy the photographs again.")
    return ordered


def _compared(patch: Patch, rows: Sequence[int]) -> MatchContext:
    """Return photographs of a model at full size, in pairs with at least one of the given rows."""
    model = read_reconstruction(patch.sparse, tracks=True)
    pairs = pairs_of(model, GROUPS, rows)
    there = paths_of(patch.images, {model.images[row].name for pair in pairs for row in (pair.one, pair.other)})
    sizes = sizes_of(there.values())
    files = {name: (path, sizes[path]) for name, path in there.items() if path in sizes}
    return MatchContext.of_files(model.images, model.cameras, files, pairs, grey_photographs(FULL))


def _why_unlike(plan: CameraFixPlan, after: MatchContext, how: How) -> tuple[str, str] | None:
    """Return why photographs do not prove a copy right, with a remedy: they match its points no better than before.

    None where they do.
    """
    before = replace(after, cameras=plan.model.cameras, images=plan.model.images, said={})
    everyone, rows = range(len(plan.model.images)), plan.rows
    likeness = after.of(rows).mean()
    was = before.of(rows).mean(
        dict.fromkeys(everyone, Relabeling("camera as a trainer uses it", place=_pixel_by_pixel))
    )
    if not np.isfinite(likeness):
        what = "too few photographs of the model can be compared: they share no 3D points, or show no detail"
        return what, "Correct the model in the program that made it: this correction cannot be checked."
    if likeness < ALIKE:
        what = (
            "with the corrected camera, photographs of the same points do not look alike (correlation"
            f" {likeness:.2f}; {was:.2f} before)"
        )
        return what, "Use the photographs that the model was made from."
    if all(change.before.params == change.after.params for change in plan.changes):
        return None
    if not likeness > (was if np.isfinite(was) else -1.0):
        what = (
            "with the corrected camera, photographs of the same points look less alike (correlation"
            f" {likeness:.3f}; {was:.3f} before)"
        )
        return what, "Use the photographs that the model was made from."
    word, reading = ("crop", CROPPED) if how == "scale" else ("scale", AS_IS)
    other = before.of(rows).mean(dict.fromkeys(everyone, reading))
    if other > likeness + _CLEARLY:
        what = (
            f"photographs of the same points look more alike with --fix {word} (correlation {other:.3f};"
            f" {likeness:.3f} with --fix {how})"
        )
        return what, f"Use --fix {word}."
    return None


def _pixel_by_pixel(camera: Size, photo: Size) -> Places:
    ratio = np.array(camera) / np.array(photo)
    return lambda shares: shares * ratio


def _why_off_centre(plan: CameraFixPlan, after: MatchContext) -> tuple[str, str] | None:
    """Return why photographs were not cropped about the centre, with a remedy; None where they were, or cannot tell."""
    cut = [np.abs(change.shift) for change in plan.changes if change.shift != (0.0, 0.0)]
    if not cut or not (missed := _centre_missed_by(after, np.max(cut, axis=0))):
        return None
    x, y = missed
    what = f"the photographs were not cropped about their centre: what they show is shifted by ({x:+d}, {y:+d}) px"
    return what, "Crop the originals about their centre, or correct the camera in the program that made the model."


def _centre_missed_by(compared: MatchContext, reach_px: Floats) -> tuple[int, int] | None:
    """Return the pixels in x and y by which photographs are off centre, by the colours of points; None if they are not.

    Photographs that are all cropped alike still match each other where cameras look alike; the points' colours tell.

    Args:
        compared: the photographs, with the corrected cameras.
        reach_px: largest possible offset, the pixels cut from each side, [2].
    """
    seen = []
    for pair in compared.pairs:
        for row in (pair.one, pair.other):
            view = compared.view(row)
            if view is not None and pair.greys.std() >= _LEAST_CONTRAST:
                seen.append((view.pixels(pair.xyz), view.picture, pair.greys))
    if not seen:
        return None
    best, start = (0, 0), _toned(seen, (0, 0))
    for step in _STEPS_PX:
        reach = np.minimum(reach_px, _MOST_PX) if step == _STEPS_PX[0] else np.array([step, step])
        across, down = (
            range(best[axis] - int(reach[axis]) // step * step, best[axis] + int(reach[axis]) + 1, step)
            for axis in (0, 1)
        )
        best = max(product(across, down), key=lambda offset: _toned(seen, offset))
    is_better = _toned(seen, best) >= max(_AS_TONED, start + _MORE_TONED)
    return best if is_better and best != (0, 0) else None


def _toned(seen: Sequence[tuple[Floats, Greys, Floats]], offset: tuple[int, int]) -> float:
    """Return the mean correlation of points' greys with pixels at an offset; -1 where it cannot be computed."""
    found = [correlation(greys_at(picture, pixels + offset), greys) for pixels, picture, greys in seen]
    known = [value for value in found if np.isfinite(value)]
    return float(np.mean(known)) if known else -1.0


def verify_copies(audit: Audit, copies: Sequence[Patch], extent: AuditExtent = USUAL) -> None:
    """Audit corrected copies of models before they are published.

    Args:
        audit: audit of the originals; geometry errors that an original had are allowed in its copy.
        copies: the copies, under the names of their originals.
        extent: how much the audit checks.

    Raises:
        SceneError: a copy has a size error, wrong or displaced photographs, or a geometry error that its original
            lacks. At most 8 findings are listed.
        OSError: a mask was removed during the audit.
    """
    rules = TrainerRules(False, frozenset(CAMERA_MODELS), audit.trainer)
    had = {(finding.patch, finding.kind) for finding in audit.errors()}
    wrong = [
        f"{one.patch}: {one.subject}: {one.message}"
        for one in audit_patches(copies, None, rules, extent).findings
        if one.kind in _OF_PICTURES
        or (
            one.severity == "error"
            and (one.kind in _OF_SIZE or (one.kind in _NEW and (one.patch, one.kind) not in had))
        )
    ]
    if wrong:
        raise SceneError(
            "the corrected copy would have errors, nothing was written:\n  " + "\n  ".join(wrong[:_MOST]),
            "Try the other of --fix scale and --fix crop, or use the photographs that the model was made from.",
        )


@dataclass(frozen=True)
class FixedModel:
    """A corrected copy of a model, with its changes and the mean reprojection error before and after.

    `patch` is the name of its patch, and `sparse` the folder of the copy. `changes` is empty if the model was copied as
    it was. Each error is in pixels of the camera at that time; None as in `reprojection_error`.
    """

    patch: str
    sparse: Path
    changes: tuple[CameraFix, ...]
    before: ReprojectionError | None
    after: ReprojectionError | None

    def to_record(self) -> Record:
        """Return the record for JSON: patch, folder, changes, and both errors in pixels; an error may be None."""
        return {
            "patch": self.patch,
            "sparse": str(self.sparse),
            "changes": [
                {"camera_id": one.before.id, "words": one.in_words(), **asdict(one)} for one in self.changes
            ],
            "error_before_px": self.before.mean_px if self.before else None,
            "error_after_px": self.after.mean_px if self.after else None,
        }  # fmt: skip

    def in_words(self) -> str:
        """Return several lines for people: the written folder, each change, and the reprojection errors in pixels.

        They also say if nothing was changed, or if an error is unknown.
        """
        lines = [f"{self.patch}: {self.sparse}"]
        lines += [f"  {change.in_words()}" for change in self.changes] or ["  copied without a change"]
        if self.before and self.after:
            lines.append(
                f"  mean reprojection error {self.before.mean_px:.4g} px before, {self.after.mean_px:.4g} px after"
                f" ({self.after.num_observations} observations)"
            )
        else:
            lines.append("  reprojection error unknown: no keypoint has a 3D point")
        return "\n".join(lines)


def fix_models(
    audit: Audit, patches: Sequence[Patch], source: Path | None, how: How, out: Path
) -> tuple[FixedModel, ...]:
    """Write a corrected copy of every patch to out/<patch>/sparse/0, and of the source to out/source/sparse/0.

    Photographs, masks and the partition of the originals are linked or copied beside the models. If every photograph
    fits its camera, the result is empty and nothing is written. After a failure `out` is unchanged.

    Args:
        audit: audit of these patches and of the source.
        patches: patches to fix.
        source: folder of the scene that the patches were cut from; None: there is none to fix.
        how: scale or crop, see `change_camera`.
        out: folder to write, absent or empty; renamed into place when all copies are checked.

    Raises:
        SceneError: `out` is not empty or cannot be written, a model or the partition cannot be read, or no safe
            correction of a model exists.
    """
    _refuse_occupied(out)
    everyone = [*patches, *([source_patch(source, patches)] if source else [])]
    plans = plan_models(audit, everyone, how)
    if not any(plan.changes for plan in plans):
        return ()
    with _written_aside(out) as aside:
        repaired = write_copies(plans, aside, out)
        copies = [replace(plan.patch, sparse=aside / plan.patch.name / "sparse/0") for plan in plans]
        for plan, copy in zip(plans, copies, strict=True):
            after = _compared(copy, plan.rows) if plan.changes else None
            if after and (refusal := _why_off_centre(plan, after) or _why_unlike(plan, after, how)):
                what, remedy = refusal
                raise SceneError(f"{plan.patch.name}: {what}; nothing was written", remedy)
        verify_copies(audit, copies)
    return repaired


def write_copies(plans: Sequence[CameraFixPlan], aside: Path, out: Path) -> tuple[FixedModel, ...]:
    """Write the planned copies of models, with links to their photographs, reduced copies and masks.

    Their partition and each patch.json are copied, too.

    Args:
        plans: planned changes, one for each model.
        aside: existing folder into which all files are written.
        out: folder that the caller renames `aside` to; the paths in the result begin with `out`.

    Raises:
        SceneError: a file of a model or the partition cannot be read.
        OSError: a file or link cannot be written.
    """
    repaired = []
    for plan in plans:
        sparse = Path(plan.patch.name) / "sparse/0"
        write_changed(plan.patch.sparse, plan.model.cameras, plan.of_image, aside / sparse)
        # links are not resolved: images/ of a patch is looked for beside its copy
        images, masks = plan.patch.images, plan.patch.masks
        is_own = images.absolute().parent in plan.patch.sparse.absolute().parents[:2]
        place = aside / plan.patch.name if is_own else aside
        for path in [images, *reduced_copies(images).values(), *([masks] if masks else [])]:
            link = place / (path.name if is_own else path.name.replace(images.name, "images"))
            if is_folder(path) and not link.exists():
                link.symlink_to(path.resolve(), target_is_directory=True)
        errors = reprojection_error(plan.model), reprojection_error(read_reconstruction(aside / sparse))
        repaired.append(FixedModel(plan.patch.name, out / sparse, plan.changes, *errors))
    # the partition of the originals, so that cores and hold-out stay the same
    for path in [plan.patch.partition for plan in plans if plan.patch.partition][:1]:
        known, has_source = read_partition(path), any(plan.patch.name == SOURCE for plan in plans)
        source = out / SOURCE / "sparse/0" if has_source else known.source
        write_partition(replace(known, path=aside / path.name, source=source), home=out)
        for plan in plans:
            record = path.parent / plan.patch.name / PATCH
            if record.is_file():
                shutil.copyfile(record, aside / plan.patch.name / PATCH)
    return tuple(repaired)


def plan_models(audit: Audit, patches: Sequence[Patch], how: How) -> list[CameraFixPlan]:
    """Return the planned changes of audited models, in the order of `patches`; nothing is written.

    Raises:
        SceneError: a model has a finding in `BLOCKING`, two models share a name, or a camera cannot be changed safely.
            The reasons are listed; cameras are looked at only without findings in `BLOCKING`.
        ModelError: a file of a model is missing or broken.
    """
    names = [patch.name for patch in patches]
    reasons = [
        f"{finding.patch}: {finding.subject}: {finding.message} → {finding.remedy}"
        for finding in audit.findings
        if finding.patch in names and finding.kind in BLOCKING
    ]
    if len(set(names)) < len(names):
        reasons.append(f"two models have the same name: {', '.join(names)} → Rename the patch named {SOURCE}.")
    plans = []
    if not reasons:
        told = {name: {one.kind for one in audit.findings if one.patch == name} for name in names}
        plans = [plan_model(patch, how, told[patch.name], reasons) for patch in patches]
    if reasons:
        raise SceneError(
            "cameras cannot be corrected safely, nothing was written:\n  " + "\n  ".join(reasons),
            "Correct these errors first, or name only the other patches: splatbatch verify-dims PATCH --fix HOW.",
        )
    return plans


def _refuse_occupied(out: Path) -> None:
    try:
        if any(out.iterdir()):
            raise SceneError(f"--out {out}: the folder is not empty", "Name a folder that does not exist yet.")
    except FileNotFoundError:
        return
    except OSError as error:
        raise SceneError(
            f"--out {out}: cannot be read ({error.strerror})", "Name a folder that does not exist yet."
        ) from error


@contextmanager
def _written_aside(out: Path) -> Iterator[Path]:
    """Yield a folder on the same file system that is renamed to `out` on success, and removed on failure."""
    home = next(parent for parent in out.absolute().parents if parent.is_dir())
    aside = home / f".{out.name}.{os.getpid()}"
    try:
        aside.mkdir()
        yield aside
        out.parent.mkdir(parents=True, exist_ok=True)
        aside.rename(out)
    except OSError as error:
        raise SceneError(
            f"--out {out}: cannot be written ({error.strerror})",
            "Name a folder that can be written, on a disk with free space.",
        ) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
