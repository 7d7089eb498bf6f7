"""Finds and calls the npm program @playcanvas/splat-transform, which is installed into the cache folder on first use.

Only the version VERSION is used, even if another is installed: an earlier one takes a truncated PLY for a whole one.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from splatbatch.caches import own_cache
from splatbatch.errors import OutputError, TrainerError
from splatbatch.machine.limited_program import USUAL, CallBounds, ProgramEnd, run_bounded

PACKAGE, VERSION = "@playcanvas/splat-transform", "3.7.0"
FOLDER = f"splat-transform-{VERSION}"
PROGRAM = f"node_modules/{PACKAGE}/bin/cli.mjs"
PATIENCE = ("--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-timeout=60000")
"""Options of npm that keep its retries short if there is no network: one retry, 60 s for each answer."""
INSTALL = ("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--engine-strict=false", *PATIENCE)
INSTALLING = CallBounds(wall_s=600.0, memory_mib=4096)
ON_CPU = ("-w", "-q", "-g", "cpu")
"""Options of every call: overwrite files, print only errors, use the CPU; without a GPU the tool fails otherwise."""
HINT = "Install nodejs and npm (apt-get install nodejs npm); formats ply, compressed, sog and tiles need neither."


@dataclass(frozen=True)
class SplatTransform:
    """An installed splat-transform, and the limits of each call."""

    node: str
    """Path of the program node, which runs JavaScript."""
    program: Path
    """Path of splat-transform's script."""
    bounds: CallBounds = USUAL
    """Most time in s and memory in MiB that each call may take; beyond these the program is ended."""

    def run(self, arguments: Sequence[str], wall_s: float | None = None) -> ProgramEnd:
        """Call splat-transform, wait for its end, and return how it ended; a failure of the program raises nothing.

        Args:
            arguments: arguments of the call; options for the CPU and against questions are added.
            wall_s: time limit in seconds if shorter than that of `bounds`; None: that of `bounds`.

        Raises:
            OutputError: the program cannot be started.
        """
        bounds = CallBounds(min(wall_s or self.bounds.wall_s, self.bounds.wall_s), self.bounds.memory_mib)
        heap = f"--max-old-space-size={self.bounds.memory_mib}"
        try:
            return run_bounded([self.node, heap, str(self.program), *ON_CPU, *arguments], bounds)
        except OSError as error:
            raise OutputError(f"{self.node}: cannot be started ({error.strerror})", HINT) from error

    def must(self, arguments: Sequence[str], what: str) -> None:
        """Call splat-transform and wait for its end.

        Args:
            arguments: arguments of the call.
            what: what the call does, for an error message.

        Raises:
            OutputError: the program cannot be started, fails, or exceeds its limits.
        """
        if not (ended := self.run(arguments)).is_well:
            raise self.failed(ended, what)

    def failed(self, ended: ProgramEnd, what: str) -> OutputError:
        """Return the error to raise for a call that failed.

        Args:
            ended: how the program ended.
            what: what the call does, for the message.
        """
        hint = (
            "Publish single patches instead of the scene, or cut the scene into smaller patches."
            if ended.exceeded
            else ""
        )
        return OutputError(f"{what}: splat-transform {ended.why(self.bounds)}", hint)


def find_tool(tell: Callable[[str], None] = lambda _: None) -> SplatTransform:
    """Return splat-transform of VERSION; install it first if the cache folder does not have this version.

    Args:
        tell: called with a message before an installation.

    Raises:
        TrainerError: node is not installed, or npm is not and the tool has to be installed.
        OutputError: the installation fails or yields another version, or the cache folder cannot be written.
    """
    node = shutil.which("node")
    if node is None:
        raise TrainerError("node is not installed, and splat-transform needs it", HINT)
    place = own_cache() / FOLDER
    if version_in(place) != VERSION:
        tell(f"installing {PACKAGE} {VERSION} into {place}: about 220 MB, only this once")
        _install(place)
    return SplatTransform(node, place / PROGRAM)


def version_in(place: Path) -> str:
    """Return the version of splat-transform installed in a folder, by its package.json, as "3.7.0".

    Empty if there is no complete installation, or its package.json cannot be read.
    """
    try:
        said = json.loads((place / PROGRAM).parents[1].joinpath("package.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    return str(said.get("version", "")) if isinstance(said, dict) and (place / PROGRAM).is_file() else ""


def _install(place: Path) -> None:
    """Install the tool in a temporary folder, then move it to `place` in one step.

    If another process has installed this version meanwhile, that installation is kept.

    Raises:
        TrainerError: npm is not installed.
        OutputError: npm fails, installs another version, or the cache folder cannot be written.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise TrainerError("npm is not installed, and splat-transform is not in the cache folder", HINT)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{FOLDER}.") as folder:
            aside = Path(folder) / FOLDER
            aside.mkdir()
            for name in ("package.json", "package-lock.json"):
                (aside / name).write_bytes(files("splatbatch.publish").joinpath("npm", name).read_bytes())
            ended = run_bounded([npm, *INSTALL], INSTALLING, folder=aside)
            if not ended.is_well or version_in(aside) != VERSION:
                why = (
                    ended.why(INSTALLING)
                    if not ended.is_well
                    else f"version {version_in(aside) or 'unknown'} was installed"
                )
                raise OutputError(
                    f"npm: {PACKAGE} {VERSION} cannot be installed: {why}", "Check the connection to npm's registry."
                )
            if place.exists() and version_in(place) != VERSION:
                shutil.rmtree(place)
            if not place.exists():
                aside.rename(place)
    except OSError as error:
        if version_in(place) != VERSION:
            raise OutputError(
                f"{place}: cannot be written ({error.strerror})",
                "Set SPLATBATCH_CACHE to a folder that can be written.",
            ) from error
