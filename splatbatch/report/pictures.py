"""Photograph, rendering and error of held-out views, as attempts have left them; as many as a page has room for."""

from __future__ import annotations

import base64
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from splatbatch.files import read_regular
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.metrics import EvaluatedView
from splatbatch.report.facts import ReportedPatch, SweepFacts

KINDS = ("photo", "render", "error")
MOST_PICTURE_BYTES = 60_000
"""A larger file is none of ours."""
RANKS_OF_A_PATCH = ("median", "worst", "best")
"""Which view stands for a patch, if it is there."""
SMALL_PX = 256
SMALL_QUALITY = 62
MOST_BESIDE = 12
NUM_SWATCHES = 17
ERROR_STOPS = ((0, 0, 4), (87, 16, 110), (188, 55, 84), (249, 142, 9), (252, 255, 164))
FULL_ERROR = 0.25
"""Of error maps, as the training draws them: colours from no difference to this one, of 1, and more."""
Pictured = tuple[str, AttemptFolder]
"""What is said of a splat, and the attempt that has left pictures of it."""
Beside = tuple[str, list[tuple[str, str, str]]]
"""One view as several splats show it: a heading, and of each picture source, what it shows, and words below it."""


class PictureBudget:
    """How many bytes of pictures a page may still take: a page of 200 patches must open, too."""

    def __init__(self, num_bytes: int) -> None:
        self.size = self.left = num_bytes

    @property
    def is_used(self) -> bool:
        """Return whether anything was taken."""
        return self.left < self.size

    def take(self, *pictures: bytes) -> bool:
        """Take the room that pictures need as text of a page; return whether there was enough."""
        num_bytes = sum(len(one) * 4 // 3 for one in pictures)
        if num_bytes > self.left:
            return False
        self.left -= num_bytes
        return True


@dataclass(frozen=True)
class PicturedView:
    """A held-out view; its pictures are sources of images, none where the page was full."""

    rank: str
    view: EvaluatedView
    folder: Path
    photo: str = ""
    render: str = ""
    error: str = ""

    @property
    def figures(self) -> str:
        """Return how good it is, as far as that is known."""
        psnr = "" if self.view.psnr is None else f"PSNR {self.view.psnr:.2f} dB"
        ssim = "" if self.view.ssim is None else f"SSIM {self.view.ssim:.3f}"
        return ", ".join(filter(None, (psnr, ssim)))


def views_of(folder: AttemptFolder | None, budget: PictureBudget) -> Iterator[PicturedView]:
    """Yield the held-out views that an attempt has pictured, the worst first, as far as the budget goes."""
    for rank, view in folder.read_views().items() if folder else ():
        pictures = [read_picture(folder.picture(rank, kind)) for kind in KINDS] if folder else []
        if not folder or not all(pictures):
            continue
        if not budget.take(*pictures):
            yield PicturedView(rank, view, folder.views.parent)
            return
        yield PicturedView(rank, view, folder.views.parent, *map(data_url, pictures))


def small_render(folder: AttemptFolder | None, budget: PictureBudget) -> str:
    """Return the rendering that stands for a patch, small, as a data URL; empty without one, or without room."""
    names = {rank: view.name for rank, view in folder.read_views().items()} if folder else {}
    chosen = next((names[rank] for rank in RANKS_OF_A_PATCH if rank in names), None)
    return small_picture(folder, chosen, "render", budget) if folder and chosen is not None else ""


def small_picture(folder: AttemptFolder, name: str, kind: str, budget: PictureBudget) -> str:
    """Return a picture of the view of a photograph, small, as a data URL; empty without one, or without room."""
    rank = next((rank for rank, view in folder.read_views().items() if view.name == name), "")
    small = _shrunk(read_picture(folder.picture(rank, kind))) if rank else b""
    return data_url(small) if small and budget.take(small) else ""


def attempts_side_by_side(output: OutputFolder, patch: ReportedPatch, budget: PictureBudget) -> Beside | None:
    """Return the same view of each attempt at a patch that has left pictures; nothing of fewer than two."""
    pictured = {one.number: one for one in patch.attempts if one.is_pictured}
    shown = [
        (f"attempt {folder.number}{', kept' if pictured[folder.number].is_kept else ''}", folder)
        for folder in output.patch(patch.patch).attempts()
        if folder.number in pictured
    ]
    return side_by_side("The same view of each attempt", shown, budget)


def variants_side_by_side(
    output: OutputFolder, patches: Sequence[ReportedPatch], sweep: SweepFacts, budget: PictureBudget
) -> Iterator[Beside]:
    """Yield for each patch of a sweep the same view under each variant."""
    labels = {row.variant: row.label for row in sweep.variants}
    for name in dict.fromkeys(one.of_patch for one in patches):
        of_patch = [one for one in patches if one.of_patch == name and one.variant]
        found = [
            (labels.get(one.variant, one.variant), folder)
            for one in of_patch
            if (folder := attempt_folder(output, one))
        ]
        if same := side_by_side(f"The same view of {name}", found, budget):
            yield same


def side_by_side(heading: str, shown: Sequence[Pictured], budget: PictureBudget) -> Beside | None:
    """Return one view as most of these show it, with its photograph and the PSNR of each, as far as the budget goes."""
    known = [
        (words, folder, {view.name: view.psnr for view in folder.read_views().values()})
        for words, folder in shown[-MOST_BESIDE:]
    ]
    names = Counter(name for _, _, views in known for name in views)
    if not names or (most := max(names.values())) < 2:
        return None
    name = next(one for one, number in names.items() if number == most)
    having = [(words, folder, views[name]) for words, folder, views in known if name in views]
    photo = small_picture(having[-1][1], name, "photo", budget)
    pictures = [(photo, f"photograph {name}", "photograph")] if photo else []
    for words, folder, psnr in having:
        said = f"{words}: {psnr:.2f} dB" if psnr is not None else words
        if source := small_picture(folder, name, "render", budget):
            pictures.append((source, f"{name} as {words} renders it", said))
    return (heading, pictures) if len(pictures) > 2 else None


def attempt_folder(output: OutputFolder, patch: ReportedPatch) -> AttemptFolder | None:
    """Return the folder of the attempt that a patch's state is about; None if there is none."""
    return next((one for one in output.patch(patch.patch).attempts() if one.path.name == patch.attempt), None)


def _shrunk(jpeg: bytes) -> bytes:
    """Return a JPEG that is at most SMALL_PX wide; empty where it is none, whatever is wrong with it."""
    from PIL import Image

    if not jpeg:
        return b""
    try:
        with Image.open(io.BytesIO(jpeg), formats=["JPEG"]) as picture:
            picture.thumbnail((SMALL_PX, SMALL_PX))
            written = io.BytesIO()
            picture.convert("RGB").save(written, "JPEG", quality=SMALL_QUALITY)
    except Exception:  # noqa: BLE001 - Pillow raises whatever the bytes lead it to
        return b""
    return written.getvalue()


def read_picture(path: Path, start: bytes = b"\xff\xd8") -> bytes:
    """Return a picture of ours, a JPEG; empty if it is none."""
    try:
        data = read_regular(path, MOST_PICTURE_BYTES)
    except (OSError, ValueError):
        return b""
    return data if data.startswith(start) else b""


def data_url(picture: bytes, kind: str = "jpeg") -> str:
    """Return a picture as the source of an image that loads nothing."""
    return f"data:image/{kind};base64,{base64.b64encode(picture).decode()}"


def error_colors() -> list[str]:
    """Return what the colours of error maps are, from no difference to the greatest: the same in every report."""
    return [error_color(index / (NUM_SWATCHES - 1)) for index in range(NUM_SWATCHES)]


def error_color(share: float) -> str:
    """Return the colour of an error map, of 0 for no difference and 1 for the greatest that it tells apart."""
    place = min(max(share, 0.0), 1.0) * (len(ERROR_STOPS) - 1)
    low = min(int(place), len(ERROR_STOPS) - 2)
    before, after = ERROR_STOPS[low : low + 2]
    mixed = (round(one + (other - one) * (place - low)) for one, other in zip(before, after, strict=True))
    return f"#{''.join(f'{channel:02x}' for channel in mixed)}"
