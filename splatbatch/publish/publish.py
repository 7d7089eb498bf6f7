"""Publishes accepted splats as files for other programs; unchanged files are kept, failures leave no partial file."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from splatbatch import __version__
from splatbatch.config import nearest
from splatbatch.errors import ConfigError, OutputError, SplatbatchError
from splatbatch.monitor.messages import PipeWriter
from splatbatch.output.records.publication import CompressionLoss, Publication, PublishedFile
from splatbatch.publish.convert import ConversionJob, ConvertedFile, as_file, convert
from splatbatch.publish.formats import FORMATS, KINDS, PAGE, TILES, SplatFormat
from splatbatch.publish.loss import measure, measure_tiles
from splatbatch.publish.page import VERSION as PAGE_VERSION
from splatbatch.publish.page import page_name, write_page
from splatbatch.publish.rows import folder_bytes
from splatbatch.publish.source import PublishedSplat, SourcePart
from splatbatch.publish.target import PublishedFolder, PublishTarget
from splatbatch.publish.tiling import TilePlacement, tile
from splatbatch.publish.tool import VERSION as TOOL_VERSION
from splatbatch.publish.tool import SplatTransform, find_tool
from splatbatch.splats.export import WHOLE, ExportOptions
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.product import hashes_in, key_of
from splatbatch.text import plural

VERSION = 2
"""Raise this when the content of published files changes: all are then written again."""
MOST_IN_ONE = 5_000_000
"""Most Gaussians of a scene that become one file; a larger scene is written part by part."""
PART_BY_PART = "the scene was written part by part, and the parts are not measured"
MEASURING_FAILED = "what compression costs could not be measured"
NO_DECODER = "splat-transform, which reads it back, is not installed: not measured"


@dataclass(frozen=True)
class PublishRequest:
    """Options of one `publish`: formats, target folder, whether the loss is measured."""

    kinds: tuple[str, ...]
    """Formats, "tiles" or "html", in the order in which they are asked for."""
    target: PublishTarget
    is_measured: bool = True
    crs: str = ""
    cut: ExportOptions = WHOLE
    """Gaussians and colour degrees that a PLY leaves out."""

    @classmethod
    def of(cls, batch: Batch, to: Path | None = None, formats: str = "", *, forced: bool = False) -> PublishRequest:
        """Return the options from the YAML's `publish` section, overridden by `--to`, `--as` and `--force`.

        Args:
            batch: the batch, for its YAML and its output folder.
            to: target folder; None: publish.folder.
            formats: formats separated by commas; empty: publish.formats.
            forced: whether files of other programs in the target folder may be overwritten.

        Raises:
            SplatbatchError: a format is unknown, no format is named, or the target folder cannot be used.
        """
        settings = batch.config.publish
        kinds = parse_kinds(formats) if formats else tuple(dict.fromkeys(settings.formats))
        if not kinds:
            message = "--as: nothing to publish as"
            raise ConfigError(message, f"Name some of {', '.join(KINDS)}; or set publish.formats.")
        target = PublishTarget(to or settings.folder, forced)
        target.check(batch.output.path)
        batch.check_apart("--to" if to else "publish.folder", target.folder, target.folder)
        return cls(kinds, target, is_measured=settings.measure, crs=batch.config.scene.crs or "")


def parse_kinds(text: str) -> tuple[str, ...]:
    """Return the formats in a comma-separated list, each once and in order.

    Raises:
        ConfigError: a name is not a format.
    """
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in KINDS:
            raise ConfigError(f"--as {name}: no such format; there are {', '.join(KINDS)}", nearest(name, [*KINDS]))
    return tuple(dict.fromkeys(names))


@dataclass
class Publisher:
    """Publishes splats one after the other and updates publish.json after each file.

    An error in one file is collected in `failed`; publishing continues with the next.
    """

    wish: PublishRequest
    telling: PipeWriter
    kept: PublishedFolder
    work: Path
    """Working folder on the same disk as the target folder."""
    failed: list[SplatbatchError] = field(default_factory=list)
    """Errors so far, in order."""

    def all(self, splats: Sequence[PublishedSplat]) -> None:
        """Publish all splats: single files first, then tiles, then pages."""
        for splat in splats:
            self.telling.say(f"{splat.name}: {splat.num_gaussians:,} Gaussians, {splat.header.file_bytes / 1e6:.1f} MB")
            self.splat(splat)
        if TILES in self.wish.kinds:
            with self._survived():
                self._tiles(splats)
        for splat in splats if PAGE in self.wish.kinds else ():
            with self._survived():
                self._page(splat)

    def _page(self, splat: PublishedSplat) -> None:
        """Write and measure the page of a splat, unless an up-to-date page exists."""
        key = key_of(
            PAGE_VERSION,
            splat.sha256,
            self.wish.crs,
            dict(splat.figures),
            TOOL_VERSION,
            __version__,
            self.wish.is_measured,
        )
        names = (f"{splat.name}.html", f"{splat.name}-page")
        if any(self.kept.is_there(name, key) for name in names):
            self.telling.say(f"{splat.name}: its page is as it was")
            return
        for name in names:
            self.kept.place(name)
        began = time.monotonic()
        self.telling.say(f"{splat.name}: a page …")
        work = self._empty("page")
        page = write_page(splat, self.wish.crs, work, find_tool(self.telling.say))
        name = page_name(splat.name, page.aside)
        output = PublishedFile(
            kind=PAGE,
            of=splat.name,
            key=key,
            bytes_before=splat.header.file_bytes - splat.header.header_bytes,
            num_gaussians=splat.num_gaussians,
            notes=page.notes,
        )
        output = self._put(page.aside, name, output, began)
        self.telling.say(f"{name}: {output.bytes / 1e6:.1f} MB, {output.seconds:.0f} s")
        whole = SourcePart(splat.name, splat.path, 0, splat.num_gaussians, splat.sha256)
        self._measured(splat, whole, {name: page.splat.decoded} if page.splat.decoded else {}, work)

    def _tiles(self, splats: Sequence[PublishedSplat]) -> None:
        """Write the tiles of splats that have changed, and measure their loss; remove a new folder if that fails."""
        place = self.kept.place(TILES)
        before = self.kept.known.outputs.get(TILES, PublishedFile(TILES))
        began, is_new = time.monotonic(), not place.exists()
        self.kept.begin(TILES, PublishedFile(TILES))
        try:
            tiled = tile(
                splats, TilePlacement(place, self.work, self.wish.crs, self.telling.advance, self.telling.say), before
            )
        except BaseException:
            if is_new:
                shutil.rmtree(place, ignore_errors=True)
                self.kept.forget(TILES)
            raise
        output = replace(tiled, bytes=folder_bytes(place), seconds=round(time.monotonic() - began, 2))
        self.kept.note(TILES, output)
        self.telling.say(f"{TILES}: {output.bytes / 1e6:.1f} MB, {output.seconds:.0f} s")
        if self.wish.is_measured:
            with self._survived():
                laid = TilePlacement(place, self.work, self.wish.crs, self.telling.advance)
                self.kept.note(TILES, measure_tiles(splats, laid, output))

    def splat(self, splat: PublishedSplat) -> None:
        """Publish a splat in all requested file formats; errors are collected in `failed`."""
        forms = [FORMATS[kind] for kind in self.wish.kinds if kind in FORMATS]
        self.kept.remember(splat)
        for part in splat.in_parts(MOST_IN_ONE):
            self._part(splat, part, forms)

    def _part(self, splat: PublishedSplat, part: SourcePart, forms: Sequence[SplatFormat]) -> None:
        """Publish a part of a splat as one file of each format, and measure the files that were decoded."""
        folder = self._empty("part")
        decoded = {}
        for form in forms:
            name = form.place(part.name)
            known = (VERSION, part.key, form.name, form.arguments, TOOL_VERSION, self.wish.is_measured)
            is_cut = form.writer == "ply" and self.wish.cut != WHOLE
            key = key_of(*known, self.wish.cut) if is_cut else key_of(*known)
            if self.kept.is_there(name, key):
                self.telling.say(f"{name}: as it was")
                continue
            with self._survived():
                written = self._written(ConversionJob(part, form, folder, cut=self.wish.cut), key, splat)
                if written.decoded:
                    decoded[name] = written.decoded
        self._measured(splat, part, decoded, folder)

    def _written(self, job: ConversionJob, key: str, splat: PublishedSplat) -> ConvertedFile:
        """Write one file, move it to its place and record it in publish.json."""
        name = job.form.place(job.part.name)
        self.kept.place(name)
        began = time.monotonic()
        self.telling.say(f"{name} …")
        written = convert(job, self._tool(job.form))
        part_bytes = 4 * len(splat.header.properties) * job.part.num_gaussians
        output = PublishedFile(
            kind=job.form.name,
            of=splat.name,
            key=key,
            bytes_before=part_bytes,
            num_gaussians=written.num_gaussians or job.part.num_gaussians,
            notes=(*written.notes, *self._why_not_measured(job, written)),
        )
        output = self._put(job.aside, name, output, began)
        share = output.bytes / max(1, part_bytes)
        self.telling.say(f"{name}: {output.bytes / 1e6:.1f} MB, {share:.0%} of the PLY, {output.seconds:.0f} s")
        return written

    def _put(self, aside: Path, name: str, output: PublishedFile, began: float) -> PublishedFile:
        """Move a written file or folder to its place; record it with size, hashes and seconds; return the record."""
        place = self.kept.put(aside, name, PublishedFile(output.kind, output.of))
        seconds = round(time.monotonic() - began, 2)
        output = replace(output, bytes=folder_bytes(place), sha256=hashes_in(place), seconds=seconds)
        self.kept.note(name, output)
        return output

    def _empty(self, name: str) -> Path:
        """Return an empty subfolder of the working folder; earlier content is removed."""
        shutil.rmtree(self.work / name, ignore_errors=True)
        (self.work / name).mkdir()
        return self.work / name

    def _why_not_measured(self, job: ConversionJob, written: ConvertedFile) -> tuple[str, ...]:
        if job.form.name == "ply" or not self.wish.is_measured:
            return ()
        return () if written.decoded else (NO_DECODER,)

    def _measured(self, splat: PublishedSplat, part: SourcePart, decoded: dict[str, Path], folder: Path) -> None:
        """Measure the loss of decoded files and record it in publish.json.

        If measuring fails, the file's key is cleared, so that the next `publish` writes and measures it again.
        """
        if not self.wish.is_measured or not decoded:
            return
        if part.num_gaussians < splat.num_gaussians:
            for name in decoded:
                self.kept.note(name, replace(self.kept.known.outputs[name], notes=(PART_BY_PART,)))
            return
        num_failed = len(self.failed)
        with self._survived():
            self._compared(splat, part, decoded, folder)
        for name in decoded if len(self.failed) > num_failed else ():  # without a key it is made again next time
            self.kept.note(name, replace(self.kept.known.outputs[name], key="", notes=(MEASURING_FAILED,)))

    def _compared(self, splat: PublishedSplat, part: SourcePart, decoded: dict[str, Path], folder: Path) -> None:
        self.telling.say(f"{part.name}: rendering what came back, beside the original")
        original = as_file(part, folder)
        for name, loss in measure(splat, original, decoded, folder).items():
            self.kept.note(name, with_loss(self.kept.known.outputs[name], loss))
            self.telling.say(
                f"{name}: {loss.psnr:.2f} dB, {loss.loss_db:+.2f} dB lost ({plural(loss.num_photos, 'photograph')})"
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
            words = f"{error.filename or 'the target'}: {error.strerror or error}"
            self.failed.append(OutputError(words, "Check the disk."))


def with_loss(output: PublishedFile, loss: CompressionLoss) -> PublishedFile:
    """Return the record of a published file with its measured loss filled in."""
    return replace(output, psnr=loss.psnr, loss_db=loss.loss_db, between_db=loss.between_db, num_photos=loss.num_photos)


def publish(splats: Sequence[PublishedSplat], wish: PublishRequest, output: Path, telling: PipeWriter) -> Publication:
    """Publish splats; return the record of everything in the target folder afterwards.

    Args:
        splats: accepted splats.
        wish: formats and target folder.
        output: the output folder of the batch; nothing is written there.
        telling: shows progress.

    Raises:
        SplatbatchError: nothing, or only some files could be published; these are in place and in publish.json.
    """
    known = wish.target.check(output)
    with wish.target.work() as work:
        wish.target.check_room(sum(splat.header.file_bytes for splat in splats))
        publishing = Publisher(wish, telling, PublishedFolder(wish.target, known, telling.say), work)
        publishing.all(splats)
    if publishing.failed:
        first = publishing.failed[0]
        raise type(first)("; ".join(error.message for error in publishing.failed), first.hint)
    return publishing.kept.known
