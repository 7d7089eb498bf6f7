"""`export`: the accepted splats, where somebody else wants them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from splatbatch.commands.output import print_json
from splatbatch.errors import ConfigError, OutputError
from splatbatch.files import Record
from splatbatch.outcome import Rejected
from splatbatch.plain_text import one_line
from splatbatch.splats import check_splat
from splatbatch.splats.export import ChangedOnDisk, Cut, Place, Source, export_splat
from splatbatch.store.results import note_damage, noting_damage
from splatbatch.tasks.batch import Batch, open_batch

SUFFIX = ".ply"
OTHER_FORMAT = re.compile(r"\.compressed\.ply|\.[a-z][a-z0-9]{1,7}", re.IGNORECASE)
"""How the name of a file ends; a folder's may end with a date or a version."""


@dataclass(frozen=True)
class To:
    """Where exports are wanted."""

    path: Path | None
    """A folder, or a file for the only splat; None: the output folder's own place for them."""
    is_forced: bool = False
    """Files of somebody else may be overwritten."""


def export(config: Path | None, names: Sequence[str], to: To, cut: Cut, *, as_json: bool) -> None:
    """Write the splats of named patches, or of all that are trained, as PLY files.

    Raises:
        ConfigError: one file is named for several splats, or one of a format that is not written here.
        OutputError: a named patch has no splat, none is trained, one was changed since, or cannot be written there.
    """
    batch = open_batch(config, names)
    sources, refused = _sources(batch, is_named=bool(names))
    folder = batch.output.path / "export"
    files = _files(to.path or folder, list(sources))
    place = Place(batch.output.path, folder, to.is_forced)
    if to.path:
        batch.see_apart("--to", to.path, next(iter(files.values()), to.path).parent)
    for name, file in files.items():  # before the first is written
        place.check(file, sources[name].path)
    rows = []
    for name, file in files.items():
        try:
            with noting_damage(batch.output):
                rows.append(_export(sources[name], file, cut, is_told=not as_json))
        except OutputError as error:
            refused.append(error)
    if as_json:
        print_json({"splats": rows})
    if refused:
        raise OutputError("; ".join(error.message for error in refused), refused[0].hint)


def _sources(batch: Batch, *, is_named: bool) -> tuple[dict[str, Source], list[OutputError]]:
    """Return the splats that can be exported by patch, and what is wrong with those that cannot any more.

    Raises:
        OutputError: one that was asked for was never trained, or none was.
    """
    sources: dict[str, Source] = {}
    missing: list[str] = []
    refused: list[OutputError] = []
    for name in batch.names:
        folder = batch.output.patch(name)
        result = folder.read_result()
        path = folder.splat_of(result) if result else folder.splat
        checked = check_splat(path)
        if not isinstance(checked, Rejected):
            sources[name] = Source(path, name, result.sha256 if result else "")
        elif result is not None:
            note_damage(folder, result)
            refused.append(ChangedOnDisk(name, checked.reason))
        else:
            missing.append(name)
    if missing and (is_named or not (sources or refused)):
        raise OutputError(f"{', '.join(missing)}: not trained yet", "Train first: splatbatch train.")
    return sources, refused


def _files(to: Path, names: Sequence[str]) -> dict[str, Path]:
    """Return the file of each patch.

    Raises:
        ConfigError: `to` is one file for several splats, or of a format that is not written here.
    """
    other = OTHER_FORMAT.fullmatch("".join(to.suffixes[-2:])) or OTHER_FORMAT.fullmatch(to.suffix)
    is_file = to.suffix.lower() == SUFFIX and not to.is_dir()
    if other and not to.is_dir() and other[0].lower() != SUFFIX:
        hint = "For a folder of that name: make it first."
        raise ConfigError(f"--to {to}: {other[0]} cannot be written; can be written: {SUFFIX}", hint)
    if is_file and len(names) > 1:
        raise ConfigError(f"--to {to}: one file for {len(names)} splats", "Name a folder, or one patch.")
    return {name: to if is_file else to / f"{name}{SUFFIX}" for name in names}


def _export(source: Source, file: Path, cut: Cut, *, is_told: bool) -> Record:
    splat = export_splat(source, file, cut)
    size = file.stat().st_size
    if is_told:
        typer.echo(one_line(f"{source.name}: {file}: {splat.num_gaussians:,} Gaussians, {size / 1e6:.1f} MB"))
    return {"patch": source.name, "file": str(file), "num_gaussians": splat.num_gaussians, "bytes": size}
