"""The folders of a patch and of the merged scene: which file lies where, and how each file is read."""

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
"""Name of the small copy of a splat that the report shows; the file lies beside the splat."""
BACKDROP = "backdrop"
"""Name of the task, and of the folder, that trains the backdrop of a cut scene."""


def latest_number(files: Iterable[str]) -> int:
    """Return the number of the last attempt among the names of the files in a patch's folder; 0 if there is none."""
    return max(map(attempt_number, files), default=0)


@dataclass(frozen=True)
class SplatFolder:
    """The folder of one splat within the output folder: of a patch, or of the whole scene. Its files may be absent."""

    path: Path

    splat = FileIn(SPLAT)
    """The accepted splat of a patch, or the merged splat of the scene."""
    inspection = FileIn("inspection.json")
    """Figures of the splat beyond PSNR; `inspect` copies this file here from the attempt that measured them."""
    certificate = FileIn("certificate.json")
    """Grade, figures and hashes of the splat, to be handed over with the splat."""

    @property
    def inspecting(self) -> PatchFolder:
        """The folder of the attempts to inspect this splat."""
        return PatchFolder(self.path / "inspecting")

    def read_inspection(self) -> Inspection | None:
        """Return the inspection of this splat; None if it was not inspected, or inspection.json cannot be read as JSON.

        Raises:
            LaterFormatError: a later version wrote the inspection.
        """
        return Inspection.read(self.inspection)


@dataclass(frozen=True)
class PatchFolder(SplatFolder):
    """The folder of one patch within the output folder: its accepted splat, its records and its attempts."""

    result = FileIn(RESULT)
    """Manifest of the accepted splat; written after the splat, so that a crash never leaves it without the splat."""
    preview = FileIn(PREVIEW)
    """Small copy of the splat, a few MB, which the report makes and shows."""
    damage = FileIn(f"{ACCEPTED}/damage.json")
    """Size and time of a splat file whose content was found damaged, although size and time are those accepted."""

    def accepted(self, number: int) -> Path:
        """Return the path of the accepted record with this number, a file that names the attempt of an accepted splat.

        The record with the highest number counts. The file may be absent.
        """
        return Path(f"{self.path}/{ACCEPTED}/{number}.json")

    def newest_accepted(self) -> int:
        """Return the number of the newest accepted record, a file accepted/NUMBER.json; 0 if there is none."""
        return max(numbers_in(f"{self.path}/{ACCEPTED}", suffix=".json"), default=0)

    def read_result(self) -> Result | None:
        """Return the manifest of the accepted splat; None if there is none, or it cannot be read as a JSON object.

        result.json and splat.ply are made from the newest accepted record (accepted/NUMBER.json). Where they are
        missing or older than that record, and it can be read, the record is returned, with `is_ahead`.

        Raises:
            LaterFormatError: a later version wrote the manifest.
        """
        made, newest = Result.read(self.result), self.newest_accepted()
        if made is not None and made.accepted >= newest:
            return made
        record = Result.read(self.accepted(newest)) if newest else None
        return made if record is None else replace(record.with_fields(accepted=newest), is_ahead=True)

    def splat_of(self, result: Result) -> Path:
        """Return the path of a manifest's splat: splat.ply, or the attempt's splat if the manifest `is_ahead`."""
        return self.path / result.attempt / SPLAT if result.is_ahead else self.splat

    def accepted_splat(self) -> tuple[Path, str]:
        """Return the path of the accepted splat, and its SHA-256.

        The hash is "" if there is no such splat, or no readable manifest that names it.

        Raises:
            LaterFormatError: a later version wrote the manifest.
        """
        result = self.read_result()
        splat = self.splat_of(result) if result else self.splat
        return splat, result.sha256 if result and splat.exists() else ""

    def files(self) -> list[str]:
        """Return the names of all files and folders in this folder, in no order; empty if it cannot be read."""
        return names_in(f"{self.path}")

    def attempts(self) -> list[AttemptFolder]:
        """Return the folders of all attempts, first to last; empty if there are none."""
        numbers = [name for name in self.files() if attempt_number(name)]
        return [AttemptFolder(self.path / name) for name in sorted(numbers, key=attempt_number)]

    def attempt(self, number: int) -> AttemptFolder:
        """Return the folder of the attempt with this number; the folder may not exist."""
        return AttemptFolder(self.path / f"{ATTEMPT_PREFIX}{number:02d}")

    def latest(self, files: Collection[str]) -> AttemptFolder | None:
        """Return the folder of the last attempt among the names `files` in this folder; None if there is none."""
        name = max(files, key=attempt_number, default="")
        return AttemptFolder(self.path / name) if attempt_number(name) else None

    def is_accepted(self, files: Container[str]) -> bool:
        """Return whether the patch has an accepted splat, by the names `files` in its folder.

        Either splat.ply and result.json are among the names, or the folder `accepted` has a record.
        """
        return (SPLAT in files and RESULT in files) or (ACCEPTED in files and self.newest_accepted() > 0)

    def new_attempt(self) -> AttemptFolder:
        """Make the folder of the next attempt and return it.

        No other process gets the same number, even at the same time.

        Raises:
            OSError: the folder cannot be made.
        """
        number = latest_number(self.files())
        while True:
            number += 1
            folder = self.attempt(number)
            with contextlib.suppress(FileExistsError):
                folder.path.mkdir(parents=True)
                return folder


def is_standby_only(folder: AttemptFolder) -> bool:
    """Return whether an attempt was started early, to wait for a GPU, and has got none.

    Once it has ended, its folder may be removed.
    """
    job = folder.read_job()
    return job is not None and job.standby and not folder.go.exists()


MERGE = "merge.json"


@dataclass(frozen=True)
class MergedFiles:
    """The two files of a merged splat: the splat, and the record of its parts (merge.json)."""

    splat: Path
    record: Path

    @staticmethod
    def at(splat: Path) -> MergedFiles:
        """Return the files of a splat that is merged to a path of the user's choice: NAME.ply and NAME.merge.json."""
        return MergedFiles(splat, splat.with_name(f"{splat.stem}.{MERGE}"))

    def read(self) -> Merge | None:
        """Return the record of the splat; None if there is none that can be read, or it is of another splat.

        It is of another one if the file now has another size or, where the record has no hash, another time.

        Raises:
            LaterFormatError: a later version wrote the record.
        """
        from splatbatch.output.records.merge import Merge  # imported here to keep `status` fast

        found, now = Merge.read(self.record), file_fact(self.splat)
        # told apart by its size and its time or, where that has moved, by `damage`
        is_of_now = found and found.bytes == now.num_bytes and (found.mtime_ns == now.mtime_ns or found.sha256)
        return found if is_of_now else None

    def damage(self, merged: Merge, facts: FileFacts | None = None) -> str:
        """Return in words which parts of the splat have changed since the merge, by content; "" if none has.

        Also "" if the record has no hash of the splat, or if the splat may not be read.

        Args:
            merged: record returned by `read`.
            facts: known hashes of files, and whether more files may be read; None: none are known, all may be read.
        """
        facts = facts or FileFacts()
        content = facts.sha256(str(self.splat))
        if content == merged.sha256 or not merged.sha256 or not (content or facts.reads):
            return ""
        from splatbatch.splats.merge import WrittenPart, damaged_parts

        parts = (WrittenPart(one.patch, one.start, one.num_gaussians, 0, {}, one.rows_sha256) for one in merged.parts)
        damaged = damaged_parts(self.splat, parts) if facts.reads else ()
        what = f"the Gaussians of {', '.join(damaged)} have" if damaged else "the file has"
        return f"{self.splat}: damaged on disk: {what} changed since the merge"


@dataclass(frozen=True)
class SceneFolder(SplatFolder):
    """The folder of the whole scene, merged from its patches, within the output folder. Its files may be absent."""

    merge = FileIn(MERGE)
    """Record of the parts that the splat was merged from."""
    evaluation = FileIn("evaluation.json")
    """Figures of the merged scene; `evaluate` copies this file here from the attempt that measured them."""

    def evaluation_of(self, splat: Path) -> Path:
        """Return the path of a splat's evaluation: evaluation.json for the scene's own, else evaluation-NAME.json."""
        name = "evaluation" if splat.resolve() == self.splat.resolve() else f"evaluation-{splat.stem}"
        return self.path / f"{name}.json"

    def read_evaluation(self, splat: Path | None = None) -> SceneEvaluation | None:
        """Return the evaluation of a splat; None if it was not measured, or its file cannot be read as a JSON object.

        Args:
            splat: path of the splat; None: the scene's own.

        Raises:
            LaterFormatError: a later version wrote the evaluation.
        """
        from splatbatch.output.records.evaluation import SceneEvaluation  # imported here to keep `status` fast

        return SceneEvaluation.read(self.evaluation_of(splat or self.splat))

    @property
    def evaluating(self) -> PatchFolder:
        """The folder of the attempts to measure the merged scene."""
        return PatchFolder(self.path / "evaluating")

    @property
    def merged(self) -> MergedFiles:
        """The merged splat of the scene and its record, which may be absent."""
        return MergedFiles(self.splat, self.merge)
