"""Films of a flight through a splat: drawn by a separate process, encoded by ffmpeg; without ffmpeg a GIF."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from splatbatch.errors import ConfigError, OutputError
from splatbatch.files import MIB, free_mib, open_regular, path_beside, write_json
from splatbatch.machine.limited_program import USUAL, ProgramEnd, run_bounded
from splatbatch.output.records.evaluation import FilmSettings
from splatbatch.publish.source import PublishedSplat
from splatbatch.splats.export import check_outside
from splatbatch.text import plural

MODULE = "splatbatch.training.film"
GIF = ".gif"
SUFFIXES = (".mp4", ".mkv", ".webm", GIF)
CODECS = {".webm": ("-c:v", "libvpx-vp9", "-crf", "32", "-b:v", "0")}
H264 = ("-c:v", "libx264", "-crf", "20", "-movflags", "+faststart")
FPS = 30
NO_FFMPEG = "ffmpeg is not installed: the film is written as a GIF"


@dataclass(frozen=True)
class Film:
    """Options of one film: file to write, width and height in pixels, number of frames (30 a second)."""

    out: Path
    width: int = 960
    height: int = 540
    num_frames: int = 240
    is_forced: bool = False
    """Whether an existing file may be overwritten."""

    def check(self, output: Path) -> None:
        """Check that the film can be written, before any frame is drawn; nothing is written.

        Unknown free space on the disk counts as enough.

        Args:
            output: the output folder of the batch, in which no film may lie.

        Raises:
            ConfigError: the file name has none of SUFFIXES.
            OutputError: the file (or a .gif in its place) exists and may not be overwritten; it lies in the output
                folder; or the disk lacks space.
        """
        if self.out.suffix.lower() not in SUFFIXES:
            raise ConfigError(
                f"--to {self.out}: not the name of a film", f"End the name with one of {', '.join(SUFFIXES)}."
            )
        check_outside(f"--to {self.out}", self.out.parent, output)
        for place in {self.out, self.out.with_suffix(GIF)}:
            if place.exists() and not self.is_forced:
                raise OutputError(f"{place}: the file exists already", "Add --force to overwrite it.")
        needed = 2 * self.frame_bytes * self.num_frames // MIB
        free = free_mib(self.out.parent)
        if free is not None and free < needed:
            raise OutputError(
                f"{self.out}: {free:,} MiB of disk space are free, {needed:,} MiB are needed",
                "Free disk space, or name a place on another disk with --to.",
            )

    @property
    def frame_bytes(self) -> int:
        """Return the size in bytes of one uncompressed RGB frame."""
        return 3 * self.width * self.height


def make_film(splat: PublishedSplat, film: Film, say: Callable[[str], None]) -> Path:
    """Draw and encode a film of a flight through a splat; return the path of the written file.

    The path is `film.out`, or a .gif in its place if ffmpeg is not installed. The file is written whole, and replaces
    an earlier one.

    Args:
        splat: the splat, with its cameras.
        film: options of the film.
        say: called with each message on progress.

    Raises:
        OutputError: the film cannot be drawn, encoded or written.
    """
    work = path_beside(film.out.parent / "film")
    try:
        film.out.parent.mkdir(parents=True, exist_ok=True)
        work.mkdir()
        frames = work / "frames.rgb"
        told = {**asdict(splat.views), "splat": str(splat.path), "num_frames": film.num_frames}
        settings = FilmSettings.from_record({**told, "width": film.width, "height": film.height})
        write_json(work / "film.json", settings.to_record())
        command = [sys.executable, "-m", MODULE, str(work / "film.json"), str(frames)]
        say(f"{splat.name}: drawing {plural(film.num_frames, 'frame')} of {film.width}x{film.height}")
        ended = _must(run_bounded(command, USUAL), f"{splat.name}: the film cannot be drawn")
        say(ended.said.strip().splitlines()[-1])
        if frames.stat().st_size != film.frame_bytes * film.num_frames:
            raise OutputError(
                f"{splat.name}: only some frames of the film were drawn", "Check the free space of the disk."
            )
        return _encoded(frames, film, work, say)
    except OSError as error:
        raise OutputError(
            f"{film.out}: {error.strerror or error}", "Check the free space and permissions of the disk."
        ) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _must(ended: ProgramEnd, what: str) -> ProgramEnd:
    if not ended.is_well:
        raise OutputError(f"{what}: {ended.why(USUAL)}", "Make the film smaller with --size, or shorter with --frames.")
    return ended


def _encoded(frames: Path, film: Film, work: Path, say: Callable[[str], None]) -> Path:
    """Encode raw frames in the working folder and move the film to its place; return its path."""
    ffmpeg = shutil.which("ffmpeg")
    suffix = film.out.suffix.lower()
    if suffix == GIF or ffmpeg is None:
        if suffix != GIF:
            say(NO_FFMPEG)
        target = film.out.with_suffix(GIF)
        pictures = _pictures(frames, film)
        next(pictures).save(
            work / "film.gif", save_all=True, append_images=pictures, duration=round(1000 / FPS), loop=0
        )
        (work / "film.gif").replace(target)
        return target
    aside = work / f"film{suffix}"
    raw = ("-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{film.width}x{film.height}", "-r", str(FPS))
    even = ("-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-pix_fmt", "yuv420p")
    command = [ffmpeg, "-y", "-loglevel", "error", *raw, "-i", str(frames), "-an", *even]
    ended = run_bounded([*command, *CODECS.get(suffix, H264), str(aside)], USUAL, folder=work)
    _must(ended, f"{film.out}: ffmpeg failed")
    if not aside.is_file() or not aside.stat().st_size:
        raise OutputError(f"{film.out}: ffmpeg reported success but wrote nothing", "Name a file that ends in .gif.")
    aside.replace(film.out)
    return film.out


def _pictures(frames: Path, film: Film) -> Iterator[Image.Image]:
    with open_regular(frames) as file:
        while data := file.read(film.frame_bytes):
            yield Image.fromarray(np.frombuffer(data, np.uint8).reshape(film.height, film.width, 3))
