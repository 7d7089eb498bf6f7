"""Tables of cases of which a quick run takes a few."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def each(nth: int, cases: Iterable[Any]) -> list[Any]:
    """Return cases for `parametrize`: each nth is quick, the others run with --all."""
    rows = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*row, marks=pytest.mark.all if number % nth else ()) for number, row in enumerate(rows)]
