"""A real browser for tests: Debian's chromium, driven by playwright; everything it says and asks for is kept."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# root has no user namespaces to sandbox in; WebGL is drawn by the CPU
FLAGS = ["--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]


@dataclass
class Watched:
    """A page, what went wrong in it, and what it asked the network for."""

    page: Any
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def open(self, path: Path) -> None:
        self.page.on("console", lambda said: said.type in ("error", "warning") and self.errors.append(said.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda asked: asked.url.startswith("data:") or self.requests.append(asked.url))
        self.page.goto(path.as_uri())

    def until(self, expression: str, timeout_s: float = 10) -> None:
        """Wait until an expression is true; the page's own policy lets nobody evaluate text in it but the debugger."""
        give_up_at = time.monotonic() + timeout_s
        while not self.page.evaluate(expression):
            assert time.monotonic() < give_up_at, f"not true after {timeout_s} s: {expression}"
            time.sleep(0.05)

    def shoot(self, artifacts: Path, name: str, **options: Any) -> bytes:
        taken: bytes = self.page.screenshot(path=artifacts / f"{name}.png", **options)
        return taken


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """Start the browser, or skip the test and say why."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine (apt-get install chromium)")
    with playwright.sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


def artifacts_folder(fallback: Path) -> Path:
    """Return where screenshots are kept: $SPLATBATCH_ARTIFACTS, else the folder of the test run."""
    folder = Path(os.environ.get("SPLATBATCH_ARTIFACTS") or fallback)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
