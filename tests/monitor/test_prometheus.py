"""metrics.prom: whole at any moment, in the format that Prometheus reads, whatever a patch is called."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fake_batch import FakeBatch

from splatbatch.files import write_text
from splatbatch.monitor import prometheus
from splatbatch.monitor.prometheus import MetricsFile, to_prometheus
from splatbatch.output.claims import AtWork
from splatbatch.output.layout import OutputFolder
from splatbatch.tasks.status import PatchStatus

LINE = re.compile(
    r'^(# (HELP|TYPE) splatbatch_\w+ .+|splatbatch_\w+(\{(,?\w+="([^"\\\n]|\\[\\"n])*")+\})? [-+0-9.einf]+)$'
)


def test_a_batch_leaves_its_metrics(batch: FakeBatch) -> None:
    batch.make("p0", "p1").script(p0=["train"], p1=["exit 1 CUDA error: out of memory"])
    batch.change(retry={"max_attempts": 1})
    batch.run("train")
    lines = (batch.output / "metrics.prom").read_text().splitlines()
    assert "splatbatch_running 0.0" in lines
    assert 'splatbatch_patches{state="trained"} 1.0' in lines
    assert 'splatbatch_patches{state="failed"} 1.0' in lines
    assert 'splatbatch_patch_step{patch="p0"} 20.0' in lines
    assert [line for line in lines if not LINE.match(line)] == []


def test_names_are_escaped_and_unknown_values_left_out() -> None:
    status = PatchStatus('p"\n\\', "running", loss=float("inf"), psnr=None)
    text = to_prometheus([status], [], 1.5, is_running=True)
    assert 'splatbatch_patch_loss{patch="p\\"\\n\\\\"} inf' in text
    assert "psnr" not in text
    assert [line for line in text.splitlines() if not LINE.match(line)] == []


def test_workers_and_nodes_are_told_where_there_are_some(batch: FakeBatch) -> None:
    statuses = [PatchStatus("p0", "running", node="a"), PatchStatus("p1", "running", node='b"')]
    workers = [AtWork(host, worker="w") for host in ("a", "a", 'b"')]
    lines = to_prometheus(statuses, workers, 1.5, is_running=True).splitlines()
    assert 'splatbatch_workers{node="a"} 2.0' in lines
    assert 'splatbatch_patch_node{patch="p1",node="b\\""} 1.0' in lines
    assert "splatbatch_running 1.0" in lines
    assert [line for line in lines if not LINE.match(line)] == []
    alone = to_prometheus(statuses[:1], workers[:1], 1.5, is_running=True)
    assert "patch_node" not in alone


def test_of_several_workers_one_writes_and_when_it_ends_another_does(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus, "EVERY_S", 0.0)
    monkeypatch.setattr(prometheus, "MOST_OF_TIME", 1e9)
    batch.make("p0").output.mkdir()
    output, written = OutputFolder(batch.output), []
    files = [MetricsFile(output, ["p0"]) for _ in range(2)]
    monkeypatch.setattr(prometheus, "write_text", lambda path, text: (written.append(path), write_text(path, text)))
    for _ in range(3):
        for one in files:
            one.tick()
    assert len(written) == 3
    files[1].tick()  # the first has ended
    assert len(written) == 4


def test_workers_leave_the_metrics_of_their_batch(batch: FakeBatch) -> None:
    batch.make("p0", training={"colors": "as_is"}).run("work")
    lines = (batch.output / "metrics.prom").read_text().splitlines()
    assert {"splatbatch_running 0.0", 'splatbatch_patches{state="trained"} 1.0'} <= set(lines)


def test_a_folder_that_cannot_be_written_costs_only_the_metrics(tmp_path: Path) -> None:
    MetricsFile(OutputFolder(tmp_path / "gone"), ["p0"]).close()
    assert not (tmp_path / "gone").exists()
