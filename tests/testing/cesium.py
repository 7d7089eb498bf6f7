"""CesiumJS from npm in a real browser: loads a tileset from a local server and draws it from where it is told."""

from __future__ import annotations

import contextlib
import functools
import http.server
import io
import json
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from splatbatch.caches import cache_home
from splatbatch.machine.limited_program import CallBounds, run_bounded

VERSIONS = {"cesium": "1.145.0", "gltf-validator": "2.0.0-dev.3.10"}
PAGE = """<!doctype html><meta charset="utf-8"><title>tiles</title><link rel="icon" href="data:,">
<style>html,body{margin:0;background:#000}#c,#c *{width:%(width)dpx;height:%(height)dpx}</style><div id="c"></div>
<script>window.CESIUM_BASE_URL = "cesium/"</script><script src="cesium/Cesium.js"></script><script>
window.failed = [];
const widget = new Cesium.CesiumWidget("c", {baseLayer: false, skyBox: false, skyAtmosphere: false, globe: false,
  contextOptions: {webgl: {preserveDrawingBuffer: true}}, creditContainer: document.createElement("div")});
const scene = widget.scene;
scene.backgroundColor = Cesium.Color.BLACK;
scene.highDynamicRange = false;
scene.renderError.addEventListener((_, error) => failed.push(String(error)));
window.load = async (url, error) => {
  const tileset = await Cesium.Cesium3DTileset.fromUrl(url, {maximumScreenSpaceError: error});
  tileset.tileFailed.addEventListener(tile => failed.push(tile.message));
  scene.primitives.add(tileset);
  window.tileset = tileset;
};
window.look = (eye, direction, up, fov) => {
  scene.camera.frustum.fov = fov;
  scene.camera.frustum.near = 0.05;
  scene.camera.setView({destination: new Cesium.Cartesian3(...eye),
    orientation: {direction: new Cesium.Cartesian3(...direction), up: new Cesium.Cartesian3(...up)}});
};
window.move = matrix => { tileset.modelMatrix = Cesium.Matrix4.fromArray(matrix); };
window.drawn = () => tileset.tilesLoaded ? (tileset.gaussianSplatPrimitive?._numSplats ?? 0) : 0;
window.shown = () => tileset._selectedTiles.map(tile => tile.content.url);
</script>"""


def installed() -> Path:
    """Return where CesiumJS and the validator of glTF are installed; skip the test and say why if they cannot be."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm on this machine (apt-get install nodejs npm)")
    place = cache_home() / "splatbatch" / f"tests-{'-'.join(VERSIONS.values())}"
    if not (place / "node_modules/cesium/Build/Cesium/Cesium.js").is_file():
        place.mkdir(parents=True, exist_ok=True)
        (place / "package.json").write_text(json.dumps({"private": True, "dependencies": VERSIONS}))
        command = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        ended = run_bounded(command, CallBounds(300, 4096), folder=place)
        if not ended.is_well:
            pytest.skip(f"CesiumJS cannot be installed: {ended.why(CallBounds(300))}")
    return place / "node_modules"


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder to this machine; give its address."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@dataclass
class Globe:
    """A page that draws a tileset."""

    page: Any
    address: str
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def open(self, tileset: str, error_px: float = 16.0) -> None:
        self.page.on("request", lambda asked: self.requests.append(asked.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(f"{self.address}/index.html")
        self.page.evaluate("([url, error]) => load(url, error)", [tileset, error_px])

    def look(self, eye: np.ndarray, axes: np.ndarray, fov_rad: float) -> None:
        """Stand somewhere; axes [3, 3]: rows right, down, forward."""
        arguments = [eye.tolist(), axes[2].tolist(), (-axes[1]).tolist(), fov_rad]
        self.page.evaluate("(arguments) => look(...arguments)", arguments)

    def shot(self, count: int | None = None, other_than: np.ndarray | None = None) -> np.ndarray:
        """Return the picture once so many Gaussians are drawn and it no longer changes, [H, W, 3] in 0 to 1.

        Gaussians are placed and sorted beside the drawing: `other_than` is what it must no longer show.
        """
        wanted = f"drawn() === {count}" if count else "drawn() > 0"
        self.page.wait_for_function(wanted, timeout=60_000, polling=200)
        give_up_at = time.monotonic() + 60
        pictures = [self._picture()]
        while time.monotonic() < give_up_at:
            self.page.wait_for_timeout(1500)
            pictures = [*pictures[-2:], self._picture()]
            is_settled = len(pictures) == 3 and all(np.array_equal(one, pictures[-1]) for one in pictures)
            if (
                is_settled
                and pictures[-1].any()
                and not (other_than is not None and np.array_equal(pictures[-1], other_than))
            ):
                break
        assert self.page.evaluate("failed") == [] == self.errors
        return pictures[-1]

    def _picture(self) -> np.ndarray:
        picture = Image.open(io.BytesIO(self.page.screenshot())).convert("RGB")
        return np.asarray(picture, dtype=np.float64) / 255


@contextlib.contextmanager
def globe(browser: Any, site: Path, size: tuple[int, int]) -> Iterator[Globe]:
    """Serve a folder with CesiumJS beside its tiles, and open the page that draws them."""
    (site / "index.html").write_text(PAGE % {"width": size[0], "height": size[1]})
    if not (site / "cesium").exists():
        (site / "cesium").symlink_to(installed() / "cesium/Build/Cesium")
    with served(site) as address:
        page = browser.new_page(viewport={"width": size[0], "height": size[1]})
        yield Globe(page, address)
        page.close()
