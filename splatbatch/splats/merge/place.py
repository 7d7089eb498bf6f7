"""Where a merged splat may go: its own folder of the output, or elsewhere, where nothing of somebody else is lost."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from splatbatch.errors import ConfigError, OutputError
from splatbatch.files import open_regular
from splatbatch.splats.merge.write import MERGED
from splatbatch.splats.ply import MOST_HEADER_BYTES

SUFFIX = ".ply"


def check_place(target: Path, output: Path) -> None:
    """See that a merged splat that is wanted outside its own folder may be written to a path.

    Raises:
        ConfigError: it is no name of a PLY file.
        OutputError: it lies in the output folder, or is a file that no merge wrote.
    """
    if target.suffix.lower() != SUFFIX or target.is_dir():
        raise ConfigError(f"--out {target}: not the name of a PLY file", "Name a file, as scene.ply.")
    if target.parent.resolve().is_relative_to(output.resolve()):
        hint = "Name a place elsewhere, or leave --out out."
        raise OutputError(f"--out {target}: lies in the output folder, among what the batch has written", hint)
    if target.is_symlink() or (target.exists() and not _is_merged(target)):
        raise OutputError(f"--out {target}: is there already, and no merge wrote it", "Name another, or remove it.")


def _is_merged(path: Path) -> bool:
    """Return whether a file is a splat that a merge has written."""
    with suppress(OSError), open_regular(path) as file:
        return f"\ncomment {MERGED} ".encode() in file.read(MOST_HEADER_BYTES).partition(b"end_header\n")[0]
    return False
