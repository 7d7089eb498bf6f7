"""Writes the certificate of a patch's splat or of the merged scene, and checks certificates against the files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

from splatbatch.errors import OutputError
from splatbatch.files import read_record, write_json
from splatbatch.hashing import sha256_of
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.folders import MERGE, RESULT, PatchFolder, SceneFolder
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.merge import Merge
from splatbatch.output.records.quality import (
    Certificate,
    Inspection,
    InspectionSettings,
    grade,
    seal_of,
)
from splatbatch.output.records.result import Result
from splatbatch.scene.patches import list_names
from splatbatch.splats import read_header
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.fingerprint import leaves
from splatbatch.tasks.inspection import SCENE, open_named
from splatbatch.tasks.task import Task, of_patches
from splatbatch.text import list_some, spell_place

FIGURES = ("psnr_covered", "covered_share", "psnr")
FIELDS = ("patch", "num_gaussians", "offset", "settings", "made_with", "holdout")
"""Fields of a certificate that are compared with the records they come from, besides grade and figures."""
FEW = 3
"""Most names that a message lists."""
INSPECTION = "inspection.json"
INSPECT = "no certificate; `splatbatch inspect` writes one"


@dataclass(frozen=True)
class CertificateCheck:
    """Result of `inspect --check --json`: whether certificates hold, with all problems found, as messages."""

    problems: tuple[str, ...]
    told: ClassVar = ("holds",)

    @property
    def holds(self) -> bool:
        """Return whether the certificates hold: no problem was found."""
        return not self.problems


def _of_patch(name: str, result: Result, found: Inspection) -> Certificate:
    """Return the unsealed certificate of a patch from its result and inspection; `inputs` is left empty."""
    depends = result.trained_from
    return Certificate(
        patch=name,
        grade=found.grade,
        figures=found.figures,
        splat=result.sha256,
        num_gaussians=result.num_gaussians,
        settings=depends.settings,
        settings_hash=depends.effective or depends.recipe,
        holdout={
            name: _photograph(found, name, {key: getattr(one, key) for key in FIGURES})
            for name, one in result.metrics.photos().items()
            if one.psnr is not None
        },
        offset=depends.offset,
        made_with={**result.metrics.made_with, "splatbatch": result.version},
    )


def _of_scene(folder: SceneFolder, training: Mapping[str, Any], found: Inspection) -> Certificate:
    """Return the unsealed certificate of the merged scene; its `inputs` are the splats of its patches.

    Args:
        folder: the merged scene's folder; its records of merge and splat are read.
        training: the training settings that the scene was inspected with.
        found: the inspection.
    """
    merged = folder.merged.read() or Merge()
    return Certificate(
        patch=found.patch,
        grade=found.grade,
        figures=found.figures,
        splat=found.splat,
        num_gaussians=merged.num_gaussians,
        settings=dict(training),
        settings_hash=merged.key,
        inputs={f"patches/{one.patch}/splat.ply": one.sha256 for one in merged.parts if one.sha256},
        holdout={
            name: _photograph(found, name, {key: one.get(key) for key in ("psnr_covered", "psnr")})
            for name, one in found.photos.items()
            if "psnr" in one
        },
        offset=read_header(folder.splat).offset,
        made_with={"splatbatch": merged.version} if merged.version else {},
    )


def _photograph(found: Inspection, name: str, figures: Mapping[str, float | None]) -> dict[str, float]:
    """Return the known figures of a held-out photograph, and where the inspection places its camera."""
    known = found.photos.get(name, {})
    placed = {key: known[key] for key in ("x", "y", "z", "distance", "piece") if key in known}
    return placed | {key: value for key, value in figures.items() if value is not None}


def _folder(output: OutputFolder, task: Task | None) -> PatchFolder | SceneFolder:
    return output.patch(task.name) if task else output.scene


def _made(batch: Batch, task: Task | None, hashes: Mapping[str, str] | None = None) -> Certificate:
    """Return the sealed certificate of an inspected splat: of a task, or of the merged scene.

    Args:
        batch: the batch that the splat belongs to.
        task: the task; None for the merged scene.
        hashes: hashes of input files that result.json has no hash of; None: these files are read and hashed.
    """
    output = batch.output
    found = _folder(output, task).read_inspection() or Inspection()
    if task is None:
        training = batch.config.recipe("").model_dump(mode="json")["training"]
        return _of_scene(output.scene, training, found).sealed()
    result, place = output.patch(task.name).read_result() or Result(), task.input_files().place
    read = {
        key: fact.sha256 or (sha256_of(place(key)) if hashes is None else hashes.get(key, ""))
        for key, fact in result.trained_from.files.items()
        if fact.num_bytes >= 0 and not key.endswith("/")
    }
    inputs = {key: sha256 for key, sha256 in read.items() if sha256}
    return replace(_of_patch(task.name, result, found), inputs=inputs).sealed()


def certify(batch: Batch, task: Task | None) -> None:
    """Write certificate.json beside an inspected splat, whole or not at all; an earlier one is replaced.

    The certificate leaves out input files that cannot be read.

    Args:
        batch: the batch that the splat belongs to.
        task: task that trained the splat; None: the splat is the merged scene.

    Raises:
        LaterFormatError: a later version of splatbatch wrote a record of the splat.
        ValueError: the file of the merged scene is no splat.
        OSError: the file of the merged scene cannot be read, or certificate.json cannot be written.
    """
    write_json(_folder(batch.output, task).certificate, _made(batch, task).to_record())


def is_certified(batch: Batch, task: Task | None) -> bool:
    """Return whether the existing certificate equals the one that `certify` would write; its arguments are the same.

    False if there is none, or it cannot be read. Reads records, not input files: a file without a recorded hash counts
    with the hash that the certificate has. Raises the errors of `certify`, but for those of writing.
    """
    record = read_record(_folder(batch.output, task).certificate)
    return record is not None and record == _made(batch, task, Certificate.from_record(record).inputs).to_record()


def problems_of_file(file: Path) -> list[str]:
    """Return the problems of one certificate file as messages; empty: the certificate holds.

    The certificate is checked against splat.ply and the records in the same folder. Without result.json or merge.json
    beside it, or under another name than certificate.json, only its seal, its grade and the splat are checked.

    Raises:
        OutputError: the file cannot be read, holds no JSON object, or a later version of splatbatch wrote a record.
        ValueError: the file of the merged scene is no splat, although its certificate has its hash.
    """
    record = read_record(file)
    if record is None:
        raise OutputError(
            f"{file}: not a certificate: it holds no JSON object",
            "Name a file that `splatbatch inspect` wrote: certificate.json.",
        )
    broken = _why_not_genuine(record, sha256_of(file.with_name("splat.ply")))
    patch, scene = PatchFolder(file.parent), SceneFolder(file.parent)
    is_handed_on = file.name != patch.certificate.name or not (patch.result.exists() or scene.merge.exists())
    if broken or is_handed_on:
        return broken
    said = Certificate.from_record(record)
    return list(_why_other_patch(said, patch) if patch.result.exists() else _why_other_scene(said, scene))


def problems_of_batch(config: Path | None, names: Sequence[str]) -> dict[str, list[str]]:
    """Return the problems of the certificates of a batch as messages, by patch; an empty list: no problem.

    A certificate that is missing or cannot be read is a problem, too.

    Args:
        config: path of the YAML; None: the default one.
        names: patches to check, and "scene" for the merged scene; empty: all patches, and the scene if it has a
            certificate.

    Raises:
        ConfigError: the YAML is wrong, or there is no patch of a given name.
        SceneError: the batch has no patches, or its partition is broken.
        LaterFormatError: a later version of splatbatch wrote a record.
        ValueError: the file of the merged scene is no splat, although its certificate has its hash.
    """
    batch, is_of_scene = open_named(config, names)
    found = {task.name: _problems(batch.output, task) for task in of_patches(batch.tasks)}
    if not names and batch.output.scene.certificate.exists():
        is_of_scene = SCENE not in [task.name for task in batch.every]
    return found | ({SCENE: _problems(batch.output, None)} if is_of_scene else {})


def _problems(output: OutputFolder, task: Task | None) -> list[str]:
    """Return the problems of the certificate of a task, or of the merged scene if `task` is None."""
    folder = _folder(output, task)
    if (record := read_record(folder.certificate)) is None:
        return [INSPECT]
    splat = folder.accepted_splat()[0] if isinstance(folder, PatchFolder) else folder.splat
    if broken := _why_not_genuine(record, sha256_of(splat)):
        return broken
    said = Certificate.from_record(record)
    if task and isinstance(folder, PatchFolder):
        return [*_why_other_patch(said, folder), *_why_outdated(said, task, folder)]
    merged = output.scene.merged.read() or Merge()
    outdated = [
        f"the merged scene has another splat of {one.patch} than the accepted one: run `splatbatch merge`"
        for one in merged.parts
        if one.sha256 and (result := output.patch(one.patch).read_result()) and result.sha256 != one.sha256
    ]
    return [*_why_other_scene(said, output.scene), *outdated]


def _why_not_genuine(record: dict[str, Any], splat_sha256: str) -> list[str]:
    """Return the problems: missing fields, a wrong seal or grade, a splat with another hash; empty if genuine."""
    if missing := [one.name for one in fields(Certificate) if one.name not in record]:
        return [f"the certificate is incomplete: it has no {', '.join(missing)}"]
    said, problems = Certificate.from_record(record), []
    if said.seal != seal_of(record):
        problems.append("the certificate was changed after it was written: its seal is broken")
    if said.grade != (by_figures := grade(said.figures)):
        problems.append(
            f"the certificate says grade {said.grade}, but its figures result in {by_figures or 'no grade'}"
        )
    if not splat_sha256:
        problems.append("the splat cannot be read, so its certificate cannot be checked")
    elif said.splat != splat_sha256:
        hashes = f"its SHA-256 is {said.splat[:12]}…, that of this splat {splat_sha256[:12]}…"
        problems.append(f"the certificate is of another splat: {hashes}")
    return problems


def _why_other_patch(said: Certificate, folder: PatchFolder) -> Iterator[str]:
    """Yield the contradictions between a certificate and the records in a patch's folder."""
    result, found = folder.read_result(), folder.read_inspection()
    if result is None:
        yield f"the certificate cannot be checked: there is no {RESULT}"
        return
    if said.splat != result.sha256:
        yield "the certificate is not of the accepted splat"
    known = _of_patch(result.patch or folder.path.name, result, found or Inspection())
    yield from _differences(said, known, found, dict.fromkeys(FIELDS, RESULT))
    if said.settings_hash not in (result.trained_from.effective, result.trained_from.recipe):
        yield f"the certificate has other settings than {RESULT}: settings_hash {said.settings_hash}"
    if result.photographs and (trained := sorted(said.holdout.keys() & set(result.photographs.trained))):
        yield f"the certificate holds out photographs that {RESULT} was trained on: {list_names(trained, FEW)}"
    files = result.trained_from.files
    recorded = {key: fact.sha256 for key, fact in files.items() if fact.sha256 and fact.num_bytes >= 0}
    yield from _other("files", {key: said.inputs.get(key) for key in recorded}, recorded, RESULT)
    if files and (unknown := sorted(said.inputs.keys() - files.keys())):
        yield f"the certificate lists files that {RESULT} does not: {list_some(unknown)}"


def _why_outdated(said: Certificate, task: Task, folder: PatchFolder) -> Iterator[str]:
    """Yield which settings of the YAML and which input files have changed since a certificate was written."""
    result = folder.read_result()
    if result is not None and not result.changes and said.settings_hash != task.yaml_settings.recipe_hash:
        yield "the settings of the YAML have changed since the certificate was written"
    place = task.input_files().place
    if differing := [key for key, sha256 in said.inputs.items() if sha256 != sha256_of(place(key))]:
        yield f"files have changed since the certificate was written: {list_some(differing)}"


def _why_other_scene(said: Certificate, folder: SceneFolder) -> Iterator[str]:
    """Yield the contradictions between a certificate and the records in the merged scene's folder."""
    merged, found = folder.merged.read() or Merge(), folder.read_inspection() or Inspection()
    if said.settings_hash != merged.key:
        yield f"the certificate is of another merge of the scene than {MERGE}"
    attempt = AttemptFolder(folder.inspecting.path / found.attempt)
    told = attempt.read(attempt.settings, InspectionSettings) or InspectionSettings()
    files = (INSPECTION, MERGE, folder.splat.name, f"settings.json of {found.attempt}", MERGE, INSPECTION)
    known = _of_scene(folder, told.recipe.get("training", said.settings), found)
    yield from _differences(said, known, folder.read_inspection(), dict(zip(FIELDS, files, strict=True)))
    yield from _other("splats", said.inputs, known.inputs, MERGE)
    if merged.held_out is not None and (others := sorted(said.holdout.keys() - set(merged.held_out))):
        yield f"the certificate holds out photographs that {MERGE} does not: {list_names(others, FEW)}"


def _differences(
    said: Certificate, known: Certificate, found: Inspection | None, files: Mapping[str, str]
) -> Iterator[str]:
    """Yield the fields of a certificate that differ from those rebuilt from the records.

    Args:
        said: the certificate to check.
        known: the certificate rebuilt from the records.
        found: the inspection; None if there is no inspection.
        files: file name of the record that each field of FIELDS comes from.
    """
    if found is None or found.splat != said.splat:
        why = "is missing" if found is None else "is of another splat"
        yield f"the figures of the certificate cannot be checked: {INSPECTION} {why}"
    else:
        yield from _list_differences({"grade": said.grade}, {"grade": known.grade}, INSPECTION)
        here, there = ({one.name: one for one in figures} for figures in (said.figures, known.figures))
        yield from _other("figures", here, there, INSPECTION)
    for name in FIELDS[:3]:
        yield from _list_differences({name: getattr(said, name)}, {name: getattr(known, name)}, files[name])
    yield from _list_differences(leaves(said.settings), leaves(known.settings), files["settings"])
    yield from _other("versions", said.made_with, known.made_with, files["made_with"])
    file, ours, theirs = files["holdout"], said.holdout, known.holdout
    for names, words in ((ours.keys() - theirs.keys(), "more"), (theirs.keys() - ours.keys(), "fewer")):
        if names:
            yield f"the certificate has {words} held-out photographs than {file}: {list_names(sorted(names), FEW)}"
    for name in sorted(ours.keys() & theirs.keys()):
        yield from _list_differences(ours[name], theirs[name], file, f" of {name}")


def _list_differences(here: Mapping[str, Any], there: Mapping[str, Any], file: str, of: str = "") -> Iterator[str]:
    """Yield a message for each value that differs from that in a file.

    `of` names a photograph; its values other than FIGURES come from inspection.json.
    """
    for key in _differing(here, there):
        source = file if not of or key in FIGURES else INSPECTION
        yield f"certificate: {key} {_format_value(here.get(key))}{of}, but {_format_value(there.get(key))} in {source}"


def _other(what: str, here: Mapping[str, object], there: Mapping[str, object], file: str) -> Iterator[str]:
    """Yield one message that lists the keys whose values differ from those in a file; nothing if all are equal."""
    if keys := _differing(here, there):
        yield f"the certificate has other {what} than {file}: {list_names(keys, FEW)}"


def _differing(here: Mapping[str, object], there: Mapping[str, object]) -> list[str]:
    return sorted(key for key in here.keys() | there.keys() if here.get(key) != there.get(key))


def _format_value(value: object) -> str:
    """Return a value as text for a message."""
    match value:
        case (float(), float(), float()) as place:
            return spell_place(place)
        case float():
            return f"{value:.6g}"
        case None | "":
            return "nothing"
        case _:
            return str(value)
