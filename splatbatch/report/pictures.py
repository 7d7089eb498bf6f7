"""Pictures of held-out views (photograph, rendering, error) from attempts' folders, within the page's size budget."""

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
"""Largest picture file that is read, in bytes; larger files were not written by training."""
RANKS_OF_A_PATCH = ("median", "worst", "best")
"""Ranks, by PSNR, of the held-out view that represents a patch: the first that the attempt lists in views.json."""
SMALL_PX = 256
SMALL_QUALITY = 62
MOST_BESIDE = 12
"""Most splats that are shown side by side, the last ones."""
ERROR_STOPS = ((0, 0, 4), (87, 16, 110), (188, 55, 84), (249, 142, 9), (252, 255, 164))
FULL_ERROR = 0.25
"""Mean error of the channels, 0 to 1, at which the colours of error maps end; training draws maps by this limit."""
Pictured = tuple[str, AttemptFolder]
"""Label of a splat in captions, and the folder of the attempt that has pictures of the splat."""
Beside = tuple[str, list[tuple[str, str, str]]]
"""One view rendered by several splats: a heading, and for each picture its data URL, alternative text and caption."""


class PictureBudget:
    """Budget of bytes for pictures in a page, so that the page of many patches can still be opened.

    `size` is the budget at first, `left` what is left of it, both in bytes of base64.
    """

    def __init__(self, num_bytes: int) -> None:
        """Begin with `num_bytes` bytes, counted in base64; 0: no picture may be taken."""
        self.size = self.left = num_bytes

    @property
    def is_used(self) -> bool:
        """Return whether any bytes were reserved by `take`."""
        return self.left < self.size

    def take(self, *pictures: bytes) -> bool:
        """Reserve the bytes that pictures take in base64, for all of them or none; return whether they were free."""
        num_bytes = sum(len(one) * 4 // 3 for one in pictures)
        if num_bytes > self.left:
            return False
        self.left -= num_bytes
        return True


@dataclass(frozen=True)
class PicturedView:
    """A held-out view with its pictures as data URLs; all three are empty if the budget of the page was used up.

    `rank` is the place of the view by PSNR: "worst", "median" or "best". `folder` is the folder with the pictures.
    """

    rank: str
    view: EvaluatedView
    folder: Path
    photo: str = ""
    render: str = ""
    error: str = ""

    @property
    def figures(self) -> str:
        """Return the known figures as text, as "PSNR 26.54 dB, SSIM 0.831"; empty if none is known."""
        psnr = "" if self.view.psnr is None else f"PSNR {self.view.psnr:.2f} dB"
        ssim = "" if self.view.ssim is None else f"SSIM {self.view.ssim:.3f}"
        return ", ".join(filter(None, (psnr, ssim)))


def views_of(folder: AttemptFolder | None, budget: PictureBudget) -> Iterator[PicturedView]:
    """Yield the held-out views of which an attempt has all pictures, by rank: worst, median, best.

    The first view beyond the budget is yielded without pictures, as the last one.

    Args:
        folder: folder of the attempt; None: nothing is yielded.
        budget: bytes of pictures that the page may take; it shrinks by the yielded pictures.
    """
    for rank, view in folder.read_views().items() if folder else ():
        pictures = [read_picture(folder.picture(rank, kind)) for kind in KINDS] if folder else []
        if not folder or not all(pictures):
            continue
        if not budget.take(*pictures):
            yield PicturedView(rank, view, folder.views.parent)
            return
        yield PicturedView(rank, view, folder.views.parent, *map(data_url, pictures))


def small_render(folder: AttemptFolder | None, budget: PictureBudget) -> str:
    """Return a small rendering that represents a patch, as a data URL, at most SMALL_PX on each side.

    The view of median PSNR is shown if there is one. Empty if the attempt has no such picture that can be
    decoded, or the budget is used up.

    Args:
        folder: folder of the attempt that has the pictures; None: the result is empty.
        budget: bytes of pictures that the page may take; it shrinks by the result.
    """
    names = {rank: view.name for rank, view in folder.read_views().items()} if folder else {}
    chosen = next((names[rank] for rank in RANKS_OF_A_PATCH if rank in names), None)
    return small_picture(folder, chosen, "render", budget) if folder and chosen is not None else ""


def small_picture(folder: AttemptFolder, name: str, kind: str, budget: PictureBudget) -> str:
    """Return a small picture of a held-out view as a data URL, at most SMALL_PX on each side.

    Empty if there is no such picture, it cannot be decoded, or the budget is used up.

    Args:
        folder: folder of the attempt that has the pictures.
        name: name of the photograph of the view.
        kind: "photo", "render" or "error".
        budget: bytes of pictures that the page may take; it shrinks by the result.
    """
    rank = next((rank for rank, view in folder.read_views().items() if view.name == name), "")
    small = _shrunk(read_picture(folder.picture(rank, kind))) if rank else b""
    return data_url(small) if small and budget.take(small) else ""


def attempts_side_by_side(output: OutputFolder, patch: ReportedPatch, budget: PictureBudget) -> Beside | None:
    """Return the same held-out view as each attempt at a patch renders it, for comparison.

    None if fewer than two attempts have pictures of the same view, or fewer than three pictures can be shown.
    """
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
    """Yield for each patch of a sweep the same held-out view as each variant renders it.

    Patches for which fewer than two variants have pictures of the same view are left out. So are those of which fewer
    than three pictures can be shown.
    """
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
    """Return the view that most splats have pictures of: its photograph, then each splat's rendering with its PSNR.

    Pictures that cannot be decoded or are beyond the budget are left out. None if fewer than two splats share a view,
    or fewer than three pictures are left.

    Args:
        heading: heading of the comparison.
        shown: the splats, of which the last MOST_BESIDE are compared.
        budget: bytes of pictures that the page may take; it shrinks by the returned pictures.
    """
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
            pictures.append((source, f"rendering of {name} by {words}", said))
    return (heading, pictures) if len(pictures) > 2 else None


def attempt_folder(output: OutputFolder, patch: ReportedPatch) -> AttemptFolder | None:
    """Return the folder of the attempt that the status of a patch names; None if it names none, or was removed."""
    return next((one for one in output.patch(patch.patch).attempts() if one.path.name == patch.attempt), None)


def _shrunk(jpeg: bytes) -> bytes:
    """Return a JPEG scaled down to at most SMALL_PX on each side; empty if it cannot be decoded."""
    from PIL import Image

    if not jpeg:
        return b""
    try:
        with Image.open(io.BytesIO(jpeg), formats=["JPEG"]) as picture:
            picture.thumbnail((SMALL_PX, SMALL_PX))
            written = io.BytesIO()
            picture.convert("RGB").save(written, "JPEG", quality=SMALL_QUALITY)
    except Exception:  # noqa: BLE001 - Pillow may raise any error on damaged files
        return b""
    return written.getvalue()


def read_picture(path: Path, start: bytes = b"\xff\xd8") -> bytes:
    """Return the content of a picture file, by default a JPEG; never fails.

    Empty if the file is missing, larger than MOST_PICTURE_BYTES, or does not begin with the bytes `start`.
    """
    try:
        data = read_regular(path, MOST_PICTURE_BYTES)
    except (OSError, ValueError):
        return b""
    return data if data.startswith(start) else b""


def data_url(picture: bytes, kind: str = "jpeg") -> str:
    """Return a picture file's content as a data URL; `kind` is its image type: "jpeg" or "webp"."""
    return f"data:image/{kind};base64,{base64.b64encode(picture).decode()}"


def error_color(share: float) -> str:
    """Return the colour of an error map as "#rrggbb", for an error as a share of FULL_ERROR.

    Shares below 0 count as 0, those above 1 as 1.
    """
    place = min(max(share, 0.0), 1.0) * (len(ERROR_STOPS) - 1)
    low = min(int(place), len(ERROR_STOPS) - 2)
    before, after = ERROR_STOPS[low : low + 2]
    mixed = (round(one + (other - one) * (place - low)) for one, other in zip(before, after, strict=True))
    return f"#{''.join(f'{channel:02x}' for channel in mixed)}"
