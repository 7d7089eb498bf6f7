"""A certificate made of what is known of a patch's product, and held against what there is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

from splatbatch.config import Config
from splatbatch.errors import OutputError
from splatbatch.files import write_json
from splatbatch.hashing import sha256_of
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.folders import MERGE, RESULT, PatchFolder, SceneFolder, SplatFolder
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.merge import Merge
from splatbatch.output.records.quality import (
    Certificate,
    Inspection,
    InspectionSettings,
    grade,
    read_certificate,
    seal_of,
)
from splatbatch.output.records.result import Result
from splatbatch.scene.patches import list_names
from splatbatch.splats import read_header
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.fingerprints.fingerprint import recipe_hash
from splatbatch.tasks.fingerprints.inputs import locate
from splatbatch.tasks.fingerprints.settings import leaves
from splatbatch.tasks.product import ProductComparison
from splatbatch.tasks.quality.inspection import SCENE, open_named
from splatbatch.tasks.task import Task, of_patches
from splatbatch.text import list_some, spell_place

FIGURES = ("psnr_covered", "covered_share", "psnr")
FEW = 3
"""Names that a message holds."""
INSPECTION = "inspection.json"
INSPECT = "no certificate; `splatbatch inspect` writes one"


@dataclass(frozen=True)
class CertificateCheck:
    """`inspect --check --json`: whether a certificate holds, and if not, why."""

    problems: tuple[str, ...]
    told: ClassVar = ("holds",)

    @property
    def holds(self) -> bool:
        """Return whether nothing speaks against it."""
        return not self.problems


def _by_records(name: str, result: Result, found: Inspection) -> Certificate:
    """Return what records say of a product, but for the files that it was made from."""
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
            name: _known_of(found, name, {key: getattr(one, key) for key in FIGURES})
            for name, one in result.metrics.photos().items()
            if one.psnr is not None
        },
        offset=depends.offset,
        made_with={**result.metrics.made_with, "splatbatch": result.version},
    )


def certificate_of_scene(folder: SceneFolder, training: Mapping[str, Any], found: Inspection) -> Certificate:
    """Return the certificate of a merged scene that was inspected: what it was made from are its patches' splats.

    Args:
        folder: of the scene.
        training: the section of that name of the settings that it was inspected by.
        found: what the inspection has found.
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
            name: _known_of(found, name, {key: one.get(key) for key in ("psnr_covered", "psnr")})
            for name, one in found.photos.items()
            if "psnr" in one
        },
        offset=read_header(folder.splat).offset,
        made_with={"splatbatch": merged.version} if merged.version else {},
    ).sealed()


def _made(
    task: Task | None, config: Config, output: OutputFolder, hashes: Mapping[str, str] | None = None
) -> Certificate:
    """Return the certificate of an inspected splat: of a task, or of the merged scene.

    Args:
        task: None: the merged scene.
        config: of the batch.
        output: of the batch.
        hashes: of files whose hash is not recorded; None: they are read.
    """
    if task is None:
        training = config.recipe("").model_dump(mode="json")["training"]
        return certificate_of_scene(output.scene, training, output.scene.read_inspection() or Inspection())
    folder, inputs = output.patch(task.name), dict[str, str]()
    result = folder.read_result() or Result()
    for key, fact in result.trained_from.files.items():
        if fact.num_bytes >= 0 and key[-1:] != "/":
            read = hashes.get(key, "") if hashes is not None else sha256_of(locate(key, task.patch, task.recipe))
            inputs |= {key: sha256} if (sha256 := fact.sha256 or read) else {}
    return replace(_by_records(task.name, result, folder.read_inspection() or Inspection()), inputs=inputs).sealed()


def certify(batch: Batch, task: Task | None) -> None:
    """Write the certificate of an inspected splat: of a task, or of the merged scene."""
    folder: SplatFolder = batch.output.patch(task.name) if task else batch.output.scene
    write_json(folder.certificate, _made(task, batch.config, batch.output).to_record())


def product(task: Task | None, config: Config, output: OutputFolder) -> ProductComparison:
    """Return a certificate as it would be written now, beside the one that lies there; no file of a scene is read.

    Of a file whose hash is not recorded, the hash in the certificate counts.
    """
    folder: SplatFolder = output.patch(task.name) if task else output.scene
    record = read_certificate(folder.certificate)
    said = Certificate.from_record(record or {})
    made = _made(task, config, output, said.inputs)
    damage = "" if record == made.to_record() else folder.certificate.name
    return ProductComparison(made.seal, said.seal if record else None, damage)


def _known_of(found: Inspection, name: str, figures: Mapping[str, float | None]) -> dict[str, float]:
    """Return what is said of a held-out photograph: its figures, and where it stands."""
    known = found.photos.get(name, {})
    placed = {key: known[key] for key in ("x", "y", "z", "distance", "piece") if key in known}
    return placed | {key: value for key, value in figures.items() if value is not None}


def problems_of_file(file: Path) -> list[str]:
    """Return what does not hold of a certificate, by the splat and the records that lie beside it.

    Raises:
        OutputError: the file is none.
    """
    record = read_certificate(file)
    if record is None:
        raise OutputError(f"{file}: not a certificate: it holds no JSON object", "Name a certificate.json.")
    broken = list(why_not_genuine(record, sha256_of(file.with_name("splat.ply"))))
    patch, scene = PatchFolder(file.parent), SceneFolder(file.parent)
    if broken or file.name != patch.certificate.name:
        return broken
    if patch.result.exists():  # it was not handed on: its records lie beside it
        return list(why_contradicted(record, patch))
    return list(why_scene_contradicted(record, scene)) if scene.merge.exists() else []


def problems_of_batch(config: Path | None, names: Sequence[str]) -> dict[str, list[str]]:
    """Return what does not hold of the certificates of patches; of the scene's where it is named, or there is one.

    Raises:
        ConfigError: there is no such patch.
    """
    batch, is_of_scene = open_named(config, names)
    found = {task.name: _problems(batch.output, task) for task in of_patches(batch.tasks)}
    if not names and batch.output.scene.certificate.exists():
        is_of_scene = SCENE not in [task.name for task in batch.every]
    return found | ({SCENE: _problems(batch.output, None)} if is_of_scene else {})


def _problems(output: OutputFolder, task: Task | None) -> list[str]:
    """Return what does not hold of a certificate: of a task, None: of the merged scene's."""
    folder = output.patch(task.name) if task else output.scene
    if (record := read_certificate(folder.certificate)) is None:
        return [INSPECT]
    splat = folder.accepted_splat()[0] if isinstance(folder, PatchFolder) else folder.splat
    if broken := list(why_not_genuine(record, sha256_of(splat))):
        return broken
    if task and isinstance(folder, PatchFolder):
        return [*why_contradicted(record, folder), *why_outdated(record, task, folder)]
    return [*why_scene_contradicted(record, output.scene), *why_scene_outdated(output)]


def why_not_genuine(record: dict[str, Any], splat_sha256: str) -> Iterator[str]:
    """Yield what of a certificate does not hold by itself and beside a splat of this hash."""
    if missing := [one.name for one in fields(Certificate) if one.name not in record]:
        yield f"the certificate is incomplete: it has no {', '.join(missing)}"
        return
    said = Certificate.from_record(record)
    if said.seal != seal_of(record):
        yield "the certificate was changed after it was written: its seal is broken"
    if said.grade != grade(said.figures):
        yield f"the certificate says grade {said.grade}, but its figures give {grade(said.figures) or 'none'}"
    if not splat_sha256:
        yield "the splat cannot be read, so its certificate cannot be checked"
    elif said.splat != splat_sha256:
        yield f"the certificate is of another splat: of {said.splat[:12]}…, but this one is {splat_sha256[:12]}…"


def why_contradicted(record: dict[str, Any], folder: PatchFolder) -> Iterator[str]:
    """Yield in which fields a certificate contradicts the records beside a patch's product."""
    said, result, found = Certificate.from_record(record), folder.read_result(), folder.read_inspection()
    if result is None:
        yield f"the certificate cannot be checked: there is no {RESULT}"
        return
    if said.splat != result.sha256:
        yield "the certificate is not of the accepted splat"
    yield from _of_inspection(said, found)
    name = result.patch or folder.path.name
    known = _by_records(name, result, found or Inspection())
    yield from _unlike(said, known, RESULT, ("patch", "num_gaussians", "offset"))
    yield from _other_settings(said, known, RESULT)
    if said.settings_hash not in (result.trained_from.effective, result.trained_from.recipe):
        yield f"the certificate has other settings than {RESULT}: settings_hash {said.settings_hash}"
    yield from _other("versions", said.made_with, known.made_with, RESULT)
    yield from _other_photographs(said, known, RESULT)
    if result.photographs and (trained := sorted(said.holdout.keys() & set(result.photographs.trained))):
        yield f"the certificate holds out photographs that {RESULT} was trained on: {list_names(trained, FEW)}"
    files = result.trained_from.files
    recorded = {key: fact.sha256 for key, fact in files.items() if fact.sha256 and fact.num_bytes >= 0}
    if differing := [key for key, sha256 in recorded.items() if said.inputs.get(key) != sha256]:
        yield f"the certificate has other files than {RESULT}: {list_some(differing)}"
    if files and (unknown := sorted(said.inputs.keys() - files.keys())):
        yield f"the certificate lists files that {RESULT} does not: {list_some(unknown)}"


def why_outdated(record: dict[str, Any], task: Task, folder: PatchFolder) -> Iterator[str]:
    """Yield what of the YAML and of the files of a batch is no longer as a certificate says."""
    said, result = Certificate.from_record(record), folder.read_result()
    if result is not None and not result.changes and said.settings_hash != recipe_hash(task.recipe):
        yield "the YAML has other settings now than the certificate"
    now = {key: sha256_of(locate(key, task.patch, task.recipe)) for key in said.inputs}
    if differing := [key for key, sha256 in said.inputs.items() if now[key] != sha256]:
        yield f"files have changed since the certificate was written: {list_some(differing)}"


def why_scene_contradicted(record: dict[str, Any], folder: SceneFolder) -> Iterator[str]:
    """Yield in which fields a certificate contradicts the records beside the merged scene."""
    said, merged, found = Certificate.from_record(record), folder.merged.read() or Merge(), folder.read_inspection()
    if said.settings_hash != merged.key:
        yield f"the certificate is of another merge than {MERGE}"
    yield from _of_inspection(said, found)
    if found is None:
        return
    told = AttemptFolder(folder.inspecting.path / found.attempt).read_settings_as(InspectionSettings)
    known = certificate_of_scene(folder, told.recipe.get("training", {}), found)
    yield from _unlike(said, known, INSPECTION, ("patch",))
    yield from _unlike(said, known, MERGE, ("num_gaussians",))
    yield from _unlike(said, known, folder.splat.name, ("offset",))
    if told.recipe:
        yield from _other_settings(said, known, f"settings.json of {found.attempt}")
    yield from _other("versions", said.made_with, known.made_with, MERGE)
    yield from _other("splats", said.inputs, known.inputs, MERGE)
    yield from _other_photographs(said, known, INSPECTION)
    if merged.held_out is not None and (others := sorted(said.holdout.keys() - set(merged.held_out))):
        yield f"the certificate holds out photographs that {MERGE} does not: {list_names(others, FEW)}"


def why_scene_outdated(output: OutputFolder) -> Iterator[str]:
    """Yield which patches have another splat by now than the merged scene was made from."""
    merged = output.scene.merged.read()
    for one in merged.parts if merged else ():
        result = output.patch(one.patch).read_result()
        if one.sha256 and result is not None and result.sha256 != one.sha256:
            yield f"the merged scene has another splat of {one.patch} than the accepted one: run `splatbatch merge`"


def _of_inspection(said: Certificate, found: Inspection | None) -> Iterator[str]:
    """Yield in what a grade and its figures are not those of the inspection."""
    if found is None or found.splat != said.splat:
        why = "is missing" if found is None else "is of another splat"
        yield f"the figures of the certificate cannot be checked: {INSPECTION} {why}"
        return
    if said.grade != found.grade:
        yield f"certificate: grade {said.grade}, but {found.grade or 'none'} in {INSPECTION}"
    here, there = ({one.name: one for one in figures} for figures in (said.figures, found.figures))
    yield from _other("figures", here, there, INSPECTION)


def _unlike(said: Certificate, known: Certificate, file: str, names: Iterable[str]) -> Iterator[str]:
    """Yield which of some fields differ from what a file says."""
    for name in names:
        here, there = getattr(said, name), getattr(known, name)
        if here != there:
            yield f"certificate: {name} {_WORDS.get(name, str)(here)}, but {_WORDS.get(name, str)(there)} in {file}"


_WORDS = {"offset": spell_place}


def _other_settings(said: Certificate, known: Certificate, file: str) -> Iterator[str]:
    """Yield which settings differ from those in a file."""
    here, there = leaves(said.settings), leaves(known.settings)
    for key in sorted(here.keys() | there.keys()):
        if here.get(key) != there.get(key):
            yield f"certificate: {key} {here.get(key)}, but {there.get(key)} in {file}"


def _other_photographs(said: Certificate, known: Certificate, file: str) -> Iterator[str]:
    """Yield what of held-out photographs differs from what records say."""
    for names, words in (
        (said.holdout.keys() - known.holdout.keys(), "more"),
        (known.holdout.keys() - said.holdout.keys(), "fewer"),
    ):
        if names:
            yield f"the certificate has {words} held-out photographs than {file}: {list_names(sorted(names), FEW)}"
    for name in sorted(said.holdout.keys() & known.holdout.keys()):
        here, there = said.holdout[name], known.holdout[name]
        for key in sorted(key for key in here.keys() | there.keys() if here.get(key) != there.get(key)):
            source = file if key in FIGURES else INSPECTION
            yield f"certificate: {key} {_number(here.get(key))} of {name}, but {_number(there.get(key))} in {source}"


def _number(value: float | None) -> str:
    return "nothing" if value is None else f"{value:.6g}"


def _other(what: str, here: Mapping[str, object], there: Mapping[str, object], file: str) -> Iterator[str]:
    """Yield under which keys something differs from what a file says."""
    if keys := sorted(key for key in here.keys() | there.keys() if here.get(key) != there.get(key)):
        yield f"the certificate has other {what} than {file}: {list_names(keys, FEW)}"
