"""The folder of the whole scene: its merged splat, what that was made of, and how good it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from splatbatch.files import read_json
from splatbatch.identity import FileFacts, file_fact
from splatbatch.store.attempt_folder import FileIn
from splatbatch.store.folders.patch import SPLAT, PatchFolder

if TYPE_CHECKING:
    from splatbatch.store.records.evaluation import SceneEvaluation
    from splatbatch.store.records.merge import Merge
    from splatbatch.store.records.quality.inspection import Inspection

MERGE = "merge.json"


@dataclass(frozen=True)
class MergedFiles:
    """A merged splat, and beside it what it was made of."""

    splat: Path
    record: Path

    @staticmethod
    def at(splat: Path) -> MergedFiles:
        """Return the files of a splat that is merged to a place of somebody's choice."""
        return MergedFiles(splat, splat.with_name(f"{splat.stem}.{MERGE}"))

    def read(self) -> Merge | None:
        """Return what the splat was made of; None if nobody knows, or a file of another size stands there by now."""
        from splatbatch.store.records.merge import Merge  # of which `status` knows nothing

        record, now = read_json(self.record), file_fact(self.splat)
        found = Merge.from_record(record)
        is_told_apart = found.mtime_ns == now.mtime_ns or found.sha256  # by its time, or by `damage`
        return found if record is not None and found.bytes == now.num_bytes and is_told_apart else None

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
        from splatbatch.splats.merge.ranges import Earlier, Written

        parts = {
            one.key: Written(one.patch, one.start, one.num_gaussians, 0, {}, one.rows_sha256) for one in merged.parts
        }
        damaged = Earlier(self.splat, parts).damaged() if facts.reads else ()
        what = f"the rows of {', '.join(damaged)} are" if damaged else "it is"
        return f"{self.splat}: damaged on disk: {what} not {'those that were' if damaged else 'what was'} merged"


@dataclass(frozen=True)
class SceneFolder:
    """What lies in the output folder for the whole scene, as merged from its patches."""

    path: Path

    splat = FileIn(SPLAT)
    merge = FileIn(MERGE)
    """What the splat was merged from."""
    evaluation = FileIn("evaluation.json")
    """How good it is; `evaluate` copies it here from its attempt."""

    def evaluation_of(self, splat: Path) -> Path:
        """Return where the evaluation of a splat goes: of another one than the scene's own, under a name of its own."""
        name = "evaluation" if splat.resolve() == self.splat.resolve() else f"evaluation-{splat.stem}"
        return self.path / f"{name}.json"

    def read_evaluation(self, splat: Path | None = None) -> SceneEvaluation | None:
        """Return how good the scene, or another splat, was found to be; None if nobody has measured it."""
        from splatbatch.store.records.evaluation import SceneEvaluation  # of which `status` knows nothing

        record = read_json(self.evaluation_of(splat or self.splat))
        return None if record is None else SceneEvaluation.from_record(record)

    inspection = FileIn("inspection.json")
    """How good it is beyond PSNR; `inspect scene` copies it here from its attempt."""

    certificate = FileIn("certificate.json")
    """Grade, figures and hashes, for whoever is given the scene."""

    def read_inspection(self) -> Inspection | None:
        """Return how good the merged splat was found to be; None if nobody has inspected it."""
        from splatbatch.store.records.quality.inspection import Inspection

        record = read_json(self.inspection)
        return None if record is None else Inspection.from_record(record)

    @property
    def inspecting(self) -> PatchFolder:
        """The attempts at inspecting it."""
        return PatchFolder(self.path / "inspecting")

    @property
    def evaluating(self) -> PatchFolder:
        """The attempts at measuring it."""
        return PatchFolder(self.path / "evaluating")

    @property
    def merged(self) -> MergedFiles:
        """The merged splat and what it was made of."""
        return MergedFiles(self.splat, self.merge)
