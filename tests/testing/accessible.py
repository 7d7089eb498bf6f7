"""axe-core for tests: installed from npm into the cache folder when it is first asked for, and asked about a page.

A test that needs it is skipped, with the reason, where it cannot be had.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from splatbatch.caches import cache_home
from splatbatch.publish.tool import PATIENCE

VERSION = "4.14.1"
SCRIPT = "node_modules/axe-core/axe.min.js"
OURS = Path(__file__).parent / "axe"
SERIOUS = ("serious", "critical")


def violations(page: Any) -> list[str]:
    """Return what axe finds wrong with a page that matters: the rule, and the first elements that break it."""
    page.evaluate(_axe_or_skip())  # by the debugger: the page's own policy runs nothing but the page's script
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [
        f"{one['id']} ({one['impact']}): {[node['html'][:120] for node in one['nodes'][:3]]}"
        for one in found
        if one["impact"] in SERIOUS
    ]


def _axe_or_skip() -> str:
    found = _found()
    if isinstance(found, Path):
        return found.read_text(encoding="utf-8")
    pytest.skip(found)


@cache
def _found() -> Path | str:
    place = cache_home() / "splatbatch" / f"axe-core-{VERSION}"
    if (place / SCRIPT).is_file():
        return place / SCRIPT
    npm = shutil.which("npm")
    if npm is None:
        return "no npm on this machine to install axe-core with (apt-get install nodejs npm)"
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as folder:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(OURS / name, folder)
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", *PATIENCE]
        ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
        if ended.returncode:
            return f"axe-core cannot be installed: {ended.stderr.strip()[-300:]}"
        shutil.copytree(folder, place, dirs_exist_ok=True)
    return place / SCRIPT
