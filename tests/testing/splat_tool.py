"""splat-transform for tests: installed once, asked for once; a test that needs it is skipped where it cannot be had."""

from __future__ import annotations

from functools import cache

import pytest

from splatbatch.errors import SplatbatchError
from splatbatch.publish.tool import SplatTransform, find_tool


@cache
def _found() -> SplatTransform | str:
    try:
        return find_tool()
    except SplatbatchError as error:
        return error.message


def tool_or_skip() -> SplatTransform:
    """Return the tool, or skip the test and say why."""
    found = _found()
    if isinstance(found, str):
        pytest.skip(found)
    return found
