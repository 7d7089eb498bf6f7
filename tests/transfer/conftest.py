"""The stores of the tests: each is put up once, and every test has one below it for itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING

import pytest
import store_sites
from store_sites import Site

if TYPE_CHECKING:
    from pathlib import Path

KINDS = ("folder", *(pytest.param(kind, marks=pytest.mark.all) for kind in ("ssh", "s3")))
_NUMBERS = count()


@pytest.fixture(scope="session")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Site]]:
    with ExitStack() as stack:
        yield _Sites(stack, tmp_path_factory)


class _Sites(dict[str, Site]):
    """Puts a store up when it is first asked for."""

    def __init__(self, stack: ExitStack, folders: pytest.TempPathFactory) -> None:
        super().__init__()
        self._stack, self._folders = stack, folders

    def __missing__(self, kind: str) -> Site:
        if why := store_sites.lack(kind):
            pytest.skip(why)
        folder: Path = self._folders.mktemp(kind)
        self[kind] = self._stack.enter_context(store_sites.site(kind, folder))
        return self[kind]


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, sites: dict[str, Site], monkeypatch: pytest.MonkeyPatch) -> Site:
    """Give an empty store of each kind, which the environment can reach."""
    found = sites[request.param]
    for name, value in found.environment.items():
        monkeypatch.setenv(name, value)
    name = f"n{next(_NUMBERS)}"
    return Site(found.below(name), found.environment, found.kept / name if found.kept else None)
