"""@playcanvas/splat-transform: found, or installed into the cache folder when it is first asked for; one version alone.

An earlier version takes a cut PLY for a whole one, so no other is used, wherever it lies.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from splatbatch.caches import cache_home
from splatbatch.errors import OutputError, TrainerError
from splatbatch.machine.limited_program import USUAL, CallBounds, ProgramEnd, run_bounded

PACKAGE, VERSION = "@playcanvas/splat-transform", "3.7.0"
FOLDER = f"splat-transform-{VERSION}"
PROGRAM = f"node_modules/{PACKAGE}/bin/cli.mjs"
PATIENCE = ("--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-timeout=60000")
"""Without a network npm is to say so within seconds."""
INSTALL = ("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--engine-strict=false", *PATIENCE)
INSTALLING = CallBounds(wall_s=600.0, memory_mib=4096)
ON_CPU = ("-w", "-q", "-g", "cpu")
"""Overwrite (we name new files), say errors alone, and use no GPU: without one it fails unless it is told."""
HINT = "Install nodejs and npm (apt-get install nodejs npm); ply, compressed, sog and tiles need neither."


@dataclass(frozen=True)
class SplatTransform:
    """The tool, ready to be called."""

    node: str
    program: Path
    bounds: CallBounds = USUAL
    """Of each call."""
    tick: Callable[[], None] = lambda: None

    def run(self, arguments: Sequence[str], wall_s: float | None = None) -> ProgramEnd:
        """Call the tool.

        Raises:
            OutputError: it cannot be started.
        """
        bounds = CallBounds(min(wall_s or self.bounds.wall_s, self.bounds.wall_s), self.bounds.memory_mib)
        heap = f"--max-old-space-size={self.bounds.memory_mib}"
        try:
            return run_bounded([self.node, heap, str(self.program), *ON_CPU, *arguments], bounds, tick=self.tick)
        except OSError as error:
            raise OutputError(f"{self.node}: cannot be started ({error.strerror})", HINT) from error

    def must(self, arguments: Sequence[str], what: str) -> None:
        """Call the tool, which has to succeed.

        Raises:
            OutputError: it does not.
        """
        if not (ended := self.run(arguments)).is_well:
            raise self.failed(ended, what)

    def failed(self, ended: ProgramEnd, what: str) -> OutputError:
        """Return what is said of a call that did not end well."""
        hint = "Publish patches instead of the scene, or smaller ones." if ended.exceeded else ""
        return OutputError(f"{what}: splat-transform {ended.why(self.bounds)}", hint)


def cache_folder() -> Path:
    """Return where what is installed on demand lies."""
    return cache_home() / "splatbatch"


def find_tool(bounds: CallBounds = USUAL, tell: Callable[[str], None] = lambda _: None) -> SplatTransform:
    """Return the tool, installed first where it is not.

    Raises:
        TrainerError: there is no node, or no npm to install it with.
        OutputError: it cannot be installed, or is another version afterwards.
    """
    node = shutil.which("node")
    if node is None:
        raise TrainerError("node: is not installed, and splat-transform needs it", HINT)
    place = cache_folder() / FOLDER
    if version_in(place) != VERSION:
        tell(f"installing {PACKAGE} {VERSION} into {place}: about 220 MB, once")
        _install(place)
    return SplatTransform(node, place / PROGRAM, bounds)


def version_in(place: Path) -> str:
    """Return which version lies in a folder, as its own package.json says; empty: none that is whole."""
    try:
        said = json.loads((place / PROGRAM).parents[1].joinpath("package.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    return str(said.get("version", "")) if isinstance(said, dict) and (place / PROGRAM).is_file() else ""


def _install(place: Path) -> None:
    """Install the tool beside its place, and put it there whole; who comes second takes what the first has put there.

    Raises:
        TrainerError: there is no npm.
        OutputError: npm fails, or what it installs is another version.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise TrainerError("npm: is not installed, and splat-transform is not in the cache folder", HINT)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{FOLDER}.") as folder:
            aside = Path(folder) / FOLDER
            aside.mkdir()
            for name in ("package.json", "package-lock.json"):
                (aside / name).write_bytes(files("splatbatch.publish").joinpath("npm", name).read_bytes())
            ended = run_bounded([npm, *INSTALL], INSTALLING, folder=aside)
            if not ended.is_well or version_in(aside) != VERSION:
                why = ended.why(INSTALLING) if not ended.is_well else f"it is version {version_in(aside) or 'unknown'}"
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
                f"{place}: cannot be written ({error.strerror})", "Set XDG_CACHE_HOME to a folder that can."
            ) from error
