"""The formats of `publish --as`: for each the suffix of its files, and the programs that write and decode them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

HALF_TURN = ("-r", "180,0,0")
"""Arguments of splat-transform for a rotation by 180 degrees about the x axis."""
Writer = Literal["ply", "compressed", "sog", "tool"]
"""Program that writes a format; `SplatFormat.writer` explains the values."""
FormatReader = Literal["tool", "gltf", "nothing"]
"""Decoder of a format; `SplatFormat.reader` explains the values."""


@dataclass(frozen=True)
class SplatFormat:
    """A format that a splat can be published in, as one file or as a folder of files."""

    name: str
    """Name of the format in `--as`."""
    suffix: str
    """Suffix of the file; for a folder, the name of the file in it that programs open."""
    writer: Writer
    """Writer of the format: our code ("ply", "sog"), gsply ("compressed"), or splat-transform ("tool")."""
    arguments: tuple[str, ...] = ()
    """Further arguments of splat-transform for writing; empty: none, or another program writes the format."""
    turn: tuple[str, ...] = ()
    """Arguments of splat-transform that rotate the splat into the format's axes; empty: the axes are the same."""
    turn_back: tuple[str, ...] = ()
    """Arguments of splat-transform that rotate the splat back after decoding; empty: the axes are the same."""
    reader: FormatReader = "tool"
    """Decoder of the file, for counting its Gaussians and measuring the loss.

    "tool" is splat-transform, "gltf" our code; "nothing": the file is not decoded. A PLY is never decoded.
    """
    is_folder: bool = False

    def place(self, stem: str) -> str:
        """Return the name of the file or folder for a splat named `stem`: "p5.sog", or for a folder "p5-streamed"."""
        return f"{stem}-{self.name}" if self.is_folder else f"{stem}{self.suffix}"


FORMATS: Mapping[str, SplatFormat] = {
    one.name: one
    for one in (
        SplatFormat("ply", ".ply", "ply"),  # 3DGS PLY, as it was accepted
        SplatFormat("compressed", ".compressed.ply", "compressed"),  # PlayCanvas, a sixth of the size
        SplatFormat("sog", ".sog", "sog"),  # PlayCanvas, a twentieth of the size
        SplatFormat("streamed", "lod-meta.json", "tool", is_folder=True),  # SOG in levels of detail
        # SPZ's axes are right, up, back by specification; the tool (3.7.0) writes PLY's right, down, forward unchanged
        SplatFormat(
            "spz", ".spz", "tool", ("--spz-version", "3"), HALF_TURN, HALF_TURN
        ),  # Niantic, a tenth of the size
        SplatFormat("glb", ".glb", "tool", reader="gltf"),  # glTF with KHR_gaussian_splatting
    )
}
TILES, PAGE = "tiles", "html"
KINDS = (*FORMATS, TILES, PAGE)
