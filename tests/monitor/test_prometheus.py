"""metrics.prom: whole at any moment, in the format that Prometheus reads, whatever a patch is called."""

from __future__ import annotations

import re
from pathlib import Path

from fake_batch import FakeBatch

from splatbatch.monitor.prometheus import MetricsFile, to_prometheus
from splatbatch.store.layout import OutputFolder
from splatbatch.tasks.status import PatchStatus

LINE = re.compile(r'^(# (HELP|TYPE) splatbatch_\w+ .+|splatbatch_\w+(\{\w+="([^"\\\n]|\\[\\"n])*"\})? [-+0-9.einf]+)$')


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
    text = to_prometheus([status], 1.5, is_running=True)
    assert 'splatbatch_patch_loss{patch="p\\"\\n\\\\"} inf' in text
    assert "psnr" not in text
    assert [line for line in text.splitlines() if not LINE.match(line)] == []


def test_a_folder_that_cannot_be_written_costs_only_the_metrics(tmp_path: Path) -> None:
    MetricsFile(OutputFolder(tmp_path / "gone"), ["p0"]).finish()
    assert not (tmp_path / "gone").exists()
