"""The sites of the engines: each is put up once for all tests that need it, and taken down at the end."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import slurm_cluster
from fake_batch import FakeBatch
from sites import CONSTANTS, LocalSite, Site, SlurmSite

ENGINES = os.environ.get("ENGINES", "")
"""required: a Slurm that is not here fails its tests; skip: no engine is tried; else those are that are here."""
KINDS = {"slurm": (slurm_cluster.lack, SlurmSite)}


def site_of(engine: str, *, is_required: bool) -> Site:
    """Return the site of an engine, not put up yet."""
    if engine == "local":
        return LocalSite()
    if ENGINES == "skip":
        pytest.skip("ENGINES=skip")
    lack, kind = KINDS[engine]
    if why := lack():
        (pytest.fail if is_required else pytest.skip)(why)
    return kind()


@pytest.fixture(scope="package")
def sites(request: pytest.FixtureRequest) -> Iterator[dict[str, Site]]:
    of_ci = {"slurm"} if ENGINES == "required" else set()
    required = set(KINDS) if request.config.getoption("--engines") else of_ci
    with ExitStack() as stack:
        yield _Sites(stack, required)


class _Sites(dict[str, Site]):
    """Puts a site up when it is first asked for."""

    def __init__(self, stack: ExitStack, required: set[str]) -> None:
        super().__init__()
        self._stack, self._required = stack, required

    def __missing__(self, engine: str) -> Site:
        self[engine] = self._stack.enter_context(site_of(engine, is_required=engine in self._required))
        return self[engine]


@pytest.fixture
def site(request: pytest.FixtureRequest, sites: dict[str, Site], monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Give the site of the engine that a test is for."""
    found = sites[getattr(request, "param", "slurm")]
    for name, value in {**found.environment, "FAKE_TRAINER_CONSTANTS": json.dumps(CONSTANTS)}.items():
        monkeypatch.setenv(name, value)
    yield found
    found.mend()


QUICK = {"training": {"colors": "as_is"}, "limits": {"grace_s": 0.5, "free_disk_mib": 0}}


@pytest.fixture
def elsewhere(batch: FakeBatch, site: Site) -> FakeBatch:
    """Give a batch of three patches, to be trained by the engine."""
    return batch.make("p0", "p1", "p2", **QUICK, executor=site.executor)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave engines that have to be set up to --all."""
    if "site" in getattr(item, "fixturenames", ()):
        engine = item.callspec.params.get("site", "slurm") if hasattr(item, "callspec") else "slurm"
        if engine != "local":
            item.add_marker("all")
