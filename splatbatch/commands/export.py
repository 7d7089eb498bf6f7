"""`export`: the accepted splats, where somebody else wants them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from splatbatch.batch.batch import open_batch
from splatbatch.commands.output import print_json
from splatbatch.errors import ConfigError, OutputError
from splatbatch.outcome import Unfit
from splatbatch.splats import check_splat
from splatbatch.splats.export import Cut, export_splat

SUFFIX = ".ply"


def export(config: Path | None, names: Sequence[str], to: Path | None, cut: Cut, *, as_json: bool) -> None:
    """Write the splats of named patches, or of all that are trained, as PLY files.

    Raises:
        ConfigError: one file is named for several splats.
        OutputError: a named patch has no splat, none is trained, or one cannot be written.
    """
    batch = open_batch(config, names)
    splats = {patch.name: batch.output.patch(patch.name).splat for patch in batch.patches}
    whole = {name: path for name, path in splats.items() if not isinstance(check_splat(path), Unfit)}
    if missing := [name for name in (splats if names or not whole else ()) if name not in whole]:
        raise OutputError(f"{', '.join(missing)}: not trained yet", "Train first: splatbatch train.")
    target = to or batch.output.path / "export"
    if target.suffix == SUFFIX and len(whole) != 1:
        raise ConfigError(f"--to {target}: one file for {len(whole)} splats", "Name a folder, or one patch.")
    rows = []
    for name, path in whole.items():
        file = target if target.suffix == SUFFIX else target / f"{name}{SUFFIX}"
        splat = export_splat(path, file, cut)
        size = file.stat().st_size
        rows.append({"patch": name, "file": str(file), "num_gaussians": splat.num_gaussians, "bytes": size})
        if not as_json:
            typer.echo(f"{name}: {file}: {splat.num_gaussians:,} Gaussians, {size / 1e6:.1f} MB")
    if as_json:
        print_json({"splats": rows})
