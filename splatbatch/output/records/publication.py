"""The folder that `publish` writes: publish.json says what lies there, of which splat, and what that has cost."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from splatbatch import __version__
from splatbatch.files import read_record, write_json
from splatbatch.output.records.record import TypedRecord

FILE = "publish.json"


@dataclass(frozen=True)
class TiledPatch(TypedRecord):
    """The tiles of a patch."""

    key: str = ""
    """Names its folder: a hash of all that decides what is in it."""
    num_gaussians: int = 0
    num_tiles: int = 0
    num_bytes: int = 0
    sha256: dict[str, str] = field(default_factory=dict)
    """Of each of its files, by its path in the folder."""


@dataclass(frozen=True)
class CompressionLoss(TypedRecord):
    """How much worse a splat is for having been compressed."""

    key: str = ""
    """Hash of the tiles that were measured; empty of another format."""
    num_photos: int = 0
    psnr: float = 0.0
    loss_db: float = 0.0
    between_db: float = 0.0


@dataclass(frozen=True)
class TilesRecord(TypedRecord):
    """What tiles are made of: where they lie, and their patches."""

    crs: str = ""
    """Empty: its place on Earth is unknown."""
    middle: tuple[float, float, float] | None = None
    """Of the scene, in coordinates of its model: the axes there are those of all tiles."""
    up: tuple[float, float, float] | None = None
    """Where the sky is, without a CRS."""
    sh_degree: int | None = None
    patches: dict[str, TiledPatch] = field(default_factory=dict)
    losses: dict[str, CompressionLoss] = field(default_factory=dict)
    """Of splats, by name, that were read back and measured."""


@dataclass(frozen=True)
class PublishedFile(TypedRecord):
    """A file, or a folder, that was published."""

    kind: str = ""
    """As --as has it."""
    of: str = ""
    """The splat: a patch, or scene."""
    key: str = ""
    """Hash of all that decides what is in it."""
    bytes: int = 0
    sha256: dict[str, str] = field(default_factory=dict)
    """Of a file, by its name; of a folder each of its files, by its path there; tiles say it patch by patch."""
    bytes_before: int = 0
    """Of the same Gaussians as PLY."""
    num_gaussians: int = 0
    seconds: float | None = None
    psnr: float | None = None
    """Of what came back, on held-out photographs, in dB; None: nothing was measured."""
    loss_db: float | None = None
    """The original's PSNR less that."""
    between_db: float | None = None
    """PSNR against renderings of the original; 100: equal."""
    num_photos: int | None = None
    notes: tuple[str, ...] = ()
    """What was left out, or why nothing was measured."""
    tiles: TilesRecord | None = None


@dataclass(frozen=True)
class SplatRecord(TypedRecord):
    """A splat of which something was published."""

    sha256: str = ""
    num_gaussians: int = 0
    bytes: int = 0
    sh_degree: int = 0
    offset: tuple[float, ...] = ()
    """What was taken off the model's coordinates: add it, but to tiles, which lie where they belong."""
    figures: dict[str, float] = field(default_factory=dict)
    """As training, or `evaluate`, measured it."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Publication(TypedRecord):
    """All that was published into a folder."""

    splats: dict[str, SplatRecord] = field(default_factory=dict)
    outputs: dict[str, PublishedFile] = field(default_factory=dict)
    """By the name of the file or folder."""
    version: str = ""

    @classmethod
    def of(cls, folder: Path) -> Publication | None:
        """Return what a folder says; None: it says nothing.

        Raises:
            LaterFormatError: a later version wrote it.
        """
        record = read_record(folder / FILE)
        return None if record is None or "outputs" not in record else cls.from_record(record)

    def write(self, folder: Path) -> None:
        """Write it, whole or not at all."""
        write_json(folder / FILE, replace(self, version=__version__).to_record())


@dataclass(frozen=True)
class PublishOutput(Publication):
    """`publish --json`: the folder, and what publish.json says of it."""

    folder: str = ""
