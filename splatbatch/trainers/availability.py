"""Checks whether a trainer can run on this machine, without importing or starting anything."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from splatbatch.config.trainers.programs import Program, names_in

OUR_PACKAGES = ("torch", "gsplat", "pycolmap")


def missing(program: Program | None) -> tuple[str, ...]:
    """Return what a trainer lacks on this machine, as messages; empty if nothing is missing.

    If the working folder is missing, only that is reported.

    Commands are looked up on PATH, Python packages by their specification. Nothing is started or imported.

    Args:
        program: the external program; None: the builtin trainer.
    """
    if program is None:
        lacking = [name for name in OUR_PACKAGES if importlib.util.find_spec(name) is None]
        return tuple(f"the Python package {name} is not importable" for name in lacking)
    folder = program.working_folder
    if folder is not None and not folder.is_dir():
        return (f"working_folder {folder}: no such folder",)
    commands = [command for command in (program.command, program.artifact.export) if command]
    return tuple(dict.fromkeys(lack for command in commands for lack in _missing_of(command, program.env, folder)))


def _missing_of(command: tuple[str, ...], env: Mapping[str, object], folder: Path | None) -> Iterator[str]:
    """Yield what is missing of the program and the scripts of a command; words with placeholders are passed over."""
    program, scripts = command[0], [word for word in command[1:] if word.endswith(".py")]
    if "/" not in program and not names_in([program]):
        if shutil.which(program, path=str(env.get("PATH", os.environ.get("PATH", "")))) is None:
            yield f"{program}: not found on PATH"
    else:
        scripts.insert(0, program)
    for word in (word for word in scripts if not names_in([word])):
        if folder is None and not Path(word).is_absolute():  # the program begins in its output folder, which is empty
            yield f"{word}: a relative path needs working_folder, which is not set in the YAML"
        elif not os.access((folder or Path()) / word, os.X_OK if word is program else os.F_OK):
            what = "executable" if word is program else "file"
            yield f"{word}: no such {what} in {folder}" if folder else f"{word}: no such {what}"
