"""Loss of compression in dB PSNR on held-out photographs: a separate process renders the decoded files."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from splatbatch.errors import OutputError
from splatbatch.files import write_json
from splatbatch.machine.limited_program import USUAL, run_bounded
from splatbatch.output.records.evaluation import Comparison, ComparisonSettings
from splatbatch.output.records.publication import CompressionLoss, PublishedFile, TilesRecord
from splatbatch.publish.formats import TILES
from splatbatch.publish.source import PublishedSplat
from splatbatch.publish.tiles.write import Tiles, key_of_tiles
from splatbatch.tasks.inspection import SCENE

MODULE = "splatbatch.training.formats"
MOST_READ_BACK = 5_000_000
"""Most Gaussians of a splat whose 3D Tiles are measured; a larger splat gets a note instead."""
TOO_MANY = f"more than {MOST_READ_BACK:,} Gaussians: the loss of quality in tiles is not measured"


def measure(
    splat: PublishedSplat, original: Path, decoded: Mapping[str, Path], work: Path
) -> dict[str, CompressionLoss]:
    """Render the original and each decoded file; return the loss of PSNR in dB of each by name.

    Empty if nothing was decoded. A file without figures of the rendering process is left out.

    Args:
        splat: the splat, with the photographs that it is compared with.
        original: PLY before compression.
        decoded: PLY read back from each published file, by name.
        work: existing folder for the settings and the result of the rendering process.

    Raises:
        OutputError: the rendering process cannot be started, fails, or yields no PSNR of the original.
        OSError: the settings cannot be written.
    """
    if not decoded:
        return {}
    told = asdict(splat.views) | {"splats": {"": str(original), **{name: str(path) for name, path in decoded.items()}}}
    settings, result = work / "compare.json", work / "compared.json"
    write_json(settings, ComparisonSettings.from_record(told).to_record())
    try:
        ended = run_bounded([sys.executable, "-m", MODULE, str(settings), str(result)], USUAL)
    except OSError as error:
        raise OutputError(
            f"{splat.name}: the loss of quality by compression cannot be measured ({error})",
            "Publish with --no-measure to leave the measurement out.",
        ) from error
    found = (Comparison.read(result) if ended.is_well else None) or Comparison()
    before = found.splats.get("", {}).get("psnr")
    if before is None:
        raise OutputError(
            f"{splat.name}: the loss of quality by compression could not be measured: {ended.why(USUAL)}",
            "Publish with --no-measure to leave the measurement out.",
        )
    return {
        name: CompressionLoss("", found.num_photos, one["psnr"], round(before - one["psnr"], 3), one["between"])
        for name, one in found.splats.items()
        if name and one.keys() >= {"psnr", "between"}
    }


def measure_tiles(splats: Sequence[PublishedSplat], folder: Tiles, tiled: PublishedFile) -> PublishedFile:
    """Return the record of published 3D Tiles, completed by the loss of each splat and by means over measured splats.

    The loss is of the tiles as read back from their files. A splat is measured again only if its tiles have changed; a
    splat of more than MOST_READ_BACK Gaussians gets a note instead. Nothing is written into publish.json.

    Args:
        splats: the splats whose tiles were published; `tiled` has all their patches.
        folder: folder of the tiles, and the working folder for decoded files.
        tiled: record of the tiles, as publish.json has it.

    Raises:
        OutputError: tiles cannot be read back, or their loss cannot be measured.
        OSError: the settings of the rendering process cannot be written.
        ConfigError: the CRS of the scene is not known, is not usable, or does not fit its place.
        TrainerError: the scene has a CRS, and pyproj is not installed.
    """
    tiles = tiled.tiles or TilesRecord()
    losses, notes = dict(tiles.losses), list(tiled.notes)
    for splat in splats:
        key = key_of_tiles(splat, tiles.patches)
        if splat.num_gaussians > MOST_READ_BACK:
            notes.append(f"{splat.name}: {TOO_MANY}")
        elif losses.get(splat.name, CompressionLoss()).key != key:
            decoded = folder.work / "tiles.ply"
            folder.write_back(splat, tiles, decoded)
            found = measure(splat, splat.path, {TILES: decoded}, folder.work)[TILES]
            losses[splat.name] = replace(found, key=key)
    shown = {name: one for name, one in losses.items() if name in {*tiles.patches, SCENE}}
    measured = replace(tiled, notes=tuple(dict.fromkeys(notes)), tiles=replace(tiles, losses=shown))
    return replace(measured, **_mean(shown)) if shown else measured


def _mean(losses: Mapping[str, CompressionLoss]) -> dict[str, Any]:
    """Return the mean figures over several splats, each weighted by its number of photographs."""
    num = sum(one.num_photos for one in losses.values())
    means = {
        name: round(sum(one.num_photos * getattr(one, name) for one in losses.values()) / max(num, 1), 3)
        for name in ("psnr", "loss_db", "between_db")
    }
    return {**means, "num_photos": num}
