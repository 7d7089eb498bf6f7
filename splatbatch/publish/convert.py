"""Converts a splat into a file or folder of a format, in a working folder, and reads it back if a decoder is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from splatbatch.errors import OutputError, TrainerError
from splatbatch.files import write_whole
from splatbatch.publish.formats import SplatFormat
from splatbatch.publish.rows import copy_part, is_whole, read_part
from splatbatch.publish.sog import write_sog
from splatbatch.publish.source import SourcePart
from splatbatch.publish.tiles.glb import decode, half_turned
from splatbatch.publish.tiles.tree import halved
from splatbatch.publish.tool import HINT, SplatTransform
from splatbatch.splats import mode_comments, read_header, write_splat
from splatbatch.splats.export import WHOLE, ExportOptions, cut_to

LEAST_IN_LEVEL, MOST_LEVELS = 8_192, 6
"""Limits of the levels of detail of a streamed splat, each of which has half the Gaussians of the level before.

A level of at most LEAST_IN_LEVEL Gaussians is the last; there are at most MOST_LEVELS, with the full one.
"""


@dataclass(frozen=True)
class Rung:
    """One way to call splat-transform for a streamed splat; if its time runs out, the next, cheaper rung is tried.

    The slow part is SOG's clustering of view-dependent colours, which takes hours on a CPU where Gaussians are many.
    """

    share: float
    """Share, 0 to 1, of the time limit of a call that this rung may use."""
    before: tuple[str, ...] = ()
    """Arguments of splat-transform before those of the format; empty: none."""
    after: tuple[str, ...] = ()
    """Arguments of splat-transform after each input file; empty: none."""
    note: str = ""
    """Note for publish.json on what this rung leaves out of the colours; empty if it leaves out nothing."""


PLAINLY = (Rung(1.0),)
CLUSTERED = (
    Rung(0.6, ("-i", "4")),
    Rung(
        0.3,
        ("-i", "2"),
        ("-H", "1"),
        "colours vary only coarsely with the viewing direction (degree 1): packing more took too long on this CPU",
    ),
    Rung(
        0.1,
        (),
        ("-H", "0"),
        "colours do not vary with the viewing direction: packing such colours took too long on this CPU",
    ),
)
"""Rungs for streamed splats with view-dependent colours, in the order in which they are tried."""


@dataclass(frozen=True)
class ConversionJob:
    """One conversion: which part of a splat is written, in which format, in which working folder."""

    part: SourcePart
    form: SplatFormat
    work: Path
    """Working folder, which must exist, on the same disk as the folder that is published into."""
    pieces: tuple[SourcePart, ...] = ()
    """Smaller parts that make up `part`, which a folder format reads one at a time; empty: `part` is read whole."""
    cut: ExportOptions = WHOLE
    """Gaussians and colour degrees that a PLY leaves out, and the frame of its coordinates; other formats ignore it."""

    @property
    def aside(self) -> Path:
        """Path in the working folder that `convert` writes the file or folder to; absent before."""
        return self.work / self.form.place("out")

    @property
    def entry(self) -> Path:
        """Path in the working folder that programs open: the written file, or the main file of a written folder."""
        return self.aside / self.form.suffix if self.form.is_folder else self.aside

    @property
    def decoded(self) -> Path:
        """Path in the working folder of the PLY that the written file is decoded to; absent if it is not decoded."""
        return self.work / f"{self.form.name}.decoded.ply"


@dataclass(frozen=True)
class ConvertedFile:
    """Result of one conversion, before the file is moved into the published folder."""

    num_gaussians: int | None = None
    """Number of Gaussians in the file, as read back.

    None if the file was not read back: no decoder is installed, or the job's format has the reader "nothing".
    """
    decoded: Path | None = None
    """PLY decoded from the file, for measuring the loss; None: a PLY, or not read back."""
    notes: tuple[str, ...] = ()
    """Notes for publish.json, as on colours that the file leaves out; empty: none."""


def convert(job: ConversionJob, tool: SplatTransform | None) -> ConvertedFile:
    """Write a part of a splat to `job.aside` in the job's format; read it back if its decoder is installed.

    Args:
        job: what to write, and where.
        tool: splat-transform, which writes some formats and decodes most; None: it is not installed.

    Raises:
        OutputError: the splat cannot be read, splat-transform fails, the file cannot be written or read back, or the
            number of Gaussians read back differs.
        TrainerError: the program or package that writes the format is not installed.
    """
    try:
        match job.form.writer:
            case "ply":
                if job.cut == WHOLE:
                    copy_part(job.part, job.aside)
                else:
                    cut_to(job.aside, job.part.name, read_part(job.part), read_header(job.part.path), job.cut)
                return ConvertedFile(read_header(job.aside).num_gaussians)
            case "compressed":
                _compress(job)
                notes: tuple[str, ...] = ()
            case "sog":
                is_antialiased = read_header(job.part.path).antialiased is True
                write_sog(job.aside, read_part(_turned(job, tool)), is_antialiased=is_antialiased)
                notes = ()
            case "tool":
                notes = _by_tool(job, _needed(tool))
        return replace(_read_back(job, tool), notes=notes)
    except (OSError, ValueError) as error:
        raise OutputError(
            f"{job.part.name}: {job.form.name}: {error}",
            "Check the free space and permissions of the disk, then publish again.",
        ) from error


def _needed(tool: SplatTransform | None) -> SplatTransform:
    if tool is None:
        raise TrainerError("splat-transform is not installed", HINT)
    return tool


def _compress(job: ConversionJob) -> None:
    """Write a .compressed.ply.

    Raises:
        TrainerError: gsply is not installed.
    """
    try:
        import gsply
    except ImportError as error:
        hint = "Run pip install 'splatbatch[web]'."
        raise TrainerError("format compressed: gsply is not installed", hint) from error
    found = read_part(job.part)
    length = np.maximum(np.linalg.norm(found.quats, axis=1, keepdims=True), 1e-12)
    columns = (found.means, found.scales, found.quats / length, found.opacities, found.sh0)
    rest = found.shN if found.shN.shape[1] else None
    said = "".join(f"comment {line}\n" for line in _mode_of(job.part)).encode()
    packed = gsply.compress_to_bytes(*(np.ascontiguousarray(one, dtype=np.float32) for one in columns), shN=rest)
    write_whole(job.aside, lambda file: file.write(packed.replace(b"element", said + b"element", 1)))


def _mode_of(part: SourcePart) -> tuple[str, ...]:
    """Return the header comments that say whether a part is drawn antialiased."""
    return mode_comments(read_header(part.path).antialiased)


def _turned(job: ConversionJob, tool: SplatTransform | None) -> SourcePart:
    """Return the part rotated into the format's axes by the tool, which rotates view-dependent colours, too.

    Returns the part itself if the format needs no rotation.

    Raises:
        OutputError: the tool fails.
        TrainerError: the tool is not installed.
    """
    if not job.form.turn:
        return job.part
    path = job.work / "turned.ply"
    source = str(as_file(job.part, job.work))
    _needed(tool).must([source, *job.form.turn, str(path)], f"{job.part.name}: {job.form.name}: rotating the splat")
    return SourcePart(job.part.name, path, 0, job.part.num_gaussians, "")


def _by_tool(job: ConversionJob, tool: SplatTransform) -> tuple[str, ...]:
    """Write the file with splat-transform; return notes on what the rung that succeeded leaves out.

    Raises:
        OutputError: the tool fails, runs out of time on the last rung, or writes nothing.
    """
    if job.form.is_folder:
        job.aside.mkdir()
        inputs = _levels(job)
    else:
        inputs = [str(as_file(job.part, job.work))]
    rungs = CLUSTERED if job.form.name == "streamed" and read_header(job.part.path).sh_degree else PLAINLY
    for rung in rungs:
        arguments = [
            *rung.before,
            *job.form.arguments,
            *_each_with(inputs, (*job.form.turn, *rung.after)),
            str(job.entry),
        ]
        ended = tool.run(arguments, rung.share * tool.bounds.wall_s)
        if ended.is_well:
            break
        if ended.exceeded != "time" or rung is rungs[-1]:
            raise tool.failed(ended, f"{job.part.name}: {job.form.name}")
    if not job.entry.is_file() or not job.entry.stat().st_size:
        raise OutputError(
            f"{job.part.name}: {job.form.name}: splat-transform reported success but wrote nothing",
            "Publish it as ply instead: --as ply.",
        )
    return (rung.note,) if rung.note else ()


def _each_with(inputs: Sequence[str], after: Sequence[str]) -> list[str]:
    """Return the tool's inputs with `after` inserted behind each PLY, in front of its level tag (`-l 0`)."""
    found = []
    for one in inputs:
        found += [one, *after] if one.endswith(".ply") else [one]
    return found


def as_file(part: SourcePart, work: Path) -> Path:
    """Return the path of a PLY that holds exactly this part, with its properties in the standard order.

    If the part's own file is such a PLY, the result is its absolute path. Otherwise part-NAME.ply is written into
    the folder `work`, unless that file exists.

    Raises:
        OSError: the part cannot be written into the folder.
        OutputError: the part cannot be read, or there is too little memory to read it.
    """
    if is_whole(part):
        return part.path.absolute()
    target = work / f"part-{part.name}.ply"
    if not target.exists():
        write_splat(target, read_part(part), None, comments=_mode_of(part))
    return target


def _levels(job: ConversionJob) -> list[str]:
    """Write the levels of detail of a job, or of each of its pieces; return the tool's inputs with level tags."""
    found = []
    for part in (one for one in job.pieces or (job.part,) if one.num_gaussians):
        found += [str(as_file(part, job.work)), "-l", "0"]
        level = read_part(part)
        for number in range(1, MOST_LEVELS):
            if len(level) <= LEAST_IN_LEVEL:
                break
            level = halved(level)
            path = job.work / f"level-{number}-{part.name}.ply"
            write_splat(path, level, None, comments=_mode_of(part))
            found += [str(path), "-l", str(number)]
    return found


def _read_back(job: ConversionJob, tool: SplatTransform | None) -> ConvertedFile:
    """Decode the written file to a PLY; skip this if the format's reader is not available.

    Raises:
        OutputError: the file cannot be decoded, or has another number of Gaussians.
    """
    match job.form.reader:
        case "gltf":
            write_splat(job.decoded, half_turned(decode(job.entry.read_bytes())), None)
        case "tool" if tool is not None:
            level = ("-L", "0") if job.form.is_folder else ()
            arguments = (*level, str(job.entry), *job.form.turn_back, str(job.decoded))
            tool.must(arguments, f"{job.part.name}: {job.form.name}: reading the file back")
        case _:
            return ConvertedFile()
    num = read_header(job.decoded).num_gaussians
    if num != job.part.num_gaussians:
        raise OutputError(
            f"{job.part.name}: {job.form.name}: the file holds {num} Gaussians, the splat {job.part.num_gaussians}",
            "Publish it as ply instead: --as ply.",
        )
    return ConvertedFile(num, job.decoded)
