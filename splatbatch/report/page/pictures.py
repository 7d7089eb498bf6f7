"""Photograph, rendering and error of held-out views: read from the attempt that made the splat, shown with a slider."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path

from splatbatch.files import read_regular
from splatbatch.output.attempt_folder import ATTEMPT_PREFIX, AttemptFolder
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.metrics import EvaluatedView
from splatbatch.report.facts import ReportedPatch
from splatbatch.report.page.html import Html, tag

KINDS = ("photo", "render", "error")
MOST_PICTURE_BYTES = 60_000
"""A larger file is none of ours."""
RANKS_OF_A_PATCH = ("median", "worst", "best")
"""Which view stands for a patch, if it is there."""
SMALL_PX = 256
SMALL_QUALITY = 62
NUM_SWATCHES, SWATCH_PX = 17, 8
ERROR_STOPS = ((0, 0, 4), (87, 16, 110), (188, 55, 84), (249, 142, 9), (252, 255, 164))
FULL_ERROR = 0.25
"""Of error maps, as the training draws them: colours from no difference to this one, of 1, and more."""


class PictureBudget:
    """How many bytes of pictures a page may still take: a page of 200 patches must open, too."""

    def __init__(self, num_bytes: int) -> None:
        self.left = num_bytes

    def take(self, num_bytes: int) -> bool:
        """Take a share; return whether there was enough."""
        if num_bytes > self.left:
            return False
        self.left -= num_bytes
        return True


def views_of(folder: AttemptFolder | None, budget: PictureBudget) -> Iterator[Html]:
    """Yield the held-out views that an attempt has pictured, the worst first, as far as the budget goes."""
    for rank, view in folder.read_views().ranked() if folder else ():
        pictures = [read_picture(folder.picture(rank, kind)) for kind in KINDS] if folder else []
        if not all(pictures):
            continue
        if not budget.take(sum(len(picture) * 4 // 3 for picture in pictures)):
            yield tag("p", f"The pictures of the {rank} view are in {folder and folder.views.parent}.", class_="quiet")
            return
        yield _view(rank, view, [data_url(jpeg) for jpeg in pictures])


def small_render(folder: AttemptFolder, budget: PictureBudget) -> str:
    """Return the rendering that stands for a patch, small, as a data URL; empty without one, or without room."""
    names = {rank: view.name for rank, view in folder.read_views().ranked()}
    chosen = next((names[rank] for rank in RANKS_OF_A_PATCH if rank in names), None)
    return "" if chosen is None else small_picture(folder, chosen, "render", budget)


def small_picture(folder: AttemptFolder, name: str, kind: str, budget: PictureBudget) -> str:
    """Return a picture of the view of a photograph, small, as a data URL; empty without one, or without room."""
    rank = next((rank for rank, view in folder.read_views().ranked() if view.name == name), "")
    small = _shrunk(read_picture(folder.picture(rank, kind))) if rank else b""
    return data_url(small) if small and budget.take(len(small) * 4 // 3) else ""


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


def data_url(picture: bytes, kind: str = "jpeg") -> str:
    """Return a picture as the source of an image that loads nothing."""
    return f"data:image/{kind};base64,{base64.b64encode(picture).decode()}"


def attempt_folder(output: OutputFolder, patch: ReportedPatch) -> AttemptFolder | None:
    """Return the folder of the attempt that a patch's state is about; None if there is none."""
    name = patch.attempt
    if not name.startswith(ATTEMPT_PREFIX) or not name.removeprefix(ATTEMPT_PREFIX).isdecimal():
        return None
    return AttemptFolder(output.patch(patch.patch).path / name)


def _view(rank: str, view: EvaluatedView, sources: list[str]) -> Html:
    photo, render, error = sources
    size = {"width": view.width, "height": view.height}
    name = view.name
    compared = tag(
        "div",
        tag("img", src=photo, alt=f"photograph {name}", loading="lazy", **size),
        tag("img", src=render, alt="rendering of the splat", class_="render", loading="lazy", **size),
        tag("input", type="range", min=0, max=100, value=50, step=0.5, aria_label="photograph or rendering"),
        tag("span", "photo", class_="side left"),
        tag("span", "render", class_="side right"),
        class_="compare",
    )
    mistake = tag(
        "div", tag("img", src=error, alt="error", loading="lazy", **size), tag("span", "error", class_="side right")
    )
    figures = ", ".join(filter(None, (_figure("PSNR", view.psnr, ".2f", " dB"), _figure("SSIM", view.ssim, ".3f"))))
    caption = tag("figcaption", tag("b", rank), f" {name} ", tag("span", figures, class_="quiet"))
    return tag("figure", caption, tag("div", compared, mistake, class_="pair"), class_="view")


def error_legend() -> Html:
    """Return what the colours of error maps mean: the same in every map of every report."""
    swatches = [
        tag("rect", x=index * SWATCH_PX, width=SWATCH_PX, height=12, fill=error_color(index / (NUM_SWATCHES - 1)))
        for index in range(NUM_SWATCHES)
    ]
    width = NUM_SWATCHES * SWATCH_PX
    drawing = tag("svg", *swatches, viewBox=f"0 0 {width} 12", width=width, height=12, aria_hidden="true")
    most = f"{255 * FULL_ERROR:.0f} of 255 and more"
    words = (
        "Error maps: how far a rendering is from its photograph in the mean of its channels, on one scale for all: 0"
    )
    return tag("p", tag("span", words), drawing, tag("span", most), class_="quiet scale")


def error_color(share: float) -> str:
    """Return the colour of an error map, of 0 for no difference and 1 for the greatest that it tells apart."""
    place = min(max(share, 0.0), 1.0) * (len(ERROR_STOPS) - 1)
    low = min(int(place), len(ERROR_STOPS) - 2)
    before, after = ERROR_STOPS[low : low + 2]
    mixed = (round(one + (other - one) * (place - low)) for one, other in zip(before, after, strict=True))
    return f"#{''.join(f'{channel:02x}' for channel in mixed)}"


def _figure(name: str, value: float | None, form: str, unit: str = "") -> str:
    return "" if value is None else f"{name} {value:{form}}{unit}"


def read_picture(path: Path, start: bytes = b"\xff\xd8") -> bytes:
    """Return a picture of ours, a JPEG; empty if it is none."""
    try:
        data = read_regular(path, MOST_PICTURE_BYTES)
    except (OSError, ValueError):
        return b""
    return data if data.startswith(start) else b""
