"""splat-transform for tests: installed once, asked for once; a test that needs it is skipped where it cannot be had."""

from __future__ import annotations

from contextlib import suppress
from functools import cache

import pytest

from splatbatch.caches import own_cache
from splatbatch.errors import SplatbatchError
from splatbatch.publish.tool import FOLDER, SplatTransform, find_tool


@cache
def _found() -> SplatTransform | str:
    try:
        with pytest.MonkeyPatch.context() as patched:  # 220 MB: installed once for all test runs of this user
            patched.delenv("SPLATBATCH_CACHE")
            find_tool()
            kept = own_cache() / FOLDER
    except SplatbatchError as error:
        return error.message
    with suppress(FileExistsError):
        (own_cache() / FOLDER).symlink_to(kept)
    return find_tool()


def tool_or_skip() -> SplatTransform:
    """Return the tool, or skip the test and say why."""
    found = _found()
    if isinstance(found, str):
        pytest.skip(found)
    return found
