"""`status` and `plan` say the same of each patch, whatever has happened to it."""

from __future__ import annotations

import json

from command_line import invoke
from fake_batch import FakeBatch

SAME = {"trained": {"skip"}, "refused": {"refuse"}, "stale": {"train"}, "waiting": {"train"}, "stopped": {"train"}}
SAME["failed"] = {"train", "given_up"}


def said(batch: FakeBatch, command: str) -> dict[str, dict[str, object]]:
    ended = invoke(command, "--json", batch=batch)
    assert ended.code == 0, ended.err
    return {one["patch"]: one for one in json.loads(ended.out)["patches"]}


def agree(batch: FakeBatch) -> dict[str, str]:
    """See that they agree; return the state of each patch."""
    status, plan = said(batch, "status"), said(batch, "plan")
    for name, one in status.items():
        decision = plan[name]["decision"]
        assert decision in SAME[str(one["state"])], f"{name}: {one['state']}, {decision}"
        assert (decision == "given_up") == one["given_up"], name
    return {name: str(one["state"]) for name, one in status.items()}


def test_they_agree_before_and_after_a_night_and_after_every_kind_of_change(batch: FakeBatch) -> None:
    batch.make("p0", "p1", "p2", "p3", "p4", retry={"max_attempts": 2})
    assert set(agree(batch).values()) == {"waiting"}
    (batch.folder / "patches/p3/sparse/0/images.txt").unlink()
    batch.script(p1=["exit 1 ModuleNotFoundError: No module named 'x'"], p2=["exit 1 CUDA error: out of memory"])
    assert invoke("train", "p0", "p1", "p2", "p3", batch=batch).code == 1
    assert agree(batch) == {"p0": "trained", "p1": "failed", "p2": "failed", "p3": "refused", "p4": "waiting"}
    batch.change(patches={"p0": {"training": {"max_steps": 30}}})
    assert agree(batch)["p0"] == "stale"
    batch.change(patches={})
    (batch.output / "patches/p0/splat.ply").write_bytes(b"cut")
    assert agree(batch)["p0"] == "stale"


def test_they_agree_on_what_an_audit_refuses_that_nobody_has_made_yet(batch: FakeBatch) -> None:
    batch.make("p0", "p1")
    (batch.folder / "patches/p1/sparse/0/images.txt").unlink()
    assert agree(batch) == {"p0": "waiting", "p1": "refused"}
    assert said(batch, "status")["p1"]["advice"]
    assert invoke("train", batch=batch).code == 1
    (batch.folder / "patches/p0/sparse/0/cameras.txt").write_text("garbage")
    assert agree(batch) == {"p0": "refused", "p1": "refused"}
