"""The audit of a scene before a GPU is used: checks patches, cameras and photographs, and reports their faults."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path

import numpy as np

from splatbatch.config import Evaluation
from splatbatch.errors import SceneError
from splatbatch.groups import grouped
from splatbatch.isolated import crash_of
from splatbatch.scene.audit import photographs
from splatbatch.scene.audit.findings import AuditFinding, FindingWriter, TrainerRules
from splatbatch.scene.audit.geometry import (
    check_geometry,
    check_in_view,
    check_pairs,
    find_misfits,
    is_contradicted,
    measure,
    note_misfit,
)
from splatbatch.scene.audit.image_match import ImageMatchFindings, is_left_behind
from splatbatch.scene.audit.model import (
    NOTHING,
    as_source,
    check_beside,
    check_camera,
    check_drift,
    check_model,
    check_overlap,
    check_places,
    check_rigs,
)
from splatbatch.scene.colmap.files import MissingModel, ModelError, shown
from splatbatch.scene.colmap.reconstruction import read_reconstruction
from splatbatch.scene.colmap.types import Camera, Image
from splatbatch.scene.formats import seen_at
from splatbatch.scene.frame import ModelExtent, span_of
from splatbatch.scene.geometry import limits
from splatbatch.scene.geometry.survey import TrackObservations, alike_cameras, with_cameras
from splatbatch.scene.holdout import choose_holdout
from splatbatch.scene.image_match.match_context import MatchContext, grey_photographs
from splatbatch.scene.image_match.pairs import GROUPS, ImagePair, pairs_of
from splatbatch.scene.patches import Patch, has_model, model_folder
from splatbatch.scene.photos.folders import (
    FolderListings,
    FoundPhotograph,
    find_masks,
    find_photographs,
    is_folder,
    paths_of,
    stored_photographs,
)
from splatbatch.scene.photos.headers import Headers, ImageHeader, unreadable
from splatbatch.scene.photos.pixels import undecodable
from splatbatch.terminal import Advance, unheard
from splatbatch.text import plural

AT_ONCE = 64
"""Number of patches whose models are in memory together, so that threads read the photographs of many at once."""
SOURCE = "source"
"""Name under which the source reconstruction, which is no patch, stands in rows and findings."""
_OF_LENS = frozenset({"distortion_kept", "distortion_dropped", "wrong_lens"})
"""Findings of a wrong lens. With one of these, `distorted` is not reported: undistortion would not help."""

_DAMAGED = frozenset({"truncated_image", "unreadable_image", "empty_image", "missing_image", "unreadable_mask"})
_File = tuple[FindingWriter, str, str]  # of which patch, its path, and its name in findings


@dataclass(frozen=True)
class Audit:
    """Result of an audit: findings, and one row per camera, in the order of the patches; the source comes last."""

    patches: tuple[str, ...]
    """Names of the audited patches; the source is not among them."""
    rows: tuple[photographs.CameraRow, ...]
    """Rows of the cameras; empty in the audits that `run` decides by, which do not print them."""
    findings: tuple[AuditFinding, ...]
    trainer: str
    """Name of the trainer whose rules were applied; of several trainers, their names with commas."""
    spans: Mapping[str, ModelExtent] = field(default_factory=dict)
    """Box of cameras and points of each patch whose model can be read and has a finite position, by name."""
    num_photographs: int = 0
    """Number of photographs that the patches' models name; one that several patches share counts once.

    0 in the audits that `run` decides by: `joined` keeps the number of the first audit, which is empty there.
    """

    def errors(self) -> tuple[AuditFinding, ...]:
        """Return the findings of severity "error", in order: each keeps its patch from being trained.

        Those about the source reconstruction belong to no patch.
        """
        return tuple(finding for finding in self.findings if finding.severity == "error")

    def warnings(self) -> tuple[AuditFinding, ...]:
        """Return the findings of severity "warning", in order: by themselves they do not stop a training."""
        return tuple(finding for finding in self.findings if finding.severity == "warning")

    def bad_patches(self) -> tuple[str, ...]:
        """Return the names of the patches with an error, in order; they must not be trained."""
        bad = {finding.patch for finding in self.errors()}
        return tuple(name for name in self.patches if name in bad)

    def exit_code(self, *, strict: bool = False) -> int:
        """Return the exit code of `verify-dims`: 3 if there are errors (with `strict` also for warnings), else 0."""
        return SceneError.exit_code if self.errors() or (strict and self.warnings()) else 0

    def joined(self, other: Audit) -> Audit:
        """Return an audit with the patches, findings and extents of both; rows, trainer and photographs are this one's.

        Used where patches are audited in several turns.
        """
        names, findings = (*self.patches, *other.patches), (*self.findings, *other.findings)
        return replace(self, patches=names, findings=findings, spans={**self.spans, **other.spans})

    def facts(self) -> AuditResult:
        """Return the record of this audit for `--json`, with the counts of errors and warnings."""
        return AuditResult(
            self.trainer,
            self.patches,
            self.bad_patches(),
            len(self.errors()),
            len(self.warnings()),
            self.rows,
            self.findings,
        )


@dataclass(frozen=True)
class AuditResult:
    """Record of an audit as `verify-dims --json` and `import --json` print it; `bad_patches` have an error."""

    trainer: str
    """Name of the trainer whose rules were applied; of several trainers, their names with commas."""
    patches: tuple[str, ...]
    bad_patches: tuple[str, ...]
    num_errors: int
    num_warnings: int
    """Number of findings of severity "warning"; `num_errors`: "error". Those about the source count, too."""
    cameras: tuple[photographs.CameraRow, ...]
    findings: tuple[AuditFinding, ...]


@dataclass(frozen=True)
class _PatchAudit:
    """A patch whose model was checked; its photographs are checked next. Its points are dropped, to save memory."""

    patch: Patch
    writer: FindingWriter
    findings: tuple[AuditFinding, ...]
    images: tuple[Image, ...] = ()
    cameras: Mapping[int, Camera] = field(default_factory=dict)
    span: ModelExtent | None = None
    """Box of the camera centres and points of the patch; None: no model could be read, or no position is finite."""
    divisor: int = 1
    """Factor by which the photographs are expected to be smaller than the cameras: 4 where only images_4 exists."""
    masks: Mapping[str, Path] = field(default_factory=dict)
    """Path of the mask of each photograph that has one, by image name."""
    survey: TrackObservations | None = None
    """Measured geometry of the model, without its points; None: no model could be read, or `measure` returned None."""
    pairs: tuple[ImagePair, ...] = ()
    """Pairs of photographs that are compared with each other; none where poses or K contradict the keypoints."""


@dataclass(frozen=True)
class AuditExtent:
    """How much an audit checks, where the audit caches headers, and how photographs are held out."""

    groups: int | None = GROUPS
    """Number of groups of three photographs to compare with each other; see `pairs_of`.

    Patches with the same photograph folder divide the number among them, rounded up; those of the source are not
    compared. None: all photographs are compared, all masks are decoded, and photographs of models without tracks are
    matched.
    """
    cache: Path | None = None
    """File that keeps the headers of photographs between runs, read and written; None: no cache."""
    evaluations: Mapping[str, Evaluation] = field(default_factory=dict)
    """Hold-out settings of each patch, by name; a patch without an entry has the default settings."""


USUAL = AuditExtent()


def audit_patches(
    patches: Sequence[Patch],
    source: Path | None,
    rules: TrainerRules,
    extent: AuditExtent = USUAL,
    advance: Advance = unheard,
) -> Audit:
    """Audit the patches, and the source reconstruction if one is given.

    A fault in a file becomes a finding, not an error. An unexpected exception over one patch becomes the finding
    `internal_fault`, and the other patches are audited all the same. Errors while masks are read are passed on.

    Args:
        patches: patches to audit.
        source: folder of the reconstruction that the patches were cut from; None: no comparison with a source.
        rules: camera models and photograph sizes that the trainer accepts.
        extent: how much to check.
        advance: called with the number of models checked so far and the total; its errors are passed on.

    Raises:
        OSError: a mask was removed during the audit.
    """
    original = _check_patch(source_patch(source, patches), rules, NOTHING, 0) if source else None
    drift_from = as_source(original.images, original.cameras) if original and original.images else None
    sharing = Counter(patch.images for patch in patches)
    groups = {
        images: None if extent.groups is None else -(-extent.groups // count) for images, count in sharing.items()
    }
    audited = (
        _check_patch(patch, rules, extent.evaluations.get(patch.name, Evaluation()), groups[patch.images])
        for patch in patches
    )
    everyone = chain(audited, [original] if original else [])
    rows: list[photographs.CameraRow] = []
    findings: list[AuditFinding] = []
    spans, paired, shared, decoded = {}, set(), set(), list[_File]()
    photographed = _with_headers(everyone, extent.cache, every=extent.groups is None)
    for done, (one, shots) in enumerate(photographed, 1):
        advance(done, len(patches) + bool(original))
        findings += one.findings
        if one is not original:
            folder = os.path.realpath(one.patch.images)  # Path.resolve() raises for a link in a circle (Python 3.11)
            shared |= {(folder, shot.image.name) for shot in shots}
            if extent.groups is None:
                decoded += [
                    (one.writer, shot.place.path, shown(shot.image.name))
                    for shot in shots
                    if isinstance(shot.place, FoundPhotograph)
                ]
                decoded += [(one.writer, str(path), photographs.named(path)) for path in one.masks.values()]
            if one.span:
                spans[one.patch.name] = one.span
        with _faults_as_findings(one.writer, findings):
            used = photographs.camera_rows(one.patch.name, shots, one.writer.alike)
            rows += used
            findings += _check_photographs(one, shots, used)
            if drift_from and one.patch.name != SOURCE:
                findings += check_drift(one.images, one.cameras, drift_from, one.writer)
            if one.patch.images not in paired:  # patches that share their photographs share the finding
                paired.add(one.patch.images)
                findings += photographs.check_pairing(one.patch.images, one.writer)
                if one.patch.masks:
                    findings += photographs.check_mask_names(one.patch.masks, one.patch.images, one.writer)
    findings += list(_undecodable(decoded, findings))
    return Audit(tuple(patch.name for patch in patches), tuple(rows), tuple(findings), rules.name, spans, len(shared))


def _undecodable(files: Sequence[_File], told: Sequence[AuditFinding]) -> Iterator[AuditFinding]:
    """Yield a finding for each file that cannot be decoded, unless one of `told` says already that it is damaged."""
    known = {(each.patch, each.subject) for each in told if each.kind in _DAMAGED}
    faults = undecodable(path for _, path, _ in files)
    for writer, path, subject in files:
        if path in faults and (writer.patch, subject) not in known:
            yield writer.note("undecodable", subject, f"cannot be decoded: {shown(faults[path])}")


@contextlib.contextmanager
def _faults_as_findings(writer: FindingWriter, findings: list[AuditFinding]) -> Iterator[None]:
    """Turn an unexpected error over one patch into the finding `internal_fault`; the audit of the rest goes on."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the files of a patch may be whatever they are
        fault = crash_of(error)
        found = writer.note("internal_fault", "the audit", f"failed: {fault.words}")
        findings.append(replace(found, traceback=fault.traceback))


def source_patch(source: Path, patches: Sequence[Patch]) -> Patch:
    """Return the source reconstruction as a patch named `SOURCE`, so that the audit treats the source like a patch.

    The model is the one in the folder itself, else below sparse/. Without images/ in `source`, the photographs are
    those of the patches, if all patches share one folder. Raises nothing: the audit reports a missing model.

    Args:
        source: folder of the reconstruction.
        patches: the patches that were cut from it.
    """
    images = source / "images"
    folders = {patch.images for patch in patches}
    if not is_folder(images) and len(folders) == 1:
        images = folders.pop()
    try:
        sparse = source if has_model(source) else model_folder(source)
    except OSError:
        sparse = None
    return Patch(SOURCE, sparse or source / "sparse/0", images)  # where there is no model, the reader says so


def _check_patch(patch: Patch, rules: TrainerRules, evaluation: Evaluation, groups: int | None) -> _PatchAudit:
    """Return a patch with the findings about its model."""
    writer, faults = FindingWriter(patch.name, rules), list[AuditFinding]()
    one = _PatchAudit(patch, writer, ())
    with _faults_as_findings(writer, faults):
        one = _check_model(patch, writer, evaluation, groups)
    return replace(one, findings=(*one.findings, *faults))


def _check_model(patch: Patch, writer: FindingWriter, evaluation: Evaluation, groups: int | None) -> _PatchAudit:
    try:
        model = read_reconstruction(patch.sparse, tracks=True)
        writer = replace(writer, alike=alike_cameras(model))
        found = measure(model, limits.IMAGES_OF_SOURCE if patch.name == SOURCE else None, writer.alike)
    except ModelError as error:
        kind = "missing_model" if isinstance(error, MissingModel) else "corrupt_model"
        seen = "" if is_folder(patch.sparse) else seen_at(patch.sparse.parent.parent)
        finding = writer.note(kind, shown(str(error.path)), shown(error.what), seen or error.hint)
        return _PatchAudit(patch, writer, (finding,))
    held_out: tuple[str, ...] = ()
    with contextlib.suppress(SceneError):  # the scene that it was cut from cannot be read: a finding of that
        held_out = choose_holdout(patch, evaluation, model.images)
    findings = [*check_model(model, writer, evaluation, len(held_out)), *check_rigs(model, writer)]
    findings += check_geometry(found, writer) if found else ()
    findings += check_places(model, writer) if not is_contradicted(findings) else ()
    folder, divisor = stored_photographs(patch.images)
    if found and not model.points.track_lengths.any() and not is_contradicted(findings):
        findings += check_in_view(model, writer)
        if groups is None:
            lying = paths_of(folder, (image.name for image in model.images))
            paths = ((row, lying.get(image.name)) for row, image in enumerate(model.images))
            findings += check_pairs(model, {row: path for row, path in paths if path and Path(path).is_file()}, writer)
    if patch.name != SOURCE and not any(one.severity == "error" for one in findings):  # else poses may be wrong
        findings += check_overlap(model, writer, held_out)
    findings += check_beside(patch, model.images, writer)
    judged = replace(model, images=with_cameras(model.images, writer.alike))
    return _PatchAudit(
        replace(patch, images=folder),
        writer,
        tuple(findings),
        images=model.images,
        cameras=model.cameras,
        span=span_of(model),
        divisor=divisor,
        masks=find_masks(patch.masks, (image.name for image in model.images)),
        survey=found.without_points() if found else None,
        pairs=tuple(pairs_of(judged, groups)) if found and not is_contradicted(findings) else (),
    )


def _with_headers(
    audited: Iterator[_PatchAudit], cache: Path | None, *, every: bool
) -> Iterator[tuple[_PatchAudit, list[photographs.AuditedImage]]]:
    """Yield each patch with its photographs. Models are read `AT_ONCE` together; a shared photograph is read once."""
    folders, headers = FolderListings(), Headers(cache)
    while some := tuple(islice(audited, AT_ONCE)):
        places = [[folders.locate(each.patch.images, image.name) for image in each.images] for each in some]
        masks = (str(path) for each in some for path in each.masks.values())
        headers.read(
            chain((place.path for group in places for place in group if isinstance(place, FoundPhotograph)), masks)
        )
        for each, group in zip(some, places, strict=True):
            seen, none = each.survey.reach if each.survey else {}, np.zeros((0, 2))
            shots = [
                photographs.AuditedImage(
                    image,
                    each.cameras[image.camera_id],
                    place,
                    headers.of(place.path) if isinstance(place, FoundPhotograph) else None,
                    seen.get(row, none),
                )
                for row, (image, place) in enumerate(zip(each.images, group, strict=True))
            ]
            of_masks = photographs.check_masks(each.masks, shots, headers, each.writer, every=every)
            yield replace(each, findings=(*each.findings, *of_masks)), shots
    headers.keep()


def _check_photographs(
    one: _PatchAudit, shots: list[photographs.AuditedImage], rows: tuple[photographs.CameraRow, ...]
) -> Iterator[AuditFinding]:
    has_other_lens = any(finding.kind in _OF_LENS for finding in one.findings)
    for row in rows:
        found = check_camera(one.cameras[row.camera_id], one.writer)
        yield from (each for each in found if not (each.kind == "distorted" and has_other_lens))
    compared = _compared(one, shots)
    named, judged = set[int](), with_cameras(one.images, one.writer.alike)
    rows_of = grouped((image.camera_id, at) for at, image in enumerate(judged))
    misfits = find_misfits(one.survey, rows, one.cameras, one.findings) if one.survey and one.divisor == 1 else {}
    for number, misfit in misfits.items():
        its = set(rows_of[number])
        seen = is_left_behind(compared, its)
        if misfit.kind == "size_alone":
            named |= its
        elif seen is False:
            continue  # a crop leaves keypoints beyond the photographs
        yield note_misfit(number, misfit, one.writer)
        compared = compared if seen is None else compared.without(its)
    contents = list(ImageMatchFindings(compared, one.patch.images, one.patch.sparse, one.writer).findings())
    yield from contents
    others = [shot for row, shot in enumerate(shots) if row not in named]
    sound = photographs.camera_rows(one.patch.name, others, one.writer.alike)
    yield from photographs.check_sizes(others, sound, one.writer, one.divisor)
    # a photograph that is turned does not fit its camera as it is stored
    turned = {finding.subject for finding in contents if finding.kind in ("other_content", "other_pictures")}
    for each in _check_files(one, shots):
        if each.kind != "exif_orientation" or not turned & {each.subject, "photographs"}:
            yield each


def _compared(one: _PatchAudit, shots: list[photographs.AuditedImage]) -> MatchContext:
    """Return the photographs to compare: all whose header can be read, and whose camera has a positive size."""
    files = {
        shot.image.name: (shot.place.path, shot.header.size)
        for shot in shots
        if isinstance(shot.place, FoundPhotograph)
        and isinstance(shot.header, ImageHeader)
        and min(shot.camera.size) > 0
    }
    return MatchContext.of_files(one.images, one.cameras, files, one.pairs, grey_photographs())


def _check_files(one: _PatchAudit, shots: list[photographs.AuditedImage]) -> Iterator[AuditFinding]:
    is_hopeless = shots and not any(isinstance(shot.header, ImageHeader) for shot in shots)
    folder, names = one.patch.images, [shot.image.name for shot in shots]
    problem = _folder_problem(folder) if is_hopeless else ""
    held = (find_photographs(one.patch.sparse, names) or find_photographs(folder, names)) if is_hopeless else None
    if held is not None and held.folder.absolute() == folder.absolute():
        held = None  # they are there, and cannot be read
    if problem or held:  # one finding instead of thousands
        message = f"{problem or 'holds none of the photographs'}; {plural(len(shots), 'photograph')} should be there"
        remedy = "Set scene.images to the folder of the photographs, or make this folder readable."
        if held:
            message += f", and {held.num} of them lie in {shown(str(held.folder))}"
            remedy = "Set scene.images to that folder, or rename it to images/ if each patch has its own photographs."
        yield one.writer.note("no_image_folder", shown(str(folder)), message, remedy)
    else:
        yield from photographs.check_photos(shots, folder, one.writer)


def _folder_problem(folder: Path) -> str:
    try:
        os.listdir(folder)  # noqa: PTH208 - for its errors
    except NotADirectoryError:
        return "is not a folder"
    except OSError as error:
        return unreadable(error).what.replace("file", "folder")
    return ""
