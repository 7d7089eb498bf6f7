"""What can be published, and how each file is written and read back: suffix, program, what it keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

HALF_TURN = ("-r", "180,0,0")
"""Around x, in the tool's words."""
Writer = Literal["ply", "compressed", "sog", "tool"]
FormatReader = Literal["tool", "gltf", "nothing"]


@dataclass(frozen=True)
class SplatFormat:
    """A file, or a folder of files, that holds a splat."""

    name: str
    """As --as has it."""
    suffix: str
    """Of the file; for a folder the file in it that readers open."""
    writer: Writer
    arguments: tuple[str, ...] = ()
    """For the tool."""
    turn: tuple[str, ...] = ()
    """What the tool is to do with the axes on the way there."""
    turn_back: tuple[str, ...] = ()
    """The same on the way back again."""
    reader: FormatReader = "tool"
    """What reads it back."""
    is_folder: bool = False
    about: str = ""

    def place(self, stem: str) -> str:
        """Return the name of the file, or of the folder, for a splat of this name."""
        return f"{stem}-{self.name}" if self.is_folder else f"{stem}{self.suffix}"


FORMATS: Mapping[str, SplatFormat] = {
    one.name: one
    for one in (
        SplatFormat("ply", ".ply", "ply", about="3DGS PLY, as it was accepted: every program reads it"),
        SplatFormat("compressed", ".compressed.ply", "compressed", about="PlayCanvas, a sixth of the size (extra web)"),
        SplatFormat("sog", ".sog", "sog", about="PlayCanvas, a twentieth of the size"),
        SplatFormat(
            "streamed", "lod-meta.json", "tool", is_folder=True, about="SOG in levels of detail, for streaming"
        ),
        # the specification's axes are right, up, back; the tool (3.7.0) leaves PLY's right, down, forward as they are
        SplatFormat(
            "spz", ".spz", "tool", ("--spz-version", "3"), HALF_TURN, HALF_TURN, about="Niantic, a tenth of the size"
        ),
        SplatFormat("glb", ".glb", "tool", reader="gltf", about="glTF with KHR_gaussian_splatting"),
    )
}
TILES, PAGE = "tiles", "html"
KINDS = (*FORMATS, TILES, PAGE)
