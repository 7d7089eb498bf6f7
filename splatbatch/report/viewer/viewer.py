"""The 3D viewer in the page: packed once, unpacked on a click; without it the page says how to get it."""

from __future__ import annotations

import base64
import contextlib
import gzip
import shlex
import zlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from splatbatch.files import read_regular, write_whole
from splatbatch.report.facts import ReportedPatch
from splatbatch.report.page.html import Html, tag
from splatbatch.report.page.pictures import Budget, attempt_folder
from splatbatch.report.viewer.initial_camera import find_initial_camera
from splatbatch.splats.preview import UNTURNED, Floats, make_preview, middle_of
from splatbatch.store.folders import PatchFolder
from splatbatch.store.layout import OutputFolder

BUILT = ("web", "dist", "viewer.js.gz")
MOST_PREVIEW_BYTES = 4 << 20
"""A larger file is none of ours."""
HOW = {
    "viewer": "3D: this installation has no viewer: install a wheel of a release, or build it where npm is.",
    "gsply": "3D: pip install 'splatbatch[web]', then `splatbatch report`.",
}


@cache
def viewer_gz() -> bytes:
    """Return the viewer's script, gzipped; empty where it was not built."""
    try:
        return files("splatbatch.report.viewer").joinpath(*BUILT).read_bytes()
    except OSError:
        return b""


@cache
def viewer_script() -> str:
    """Return the text of the script, whose hash the page's policy names; empty where there is none."""
    try:
        return gzip.decompress(viewer_gz()).decode() if viewer_gz() else ""
    except (OSError, EOFError, zlib.error, UnicodeDecodeError):
        return ""


def what_is_missing() -> str:
    """Return in one line how to get the viewer; empty where it is all there."""
    if not viewer_script():
        return HOW["viewer"]
    return HOW["gsply"] if find_spec("gsply") is None else ""


@dataclass
class Previews:
    """The splats of a page that open in 3D, as far as the budget goes; `splatbatch view` shows the others."""

    output: OutputFolder
    budget: Budget
    num_shown: int = 0

    def __post_init__(self) -> None:
        self.are_wanted = self.budget.left > 0

    def of(self, patch: ReportedPatch) -> Html:
        """Return the stage on which a trained patch opens; else a line that says how to see it, or nothing."""
        if not self.are_wanted or not patch.splat or what_is_missing():
            return Html("")
        words = f"in full: splatbatch view {shlex.quote(patch.patch)}"
        initial_camera = find_initial_camera(attempt_folder(self.output, patch))
        preview = _read(self.output.patch(patch.patch), initial_camera.turn if initial_camera else UNTURNED)
        if not preview or not self.budget.take(len(preview) * 4 // 3):
            return tag("p", f"3D, {words}", class_="quiet")
        self.num_shown += 1
        camera = initial_camera.looking_at(middle_of(preview)) if initial_camera else None
        button = tag("button", "Open in 3D", type="button")
        caption = tag("span", f"a preview of {max(0.1, len(preview) / 1e6):.1f} MB; {words}", class_="quiet")
        packed = tag("template", Html(base64.b64encode(preview).decode()))
        return tag("div", button, caption, packed, class_="stage", data_camera=camera)

    def packed_viewer(self) -> Html:
        """Return the script that shows them, as data that nothing runs before a click; nothing if none is shown."""
        if not self.num_shown:
            return Html("")
        return tag("template", Html(base64.b64encode(viewer_gz()).decode()), id="viewer")


def _read(folder: PatchFolder, turn: Floats) -> bytes:
    """Return the preview beside a splat, made anew where it is older or spoilt; empty if it cannot be made."""
    try:
        is_new = folder.preview.exists() and folder.preview.stat().st_mtime_ns >= folder.splat.stat().st_mtime_ns
        if is_new and (preview := _kept(folder.preview)):
            return preview
        preview = make_preview(folder.splat, turn)
    except Exception:  # noqa: BLE001 - foreign code that compiles itself: whatever it raises, the batch has its report
        return b""
    with contextlib.suppress(OSError):  # a folder that cannot be written: it is made again next time
        write_whole(folder.preview, lambda file: file.write(preview))
    return preview


def _kept(path: Path) -> bytes:
    """Return a preview if it is one of ours; empty for anything larger, or else."""
    try:
        preview = read_regular(path, MOST_PREVIEW_BYTES)
        if not preview.startswith(b"ply\n"):
            return b""
        middle_of(preview)
    except (OSError, ValueError):
        return b""
    return preview
