"""One splat becomes one file of a format: written aside, read back where that is possible."""

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
from splatbatch.publish.tool import SplatTransform
from splatbatch.splats import mode_comments, read_header, write_splat
from splatbatch.splats.export import WHOLE, ExportOptions, cut_to

LEAST_IN_LEVEL, MOST_LEVELS = 8_192, 6
"""A level of a streamed splat is halved while it has more Gaussians than that, and so often at most."""


@dataclass(frozen=True)
class Rung:
    """How the colours' directions are packed by SOG's clustering, which takes hours on a CPU where they are many."""

    share: float
    """Of the time that one call may take."""
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    note: str = ""
    """What was left out for it."""


PLAINLY = (Rung(1.0),)
CLUSTERED = (
    Rung(0.6, ("-i", "4")),
    Rung(
        0.3, ("-i", "2"), ("-H", "1"), "colours vary with direction by degree 1 alone: more took too long on this CPU"
    ),
    Rung(0.1, (), ("-H", "0"), "colours do not vary with direction: packing that took too long on this CPU"),
)
"""Each after the one before ran out of time."""


@dataclass(frozen=True)
class ConversionJob:
    """What is written: a part of a splat, as a format, with a folder for what comes and goes."""

    part: SourcePart
    form: SplatFormat
    work: Path
    """On the disk of the target."""
    pieces: tuple[SourcePart, ...] = ()
    """Of which the part is made, where it is too large to be read at once."""
    cut: ExportOptions = WHOLE
    """What a PLY leaves out."""

    @property
    def aside(self) -> Path:
        """Where the file, or the folder, is written."""
        return self.work / self.form.place("out")

    @property
    def entry(self) -> Path:
        """What readers of it open."""
        return self.aside / self.form.suffix if self.form.is_folder else self.aside

    @property
    def decoded(self) -> Path:
        """Where it is read back to."""
        return self.work / f"{self.form.name}.decoded.ply"


@dataclass(frozen=True)
class ConvertedFile:
    """A file that was written, aside."""

    num_gaussians: int | None = None
    """That came back; None: nothing reads it back."""
    decoded: Path | None = None
    notes: tuple[str, ...] = ()


def convert(job: ConversionJob, tool: SplatTransform | None) -> ConvertedFile:
    """Write a splat aside, and read it back where something can.

    Raises:
        OutputError: it cannot be written, or does not come back with as many Gaussians.
        TrainerError: what writes it is not installed.
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
            f"{job.part.name}: {job.form.name}: {error}", "Check the disk, then publish again."
        ) from error


def _needed(tool: SplatTransform | None) -> SplatTransform:
    if tool is None:
        raise TrainerError("splat-transform: not installed", "")
    return tool


def _compress(job: ConversionJob) -> None:
    """Write a .compressed.ply.

    Raises:
        TrainerError: gsply is not installed.
    """
    try:
        import gsply
    except ImportError as error:
        hint = "pip install 'splatbatch[web]'"
        raise TrainerError("compressed: gsply is not installed", hint) from error
    found = read_part(job.part)
    length = np.maximum(np.linalg.norm(found.quats, axis=1, keepdims=True), 1e-12)
    columns = (found.means, found.scales, found.quats / length, found.opacities, found.sh0)
    rest = found.shN if found.shN.shape[1] else None
    said = "".join(f"comment {line}\n" for line in _mode_of(job.part)).encode()
    packed = gsply.compress_to_bytes(*(np.ascontiguousarray(one, dtype=np.float32) for one in columns), shN=rest)
    write_whole(job.aside, lambda file: file.write(packed.replace(b"element", said + b"element", 1)))


def _mode_of(part: SourcePart) -> tuple[str, ...]:
    """Return the header's line that says how a part is drawn."""
    return mode_comments(read_header(part.path).antialiased)


def _turned(job: ConversionJob, tool: SplatTransform | None) -> SourcePart:
    """Return the part as its axes are to be: the tool turns colours that vary with direction, too.

    Raises:
        OutputError: it cannot.
        TrainerError: the tool is not installed.
    """
    if not job.form.turn:
        return job.part
    path = job.work / "turned.ply"
    source = str(as_file(job.part, job.work))
    _needed(tool).must([source, *job.form.turn, str(path)], f"{job.part.name}: {job.form.name}: turned")
    return SourcePart(job.part.name, path, 0, job.part.num_gaussians, "")


def _by_tool(job: ConversionJob, tool: SplatTransform) -> tuple[str, ...]:
    """Have the tool write the file; return what had to be left out.

    Raises:
        OutputError: it cannot.
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
        raise OutputError(f"{job.part.name}: {job.form.name}: splat-transform reported success but wrote nothing")
    return (rung.note,) if rung.note else ()


def _each_with(inputs: Sequence[str], after: Sequence[str]) -> list[str]:
    """Return inputs, each followed by what is to be done with it; tags of levels stay behind theirs."""
    found = []
    for one in inputs:
        found += [one, *after] if one.endswith(".ply") else [one]
    return found


def as_file(part: SourcePart, work: Path) -> Path:
    """Return a file that holds a part alone, in an order that other programs know.

    Raises:
        ValueError: the part is no splat, or cut.
        OSError: it cannot be read, or not be copied into the folder.
    """
    if is_whole(part):
        return part.path.absolute()
    target = work / "part.ply"
    if not target.exists():
        write_splat(target, read_part(part), None, comments=_mode_of(part))
    return target


def _levels(job: ConversionJob) -> list[str]:
    """Write a part, or piece by piece, in levels of detail; return the tool's inputs, each with its level."""
    if not job.pieces:
        return _levels_of(job.part, str(as_file(job.part, job.work)), job.work / "level")
    found = []
    for piece in job.pieces:
        if piece.num_gaussians:
            copy = job.work / f"{piece.name}.ply"
            copy_part(piece, copy)
            found += _levels_of(piece, str(copy), job.work / piece.name)
    return found


def _levels_of(part: SourcePart, whole: str, stem: Path) -> list[str]:
    """Write a part in levels of detail; return the tool's inputs."""
    found, level = [whole, "-l", "0"], read_part(part)
    for number in range(1, MOST_LEVELS):
        if len(level) <= LEAST_IN_LEVEL:
            break
        level = halved(level)
        path = stem.with_name(f"{stem.name}-{number}.ply")
        write_splat(path, level, None, comments=_mode_of(part))
        found += [str(path), "-l", str(number)]
    return found


def _read_back(job: ConversionJob, tool: SplatTransform | None) -> ConvertedFile:
    """Read back what was written.

    Raises:
        OutputError: it does not come back, or with another number of Gaussians.
    """
    match job.form.reader:
        case "gltf":
            write_splat(job.decoded, half_turned(decode(job.entry.read_bytes())), None)
        case "tool" if tool is not None:
            level = ("-L", "0") if job.form.is_folder else ()
            arguments = (*level, str(job.entry), *job.form.turn_back, str(job.decoded))
            tool.must(arguments, f"{job.part.name}: {job.form.name}: read back")
        case _:
            return ConvertedFile()
    num = read_header(job.decoded).num_gaussians
    if num != job.part.num_gaussians:
        raise OutputError(
            f"{job.part.name}: {job.form.name}: {num} of {job.part.num_gaussians} Gaussians came back",
            "Publish it as ply.",
        )
    return ConvertedFile(num, job.decoded)
