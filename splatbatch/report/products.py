"""What result.json says of an accepted splat besides its figures: its size, the photographs behind it, who made it."""

from __future__ import annotations

from splatbatch.files import Record
from splatbatch.store.layout import PatchFolder
from splatbatch.store.records.result import Result


def product_of(folder: PatchFolder) -> Record:
    """Return bytes, versions and resolution of a patch's splat; all empty if there is none.

    The resolution is what was trained on, not what was asked for: used ("1/8"), folder ("images_8"), and the largest
    photograph's width and height in pixels.
    """
    result = folder.read_result() or Result()
    said = result.metrics.resolution
    ours = {"splatbatch": result.version} if result.version else {}
    return {
        "bytes": result.bytes,
        "resolution": said.to_record() if said else None,
        "versions": ours | result.metrics.made_with,
    }


def in_words(resolution: Record | None) -> str:
    """Return a resolution as "1/8, 618x411, images_8"."""
    if not resolution:
        return ""
    size = resolution["largest"]
    pixels = f"{size[0]:g}x{size[1]:g}" if size else ""
    folder = resolution["folder"] if resolution["folder"] != "images" else ""
    return ", ".join(filter(None, (resolution["used"], pixels, folder)))
