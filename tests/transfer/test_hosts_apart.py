"""Three hosts that share no folder, and a store on a fourth: workers are killed and cables cut, and nothing is lost."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hosts
import pytest
import store_sites
from fake_batch import CONSTANTS, FakeBatch
from hosts import SERVER, Hosts
from store_sites import Site
from travelling import QUICK, SHORT, bundles, elsewhere, ends, states

from splatbatch.transfer.schemes import open_store

LACK = hosts.lack(shares=False) or store_sites.lack("ssh")
pytestmark = [pytest.mark.long, pytest.mark.all, pytest.mark.skipif(bool(LACK), reason=LACK)]
TASKS, KILLS, CUTS = 60, 30, 10
HOME, AWAY = 1, (2, 3)


class Night:
    """Home on one host, a worker on each of two others, each started again whenever it has ended."""

    def __init__(self, up: Hosts, site: Site, folder: Path) -> None:
        self.up, self.site, self.killed, self.codes = up, site, Counter[int](), Counter[tuple[int, int]]()
        self.places = {number: folder / f"h{number}" for number in (HOME, *AWAY)}
        self.batch = FakeBatch(self.places[HOME])
        self.batch.folder.mkdir()
        self.batch.make(*(f"p{number:02d}" for number in range(TASKS)), constants=SHORT, **QUICK)
        self.batch.script(**{f"p{number:02d}": ["train 6"] for number in range(TASKS)})
        self.batch.change(executor={"store": site.url})
        self.away = {number: elsewhere(self.places[number], self.batch) for number in AWAY}
        self.processes: dict[int, subprocess.Popen[str]] = {}
        for number, place in self.places.items():  # no host sees the folders of another, nor those of the store
            for other in {*self.places.values(), folder / "server"} - {place}:
                up.hosts[number - 1].do("mount", "-t", "tmpfs", "none", str(other))

    def start(self, number: int) -> None:
        """Start what runs on a host."""
        if number == HOME:
            command, environment = self.batch.command("train"), self.batch.environment()
        else:
            scratch = str(self.places[number] / "scratch")
            command = self.away[number].command("work", self.site.url, "--idle", "600s", "--scratch", scratch)
            environment = self.away[number].environment()
            environment.pop("SPLATBATCH_CONFIG")
        environment |= self.site.environment | {CONSTANTS: json.dumps(SHORT | self.batch.constants)}
        environment["SPLATBATCH_CACHE"] = str(self.places[number] / "cache")
        log = (self.places[number] / "log").open("a")
        within = self.up.hosts[number - 1].within(*command)
        self.processes[number] = subprocess.Popen(within, env=environment, text=True, stdout=log, stderr=log)

    def keep_up(self) -> None:
        """Start again whatever has ended, but home once it is done."""
        for number in self.places:
            process = self.processes.get(number)
            if process is None or process.poll() is not None:
                self.codes[number, process.returncode if process else 0] += 1
                self.start(number)

    def kill(self, number: int) -> bool:
        """End what runs on a host by SIGKILL, and none of what it has started."""
        outside = self.processes[number].pid
        with contextlib.suppress(OSError):
            for pid in Path(f"/proc/{outside}/task/{outside}/children").read_text().split():
                os.kill(int(pid), signal.SIGKILL)
                self.processes[number].wait(20)
                self.killed[number] += 1
                return True
        return False

    def is_done(self) -> bool:
        """Return whether home says that all is trained."""
        return self.processes[HOME].poll() == 0


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    (tmp_path / "server").mkdir()
    with Hosts(tmp_path, 3, shares=False) as up:
        prefix = tuple(up.within_switch())
        with store_sites.site("ssh", tmp_path / "server", SERVER, prefix) as site:
            home = tmp_path / "user"  # keys of the user, not the folders of the server
            (tmp_path / "server/home").rename(home)
            one = Night(up, Site(site.url, {"HOME": str(home)}, site.kept), tmp_path)
            yield one
            for process in one.processes.values():
                process.kill()


def test_thirty_kills_and_ten_cuts_lose_nothing_and_accept_nothing_twice(
    night: Night, record_property: pytest.RecordProperty
) -> None:
    chance, began, cuts = random.Random(37), time.monotonic(), 0
    plan = [*["kill"] * KILLS, *["cut"] * CUTS]
    chance.shuffle(plan)
    night.keep_up()
    while not night.is_done():
        assert time.monotonic() - began < 3000
        pause = time.monotonic() + chance.uniform(1, 3)
        while time.monotonic() < pause and not night.is_done():
            time.sleep(0.2)
        if night.is_done():
            break
        night.keep_up()
        if plan and plan[-1] == "kill":
            plan = plan[: -night.kill(chance.choice([HOME, *AWAY, *AWAY])) or len(plan)]
        elif plan:
            plan.pop()
            number, cuts = chance.choice([HOME, *AWAY]), cuts + 1
            night.up.cut(number)
            time.sleep(chance.uniform(1, 12))
            night.up.heal(number)
    found = told(night)
    took = f"{time.monotonic() - began:.0f} s"
    words = f"{sum(night.killed.values())} SIGKILLs {dict(night.killed)}, {cuts} cuts, {took}: {found}"
    print(words)
    record_property("figure", words)
    assert (sum(night.killed.values()), cuts, found["trained"]) == (KILLS, CUTS, TASKS), words
    assert (found["accepted"], found["accepted twice"], found["attempts without an end"]) == (TASKS, 0, 0), words
    assert found["trained twice"] <= cuts, words  # waste: a worker that is cut off counts as gone
    assert found["claims"] == found["results"] + found["claims of killed workers"], words


def told(night: Night) -> dict[str, Any]:
    """Return what became of all tasks, attempts and claims, by the files at home and in the store."""
    batch, store = night.batch, open_store(str(night.site.kept))
    ended = Counter((patch, attempt) for patch, attempt, *_ in ends(batch))
    there = [(path.parent.name, int(path.name[-2:])) for path in batch.output.glob("patches/*/attempt-*")]
    accepted = [len(list(path.glob("*"))) for path in batch.output.glob("patches/*/accepted")]
    results = [name for name in store.names("results") if name.count(".") == 3]
    claims = sum(one["claims"] for one in bundles(str(night.site.kept)))
    brought = {tuple(name.split(".")[:2]) for name in results}
    return {
        "trained": sum(state == "trained" for state in states(batch).values()),
        "accepted": sum(number > 0 for number in accepted),
        "accepted twice": sum(number > 1 for number in accepted),
        "attempts": len(there),
        "attempts without an end": sum(ended[one] == 0 for one in there),
        "claims": claims,
        "results": len(results),
        "claims of killed workers": claims - len(brought),
        "trained twice": sum(one[2] == "trained" for one in ends(batch)) - TASKS,
    }
