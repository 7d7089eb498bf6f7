"""Photograph, rendering and error of held-out views: read from the attempt that made the splat, shown with a slider."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

from splatbatch.files import Record
from splatbatch.report.page.html import Html, tag
from splatbatch.store.attempt_folder import ATTEMPT_PREFIX, AttemptFolder
from splatbatch.store.layout import OutputFolder
from splatbatch.store.records.metrics import View

KINDS = ("photo", "render", "error")
MOST_PICTURE_BYTES = 60_000
"""A larger file is none of ours."""


class Budget:
    """How many bytes of pictures a page may still take: a page of 200 patches must open, too."""

    def __init__(self, num_bytes: int) -> None:
        self.left = num_bytes

    def take(self, num_bytes: int) -> bool:
        """Take a share; return whether there was enough."""
        if num_bytes > self.left:
            return False
        self.left -= num_bytes
        return True


def views_of(output: OutputFolder, patch: Record, budget: Budget) -> Iterator[Html]:
    """Yield the held-out views of a trained patch, the worst first, as far as the budget goes."""
    folder = attempt_folder(output, patch)
    for rank, view in folder.read_views().ranked() if folder else ():
        pictures = [_read(folder.picture(rank, kind)) for kind in KINDS] if folder else []
        if not all(pictures):
            continue
        if not budget.take(sum(len(picture) * 4 // 3 for picture in pictures)):
            yield tag("p", f"The pictures of the {rank} view are in {folder and folder.views.parent}.", class_="quiet")
            return
        yield _view(rank, view, [f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}" for jpeg in pictures])


def attempt_folder(output: OutputFolder, patch: Record) -> AttemptFolder | None:
    """Return the folder of the attempt that a patch's state is about; None if there is none."""
    name = patch["attempt"]
    if not name.startswith(ATTEMPT_PREFIX) or not name.removeprefix(ATTEMPT_PREFIX).isdecimal():
        return None
    return AttemptFolder(output.patch(patch["patch"]).path / name)


def _view(rank: str, view: View, sources: list[str]) -> Html:
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


def _figure(name: str, value: float | None, form: str, unit: str = "") -> str:
    return "" if value is None else f"{name} {value:{form}}{unit}"


def _read(path: Path) -> bytes:
    """Return a JPEG of ours; empty if it is none."""
    try:
        if path.stat().st_size > MOST_PICTURE_BYTES:
            return b""
        data = path.read_bytes()
    except OSError:
        return b""
    return data if data.startswith(b"\xff\xd8") else b""
