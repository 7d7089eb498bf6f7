"""The folders of a patch and of the merged scene: which file lies where, and how each is read."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from splatbatch.files import names_in
from splatbatch.hashing import FileFacts, file_fact
from splatbatch.output.attempt_folder import ATTEMPT_PREFIX, AttemptFolder, FileIn, attempt_number
from splatbatch.output.generations import numbers_in
from splatbatch.output.records.quality import Inspection
from splatbatch.output.records.result import Result

if TYPE_CHECKING:
    from splatbatch.output.records.evaluation import SceneEvaluation
    from splatbatch.output.records.merge import Merge

SPLAT, RESULT, ACCEPTED = "splat.ply", "result.json", "accepted"
PREVIEW = "preview.compressed.ply"
"""Beside a splat: what a report opens of it."""
BACKDROP = "backdrop"
"""The task, and the folder, of the whole scene that is drawn behind its patches."""


def latest_number(files: Iterable[str]) -> int:
    """Return the number of the last attempt among the names of what lies in a patch's folder; 0 if there is none."""
    return max(map(attempt_number, files), default=0)


@dataclass(frozen=True)
class SplatFolder:
    """What lies in the output folder for one splat: of a patch, or of the whole scene."""

    path: Path

    splat = FileIn(SPLAT)
    """The accepted product."""
    inspection = FileIn("inspection.json")
    """How good the product is beyond PSNR; `inspect` copies it here from its attempt."""
    certificate = FileIn("certificate.json")
    """Grade, figures and hashes, to be handed over with the product."""

    @property
    def inspecting(self) -> PatchFolder:
        """The attempts at inspecting the product."""
        return PatchFolder(self.path / "inspecting")

    def read_inspection(self) -> Inspection | None:
        """Return how good the product was found to be; None if it was not inspected."""
        return Inspection.read(self.inspection)


@dataclass(frozen=True)
class PatchFolder(SplatFolder):
    """What lies in the output folder for one patch."""

    result = FileIn(RESULT)
    """Its manifest; written after the splat, so that a manifest never stands without its product."""
    preview = FileIn(PREVIEW)
    """The report: a few MB of the splat, to look at in the page."""
    damage = FileIn(f"{ACCEPTED}/damage.json")
    """Which state of the splat was found not to be what was accepted, though its size and time are."""

    def accepted(self, number: int) -> Path:
        """Return where an accepted record is made: which attempt's splat is the product; the newest counts."""
        return Path(f"{self.path}/{ACCEPTED}/{number}.json")

    def newest_accepted(self) -> int:
        """Return the number of the newest accepted record; 0 if there is none."""
        return max(numbers_in(f"{self.path}/{ACCEPTED}", suffix=".json"), default=0)

    def read_result(self) -> Result | None:
        """Return the manifest of the product; None if there is none, or no JSON object.

        result.json and splat.ply are made from the newest accepted record. Where they are behind it, it counts.
        """
        made, newest = Result.read(self.result), self.newest_accepted()
        if made is not None and made.accepted >= newest:
            return made
        record = Result.read(self.accepted(newest)) if newest else None
        return made if record is None else replace(record.with_fields(accepted=newest), is_ahead=True)

    def splat_of(self, result: Result) -> Path:
        """Return where the splat of its manifest lies: splat.ply, or its attempt's where that is behind."""
        return self.path / result.attempt / SPLAT if result.is_ahead else self.splat

    def accepted_splat(self) -> tuple[Path, str]:
        """Return the splat that is accepted, wherever it lies, and its hash, which is empty if there is none."""
        result = self.read_result()
        splat = self.splat_of(result) if result else self.splat
        return splat, result.sha256 if result and splat.exists() else ""

    def files(self) -> list[str]:
        """Return the names of what lies here; none if there is no folder."""
        return names_in(f"{self.path}")

    def attempts(self) -> list[AttemptFolder]:
        """Return the folders of all attempts, first to last."""
        numbers = [name for name in self.files() if attempt_number(name)]
        return [AttemptFolder(self.path / name) for name in sorted(numbers, key=attempt_number)]

    def attempt(self, number: int) -> AttemptFolder:
        """Return the folder of an attempt."""
        return AttemptFolder(self.path / f"{ATTEMPT_PREFIX}{number:02d}")

    def latest(self, files: Collection[str]) -> AttemptFolder | None:
        """Return the folder of the last attempt among `files`, if there is one."""
        name = max(files, key=attempt_number, default="")
        return AttemptFolder(self.path / name) if attempt_number(name) else None

    def is_accepted(self, files: Container[str]) -> bool:
        """Return whether a product and its manifest are among `files`."""
        return (SPLAT in files and RESULT in files) or (ACCEPTED in files and self.newest_accepted() > 0)

    def new_attempt(self) -> AttemptFolder:
        """Make the folder of the next attempt; no number is used twice, also by processes that run at once."""
        number = latest_number(self.files())
        while True:
            number += 1
            folder = self.attempt(number)
            with contextlib.suppress(FileExistsError):
                folder.path.mkdir(parents=True)
                return folder


def is_standby_only(folder: AttemptFolder) -> bool:
    """Return whether an attempt only ever stood by: it counts for nothing, and its folder may go."""
    job = folder.read_job()
    return job is not None and job.standby and not folder.go.exists()


MERGE = "merge.json"


@dataclass(frozen=True)
class MergedFiles:
    """A merged splat, and beside it what it was made of."""

    splat: Path
    record: Path

    @staticmethod
    def at(splat: Path) -> MergedFiles:
        """Return the files of a splat that is merged to a chosen place."""
        return MergedFiles(splat, splat.with_name(f"{splat.stem}.{MERGE}"))

    def read(self) -> Merge | None:
        """Return what the splat was made of; None if unknown, or a file of another size stands there by now."""
        from splatbatch.output.records.merge import Merge  # of which `status` knows nothing

        found, now = Merge.read(self.record), file_fact(self.splat)
        # told apart by its size and its time or, where that has moved, by `damage`
        is_of_now = found and found.bytes == now.num_bytes and (found.mtime_ns == now.mtime_ns or found.sha256)
        return found if is_of_now else None

    def damage(self, merged: Merge, facts: FileFacts | None = None) -> str:
        """Say what of the splat is not as it was merged, every byte considered; empty if all is.

        Args:
            merged: what `read` has returned.
            facts: what is known of files, and whether more may be read.
        """
        facts = facts or FileFacts()
        content = facts.sha256(str(self.splat))
        if content == merged.sha256 or not merged.sha256 or not (content or facts.reads):
            return ""
        from splatbatch.splats.merge import WrittenPart, damaged_parts

        parts = (WrittenPart(one.patch, one.start, one.num_gaussians, 0, {}, one.rows_sha256) for one in merged.parts)
        damaged = damaged_parts(self.splat, parts) if facts.reads else ()
        what = f"the rows of {', '.join(damaged)} are" if damaged else "it is"
        return f"{self.splat}: damaged on disk: {what} not {'those that were' if damaged else 'what was'} merged"


@dataclass(frozen=True)
class SceneFolder(SplatFolder):
    """What lies in the output folder for the whole scene, as merged from its patches."""

    merge = FileIn(MERGE)
    """What the splat was merged from."""
    evaluation = FileIn("evaluation.json")
    """How good it is; `evaluate` copies it here from its attempt."""

    def evaluation_of(self, splat: Path) -> Path:
        """Return where the evaluation of a splat goes: of another one than the scene's own, under a name of its own."""
        name = "evaluation" if splat.resolve() == self.splat.resolve() else f"evaluation-{splat.stem}"
        return self.path / f"{name}.json"

    def read_evaluation(self, splat: Path | None = None) -> SceneEvaluation | None:
        """Return how good the scene, or another splat, was found to be; None if it was not measured."""
        from splatbatch.output.records.evaluation import SceneEvaluation  # of which `status` knows nothing

        return SceneEvaluation.read(self.evaluation_of(splat or self.splat))

    @property
    def evaluating(self) -> PatchFolder:
        """The attempts at measuring it."""
        return PatchFolder(self.path / "evaluating")

    @property
    def merged(self) -> MergedFiles:
        """The merged splat and what it was made of."""
        return MergedFiles(self.splat, self.merge)
