"""publish.json, in the folder that `publish` writes: the published files, their splats, and the loss of each."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from splatbatch import __version__
from splatbatch.files import read_record, write_json
from splatbatch.output.records.record import TypedRecord

FILE = "publish.json"


@dataclass(frozen=True)
class TiledPatch(TypedRecord):
    """The published tiles of one patch."""

    key: str = ""
    """Name of the folder of the tiles: a hash of all inputs that decide its content."""
    num_gaussians: int = 0
    num_tiles: int = 0
    num_bytes: int = 0
    sha256: dict[str, str] = field(default_factory=dict)
    """SHA-256 of each file, by its path in the folder of the tiles."""


@dataclass(frozen=True)
class CompressionLoss(TypedRecord):
    """Loss of a splat by compression, in dB of PSNR, measured on the file that was read back.

    `loss_db` is the PSNR of the original less `psnr`, both on held-out photographs or, without hold-out, on training
    ones. `between_db` is the PSNR against renderings of the original.
    """

    key: str = ""
    """Hash of the tiles that were measured; empty for another format."""
    num_photos: int = 0
    psnr: float = 0.0
    loss_db: float = 0.0
    between_db: float = 0.0


@dataclass(frozen=True)
class TilesRecord(TypedRecord):
    """Published tiles of a scene (3D Tiles): their place on Earth, their patches and the losses by compression."""

    crs: str = ""
    """Coordinate reference system of the model; empty: the place on Earth is unknown."""
    middle: tuple[float, float, float] | None = None
    """Middle of the scene in coordinates of its model, at which the axes of all tiles are chosen; None: not
    recorded."""
    up: tuple[float, float, float] | None = None
    """Direction of the sky in coordinates of the model, for a scene without a CRS; None: a CRS, or not recorded."""
    sh_degree: int | None = None
    """Degree of the spherical harmonics in the tiles; None: not recorded."""
    patches: dict[str, TiledPatch] = field(default_factory=dict)
    losses: dict[str, CompressionLoss] = field(default_factory=dict)
    """Losses of the splats that were read back and measured, by name of the splat; empty: none was measured."""


@dataclass(frozen=True)
class PublishedFile(TypedRecord):
    """A file, or a folder, that was published."""

    kind: str = ""
    """Format, as a value of the option --as."""
    of: str = ""
    """Name of the published splat: that of a patch, or "scene"."""
    key: str = ""
    """Hash of all inputs that decide the content; with the same hash the file is not made again. Empty: the file was
    begun, but not finished."""
    bytes: int = 0
    sha256: dict[str, str] = field(default_factory=dict)
    """SHA-256 of each file by name, or by path in a published folder; tiles list theirs by patch in `tiles`."""
    bytes_before: int = 0
    """Size of the same Gaussians as a PLY file, in bytes."""
    num_gaussians: int = 0
    seconds: float | None = None
    """Seconds that writing the file took; None: not recorded."""
    psnr: float | None = None
    """PSNR of the published file, read back, on the photographs of `CompressionLoss`, in dB; None: not measured."""
    loss_db: float | None = None
    """PSNR of the original less `psnr`, in dB; None: it was not measured."""
    between_db: float | None = None
    """PSNR in dB against renderings of the original; 100: equal, None: it was not measured."""
    num_photos: int | None = None
    """Number of photographs on which it was measured; None: it was not measured."""
    notes: tuple[str, ...] = ()
    """Notes on parts that were left out, or on why nothing was measured; empty: none."""
    tiles: TilesRecord | None = None
    """The tiles of a folder of 3D Tiles; None: another format."""


@dataclass(frozen=True)
class SplatRecord(TypedRecord):
    """A splat that was published in at least one format."""

    sha256: str = ""
    num_gaussians: int = 0
    bytes: int = 0
    sh_degree: int = 0
    offset: tuple[float, ...] = ()
    """Offset x, y, z that was subtracted from the model's coordinates: add it to the splat's, but not to those of
    tiles."""
    figures: dict[str, float] = field(default_factory=dict)
    """Figures measured by the training, or by `evaluate`, by name; empty: not measured."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Publication(TypedRecord):
    """Content of publish.json: everything that was published into a folder."""

    splats: dict[str, SplatRecord] = field(default_factory=dict)
    outputs: dict[str, PublishedFile] = field(default_factory=dict)
    """Published files and folders, by their name in the folder of publish.json."""
    version: str = ""

    @classmethod
    def of(cls, folder: Path) -> Publication | None:
        """Return publish.json of a folder; None if there is none that can be read, or it is no such record.

        Raises:
            LaterFormatError: a later version wrote the file.
        """
        record = read_record(folder / FILE)
        return None if record is None or "outputs" not in record else cls.from_record(record)

    def write(self, folder: Path) -> None:
        """Write publish.json into a folder, whole or not at all, with the version of this program.

        Raises:
            OSError: the file cannot be written; an existing one is as before.
        """
        write_json(folder / FILE, replace(self, version=__version__).to_record())


@dataclass(frozen=True)
class PublishOutput(Publication):
    """Output of `publish --json`: the folder, and all fields of its publish.json."""

    folder: str = ""
