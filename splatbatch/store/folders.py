"""The folder of a patch: its product, the accepted records that say which that is, and its attempts."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from splatbatch.files import read_json
from splatbatch.store.attempt_folder import ATTEMPT_PREFIX, AttemptFolder, FileIn
from splatbatch.store.claims.once import numbers_in
from splatbatch.store.records.result import Result

if TYPE_CHECKING:
    from splatbatch.store.records.quality.inspection import Inspection

SPLAT, RESULT, ACCEPTED = "splat.ply", "result.json", "accepted"
BACKDROP = "backdrop"
"""The task, and the folder, of the whole scene that is drawn behind its patches."""
_PREFIX_LENGTH = len(ATTEMPT_PREFIX)


def _number(name: str) -> int:
    """Return 1 for attempt-01; 0 for what is no attempt."""
    is_attempt = name.startswith(ATTEMPT_PREFIX) and name[_PREFIX_LENGTH:].isdecimal()
    return int(name[_PREFIX_LENGTH:]) if is_attempt else 0


def latest_number(files: Iterable[str]) -> int:
    """Return the number of the last attempt among the names of what lies in a patch's folder; 0 if there is none."""
    return max(map(_number, files), default=0)


def names_in(folder: str) -> list[str]:
    """Return the names of what lies in a folder; none if there is none."""
    try:
        return os.listdir(folder)  # noqa: PTH208 - names alone are wanted, of thousands of folders
    except OSError:
        return []


@dataclass(frozen=True)
class PatchFolder:
    """What lies in the output folder for one patch."""

    path: Path

    splat = FileIn(SPLAT)
    """The accepted product."""
    result = FileIn(RESULT)
    """Its manifest; written after the splat, so that a manifest never stands without its product."""
    preview = FileIn("preview.compressed.ply")
    """The report: a few MB of the splat, to look at in the page."""

    inspection = FileIn("inspection.json")
    """How good the product is beyond PSNR; `inspect` copies it here from its attempt."""
    certificate = FileIn("certificate.json")
    """Grade, figures and hashes, for whoever is given the product."""

    @property
    def inspecting(self) -> PatchFolder:
        """The attempts at inspecting the product."""
        return PatchFolder(self.path / "inspecting")

    def read_inspection(self) -> Inspection | None:
        """Return how good the product was found to be; None if nobody has inspected it."""
        from splatbatch.store.records.quality.inspection import Inspection  # of which `status` knows nothing

        record = read_json(self.inspection)
        return None if record is None else Inspection.from_record(record)

    def accepted(self, number: int) -> Path:
        """Return where an accepted record is made: which attempt's splat is the product; the newest counts."""
        return Path(f"{self.path}/{ACCEPTED}/{number}.json")

    @property
    def damage(self) -> Path:
        """Which state of the splat was found not to be what was accepted, though its size and time are."""
        return Path(f"{self.path}/{ACCEPTED}/damage.json")

    def newest_accepted(self) -> int:
        """Return the number of the newest accepted record; 0 if an earlier version accepted, or nobody did."""
        return max(numbers_in(f"{self.path}/{ACCEPTED}", suffix=".json"), default=0)

    def read_result(self) -> Result | None:
        """Return the manifest of the product; None if there is none, or no JSON object.

        result.json and splat.ply are made from the newest accepted record. Where they are behind it, it counts.
        """
        made, newest = Result.read(self.result), self.newest_accepted()
        if made is not None and made.accepted >= newest:
            return made
        record = Result.read(self.accepted(newest)) if newest else None
        return made if record is None else record.ahead_of_its_files(newest)

    def splat_of(self, result: Result) -> Path:
        """Return where the splat of its manifest lies: splat.ply, or its attempt's where that is behind."""
        return self.path / result.attempt / SPLAT if result.is_ahead else self.splat

    def files(self) -> list[str]:
        """Return the names of what lies here; none if there is no folder."""
        return names_in(f"{self.path}")

    def attempts(self) -> list[AttemptFolder]:
        """Return the folders of all attempts, first to last."""
        numbers = [name for name in self.files() if _number(name)]
        return [AttemptFolder(self.path / name) for name in sorted(numbers, key=_number)]

    def latest(self, files: Collection[str]) -> AttemptFolder | None:
        """Return the folder of the last attempt among `files`, if there is one."""
        number = latest_number(files)
        name = next((name for name in files if _number(name) == number), "") if number else ""
        return AttemptFolder(self.path / name) if name else None

    def is_accepted(self, files: Container[str]) -> bool:
        """Return whether a product and its manifest are among `files`."""
        return (SPLAT in files and RESULT in files) or (ACCEPTED in files and self.newest_accepted() > 0)

    def new_attempt(self) -> AttemptFolder:
        """Make the folder of the next attempt; a number is never used twice, whoever makes one at the same time."""
        number = latest_number(self.files())
        while True:
            number += 1
            folder = AttemptFolder(self.path / f"{ATTEMPT_PREFIX}{number:02d}")
            with contextlib.suppress(FileExistsError):
                folder.path.mkdir(parents=True)
                return folder


def accepted_backdrop(folder: Path) -> tuple[Path, str]:
    """Return the splat of the backdrop that is accepted in a folder, and its hash, which is empty if there is none."""
    place = PatchFolder(folder)
    result = place.read_result()
    splat = place.splat_of(result) if result else place.splat
    return splat, result.sha256 if result and splat.exists() else ""


def backdrop_sha256(folder: Path | None) -> str:
    """Return the hash of the backdrop that is accepted in a folder; empty if there is none."""
    return accepted_backdrop(folder)[1] if folder else ""


def never_went(folder: AttemptFolder) -> bool:
    """Return whether an attempt only ever stood by: it counts for nothing, and its folder may go."""
    job = folder.read_job()
    return job is not None and job.standby and not folder.go.exists()
