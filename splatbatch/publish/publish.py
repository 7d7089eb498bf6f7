"""Publishes accepted splats as files for other programs; unchanged files are kept, failures leave no partial file."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from splatbatch import __version__
from splatbatch.config import nearest
from splatbatch.errors import ConfigError, OutputError, SplatbatchError
from splatbatch.monitor.messages import PipeWriter
from splatbatch.output.records.publication import CompressionLoss, PublishedFile
from splatbatch.publish.convert import ConversionJob, as_file, convert
from splatbatch.publish.formats import FORMATS, KINDS, PAGE, TILES, SplatFormat
from splatbatch.publish.loss import measure, measure_tiles
from splatbatch.publish.page import VERSION as PAGE_VERSION
from splatbatch.publish.page import write_page
from splatbatch.publish.rows import folder_bytes, put
from splatbatch.publish.source import PublishedSplat, SourcePart
from splatbatch.publish.target import TargetFolder
from splatbatch.publish.tiles.write import Tiles
from splatbatch.publish.tool import VERSION as TOOL_VERSION
from splatbatch.publish.tool import SplatTransform, find_tool
from splatbatch.splats.export import WHOLE, ExportOptions
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.inspection import SCENE
from splatbatch.tasks.product import hashes_in, key_of
from splatbatch.text import plural

VERSION = 2
"""Version of the content of published files; raise it when that changes, so that `publish` writes all again."""
MOST_IN_ONE = 5_000_000
"""Most Gaussians of a scene that become one file; of a larger scene each patch becomes a file."""
PART_BY_PART = "the scene was written as one file per patch, whose loss of quality is not measured"
MEASURING_FAILED = "the loss of quality by compression could not be measured"
NO_DECODER = "loss of quality not measured: splat-transform, which reads the file back, is not installed"


@dataclass(frozen=True)
class PublishRequest:
    """Options of one `publish`: formats, target folder, whether the loss of PSNR is measured, place on Earth.

    `crs` is the coordinate reference system of the scene, as "EPSG:32632"; empty: the place on Earth is unknown.
    """

    kinds: tuple[str, ...]
    """Names of what to publish, in the order asked for: formats as "sog", "tiles" (3D Tiles), "html" (a web page)."""
    target: TargetFolder
    is_measured: bool = True
    crs: str = ""
    cut: ExportOptions = WHOLE
    """Gaussians and colour degrees that a PLY leaves out, and the frame of its coordinates."""

    @classmethod
    def of(cls, batch: Batch, to: Path | None = None, formats: str = "", *, forced: bool = False) -> PublishRequest:
        """Return the options from the YAML's `publish` section, overridden by `--to`, `--as` and `--force`.

        The publish.json of the target folder is read; nothing is written.

        Args:
            batch: the batch, for its YAML and its output folder.
            to: target folder; None: `publish.folder` of the YAML.
            formats: names of formats, separated by commas; empty: `publish.formats` of the YAML.
            forced: whether files of other programs in the target folder may be overwritten.

        Raises:
            ConfigError: a format is unknown, no format is named, or the target is a file.
            OutputError: the target folder lies among files of the batch, cannot be read, or has other files but no
                publish.json.
            LaterFormatError: a later version of splatbatch wrote publish.json.
        """
        settings = batch.config.publish
        kinds = parse_kinds(formats) if formats else tuple(dict.fromkeys(settings.formats))
        if not kinds:
            hint = f"Name at least one by --as: {', '.join(KINDS)}. Or set publish.formats in the YAML."
            raise ConfigError("no format is named", hint)
        target = TargetFolder(to or settings.folder, forced)
        target.check(batch.output.path)
        batch.check_apart("--to" if to else "publish.folder", target.folder, target.folder)
        return cls(kinds, target, is_measured=settings.measure, crs=batch.config.scene.crs or "")


def parse_kinds(text: str) -> tuple[str, ...]:
    """Return the names of formats in a comma-separated list, in lower case, each once and in order.

    Empty entries are skipped, so that the result is empty for an empty text.

    Raises:
        ConfigError: a name is not a format, "tiles" or "html".
    """
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in KINDS:
            raise ConfigError(f"--as {name}: no such format", nearest(name, KINDS))
    return tuple(dict.fromkeys(names))


@dataclass
class Publisher:
    """Publishes splats one after the other and updates publish.json after each file.

    An error in publishing or measuring one file is collected in `failed`; publishing continues with the next file.
    `request` has the options, and `telling` shows progress.
    """

    request: PublishRequest
    telling: PipeWriter
    work: Path
    """Existing working folder on the same disk as the target folder."""
    failed: list[SplatbatchError] = field(default_factory=list)
    """Errors of publishing or measuring single files so far, in order; empty: there was none."""

    def all(self, splats: Sequence[PublishedSplat]) -> None:
        """Publish all splats: single files first, then tiles, then pages.

        Files that are up to date stay as they are. Errors that concern a file are collected in `failed`, not raised.

        Raises:
            OSError: the working folder cannot be written, or publish.json cannot be while losses are recorded.
        """
        for splat in splats:
            self.telling.say(f"{splat.name}: {splat.num_gaussians:,} Gaussians, {splat.header.file_bytes / 1e6:.1f} MB")
            self.request.target.remember(splat)
            for part in splat.in_parts(MOST_IN_ONE):
                self._part(splat, part)
        if TILES in self.request.kinds:
            with self._survived():
                self._tiles([splat for splat in splats if splat.name == SCENE] or splats)
        for splat in splats if PAGE in self.request.kinds else ():
            with self._survived():
                self._page(splat)

    def _part(self, splat: PublishedSplat, part: SourcePart) -> None:
        """Publish a part of a splat as one file of each format, and measure the files that were decoded."""
        work = self._empty("part")
        decoded = dict[str, Path]()
        for form in (FORMATS[kind] for kind in self.request.kinds if kind in FORMATS):
            with self._survived():
                decoded |= self._file(splat, ConversionJob(part, form, work, cut=self.request.cut))
        self._measured(splat, part, decoded, work)

    def _file(self, splat: PublishedSplat, job: ConversionJob) -> dict[str, Path]:
        """Publish one file, unless it is up to date; return what it was decoded to, by its name, for measuring."""
        form, part = job.form, job.part
        name = form.place(part.name)
        cut = [job.cut] if form.writer == "ply" and job.cut != WHOLE else []
        key = key_of(VERSION, part.key, form.name, form.arguments, TOOL_VERSION, self.request.is_measured, *cut)
        if self.request.target.is_there(name, key, self.telling.say):
            self.telling.say(f"{name}: up to date, kept as it is")
            return {}
        self.request.target.place(name)
        began = time.monotonic()
        self.telling.say(f"{name} …")
        written = convert(job, self._tool(form))
        is_unread = form.name != "ply" and self.request.is_measured and not written.decoded
        output = PublishedFile(
            kind=form.name,
            of=splat.name,
            key=key,
            bytes_before=4 * len(splat.header.properties) * part.num_gaussians,
            num_gaussians=written.num_gaussians or part.num_gaussians,
            notes=(*written.notes, NO_DECODER) if is_unread else written.notes,
        )
        self._put(job.aside, name, output, began)
        return {name: written.decoded} if written.decoded else {}

    def _page(self, splat: PublishedSplat) -> None:
        """Write and measure the page of a splat, unless an up-to-date page exists."""
        request, target = self.request, self.request.target
        key = key_of(
            PAGE_VERSION, splat.sha256, request.crs, dict(splat.figures), TOOL_VERSION, __version__, request.is_measured
        )
        names = (f"{splat.name}.html", f"{splat.name}-page")
        if any(target.is_there(name, key, self.telling.say) for name in names):
            self.telling.say(f"{splat.name}: its web page is up to date, kept as it is")
            return
        for name in names:
            target.place(name)
        began = time.monotonic()
        self.telling.say(f"{splat.name}: its web page …")
        work = self._empty("page")
        aside, written = write_page(splat, request.crs, work, find_tool(self.telling.say))
        name = names[0] if aside.is_file() else names[1]
        output = PublishedFile(
            kind=PAGE,
            of=splat.name,
            key=key,
            bytes_before=splat.header.file_bytes - splat.header.header_bytes,
            num_gaussians=splat.num_gaussians,
            notes=written.notes,
        )
        self._put(aside, name, output, began)
        self._measured(splat, splat.whole(), {name: written.decoded} if written.decoded else {}, work)

    def _tiles(self, splats: Sequence[PublishedSplat]) -> None:
        """Write the tiles of splats that have changed, and measure their loss; remove a new folder if that fails."""
        target, telling = self.request.target, self.telling
        place = target.place(TILES)
        before = target.known.outputs.get(TILES, PublishedFile(TILES))
        began, is_new = time.monotonic(), not place.exists()
        target.begin(TILES, PublishedFile(TILES))
        tiles = Tiles(place, self.work, self.request.crs, telling)
        try:
            tiled = tiles.write(splats, before)
        except BaseException:
            if is_new:
                shutil.rmtree(place, ignore_errors=True)
                target.note(TILES, None)
            raise
        output = replace(tiled, bytes=folder_bytes(place), seconds=round(time.monotonic() - began, 2))
        target.note(TILES, output)
        telling.say(f"{TILES}: {output.bytes / 1e6:.1f} MB, took {output.seconds:.0f} s")
        if self.request.is_measured:
            with self._survived():
                target.note(TILES, measure_tiles(splats, tiles, output))

    def _put(self, aside: Path, name: str, output: PublishedFile, began: float) -> None:
        """Move a written file or folder to its place, and record it with size, hashes and seconds."""
        target = self.request.target
        place = target.folder / name
        target.begin(name, PublishedFile(output.kind, output.of))
        put(aside, place)
        seconds, size = round(time.monotonic() - began, 2), folder_bytes(place)
        target.note(name, replace(output, bytes=size, sha256=hashes_in(place), seconds=seconds))
        share = "" if output.kind == PAGE else f", {size / max(1, output.bytes_before):.0%} of the PLY file"
        self.telling.say(f"{name}: {size / 1e6:.1f} MB{share}, took {seconds:.0f} s")

    def _empty(self, name: str) -> Path:
        """Return an empty subfolder of the working folder; earlier content is removed."""
        shutil.rmtree(self.work / name, ignore_errors=True)
        (self.work / name).mkdir()
        return self.work / name

    def _measured(self, splat: PublishedSplat, part: SourcePart, decoded: dict[str, Path], work: Path) -> None:
        """Measure the loss of decoded files and record it in publish.json.

        If measuring fails, the file's key is cleared, so that the next `publish` writes and measures it again.
        """
        target = self.request.target
        if not self.request.is_measured or not decoded:
            return
        if part.num_gaussians < splat.num_gaussians:
            for name in decoded:
                target.change(name, notes=(PART_BY_PART,))
            return
        losses: Mapping[str, CompressionLoss] | None = None
        with self._survived():
            self.telling.say(f"{part.name}: measuring the loss of quality: rendering published files and the original")
            losses = measure(splat, as_file(part, work), decoded, work)
        for name in decoded if losses is None else ():
            target.change(name, key="", notes=(MEASURING_FAILED,))
        for name, loss in (losses or {}).items():
            target.change(
                name,
                psnr=loss.psnr,
                loss_db=loss.loss_db,
                between_db=loss.between_db,
                num_photos=loss.num_photos,
            )
            self.telling.say(
                f"{name}: PSNR {loss.psnr:.2f} dB, {loss.loss_db:+.2f} dB lost "
                f"({plural(loss.num_photos, 'photograph')})"
            )

    def _tool(self, form: SplatFormat) -> SplatTransform | None:
        """Return splat-transform, installed if necessary; None if it cannot be had and the format does not need it."""
        if form.writer == "ply":
            return None
        try:
            return find_tool(self.telling.say)
        except SplatbatchError:
            if form.writer == "tool":
                raise
            return None

    @contextmanager
    def _survived(self) -> Iterator[None]:
        """Collect an error of the enclosed block in `failed` instead of raising it."""
        try:
            yield
        except SplatbatchError as error:
            self.failed.append(error)
        except OSError as error:
            words = f"{error.filename2 or error.filename or 'the target'}: {error.strerror or error}"
            self.failed.append(OutputError(words, "Check the free space and permissions of the disk."))


def publish(splats: Sequence[PublishedSplat], request: PublishRequest, output: Path, telling: PipeWriter) -> None:
    """Publish splats into the target folder, whose publish.json then lists all published files in the folder.

    Files that are up to date stay as they are; others are replaced whole.

    Args:
        splats: accepted splats.
        request: formats and target folder.
        output: the output folder of the batch; nothing is written there.
        telling: shows progress.

    Raises:
        SplatbatchError: some or all files could not be published, or their loss of quality could not be measured. Files
            that were published are in place and in publish.json.
        OSError: the working folder or publish.json cannot be written.
    """
    request.target.check(output)
    with request.target.work() as work:
        request.target.check_room(sum(splat.header.file_bytes for splat in splats))
        publishing = Publisher(request, telling, work)
        publishing.all(splats)
    if failed := publishing.failed:
        raise type(failed[0])(
            "; ".join(map(str, failed)), " ".join(dict.fromkeys(one.hint for one in failed if one.hint))
        )
