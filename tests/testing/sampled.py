"""Tables of cases of which a quick run takes a few."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def each(nth: int, cases: Iterable[Any]) -> list[Any]:
    """Return cases for `parametrize`: each nth is quick, the others run with --all."""
    params = [case if hasattr(case, "marks") else pytest.param(*_row(case)) for case in cases]
    slow = pytest.mark.all
    return [one._replace(marks=(*one.marks, slow)) if number % nth else one for number, one in enumerate(params)]


def _row(case: Any) -> tuple[Any, ...]:
    return case if isinstance(case, tuple) else (case,)
