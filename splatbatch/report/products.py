"""What result.json says of an accepted splat besides its figures: its size, the photographs behind it, who made it."""

from __future__ import annotations

from splatbatch.fields import mapping, number, text
from splatbatch.files import Record, read_json
from splatbatch.store.layout import PatchFolder


def product_of(folder: PatchFolder) -> Record:
    """Return bytes, versions and resolution of a patch's splat; all empty if there is none.

    The resolution is what was trained on, not what was asked for: used ("1/8"), folder ("images_8"), and the largest
    photograph's width and height in pixels.
    """
    result = read_json(folder.result) or {}
    metrics = mapping(result.get("metrics"))
    versions = {"splatbatch": result.get("version"), **mapping(metrics.get("made_with"))}
    return {
        "bytes": number(result.get("bytes")),
        "resolution": _resolution(mapping(metrics.get("resolution"))),
        "versions": {key: str(value) for key, value in versions.items() if value is not None},
    }


def in_words(resolution: Record | None) -> str:
    """Return a resolution as "1/8, 618x411, images_8"."""
    if not resolution:
        return ""
    size = resolution["largest"]
    pixels = f"{size[0]:g}x{size[1]:g}" if size else ""
    folder = resolution["folder"] if resolution["folder"] != "images" else ""
    return ", ".join(filter(None, (resolution["used"], pixels, folder)))


def _resolution(said: Record) -> Record | None:
    if not said:
        return None
    sides = said.get("largest")
    size = [number(side) for side in sides] if isinstance(sides, list) else []
    is_size = len(size) == 2 and None not in size
    return {"used": text(said.get("used")), "folder": text(said.get("folder")), "largest": size if is_size else None}
