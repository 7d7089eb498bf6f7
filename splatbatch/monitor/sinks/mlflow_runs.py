"""Write attempts into MLflow: `python -m splatbatch.monitor.sinks.mlflow_runs`, with its order as JSON on stdin.

A batch is a parent run, each attempt a run below it. What is there already, by its tags, is not written again, so that
a process that was cut off is made good by the next.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from splatbatch.files import MIB
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.events import AttemptEnded
from splatbatch.output.layout import OutputFolder
from splatbatch.output.ledger import judged_attempts
from splatbatch.output.records.metrics import Metrics

BATCH, ATTEMPT, PARENT = "splatbatch.batch", "splatbatch.attempt", "mlflow.parentRunId"
CURVES = (
    "loss",
    "grad_norm",
    "num_gaussians",
    "peak_mib",
    "psnr",
    "ssim",
    "lpips",
    "training_psnr",
    "psnr_even",
    "psnr_covered",
)
FINAL = ("psnr_covered", "psnr", "ssim_covered", "ssim", "lpips", "training_psnr", "covered_share")
MOST_CHARS = 500
"""Of a parameter's value."""
METRICS_AT_ONCE, PARAMS_AT_ONCE, RUNS_AT_ONCE = 1000, 100, 1000
"""So many a server takes, or gives, in one request."""
MOST_LOG_BYTES = 8 * MIB
PATIENCE = {
    "MLFLOW_ENABLE_ASYNC_LOGGING": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # by itself MLflow goes on for four minutes before it says why
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}
"""What MLflow reads from the environment, unless somebody has set it."""
SECRETS = ("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")
IN_A_URL = re.compile(r"//[^/@\s]+@")
SQLITE = "sqlite:///"
STATES = {"trained": "FINISHED", "made": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}


def main() -> int:
    """Read the order and obey it; what the store objects to is the last line that is printed."""
    out = os.dup(1)
    os.dup2(2, 1)  # what MLflow prints is no answer of ours
    for variable, value in PATIENCE.items():
        os.environ.setdefault(variable, value)
    try:
        order = json.load(sys.stdin)
        open_database(order["uri"])
        MlflowRecord(order).write()
    except Exception as error:  # noqa: BLE001 - whatever a store raises is told, and harms nothing
        os.write(out, without_passwords(f"{type(error).__name__}: {error}").encode())
        return 1
    return 0


def open_database(uri: str) -> None:
    """Open the SQLite database of a store once: MLflow tries for 100 s before it says that it cannot.

    Raises:
        sqlite3.Error: it cannot be opened, or is none.
    """
    if uri.startswith(SQLITE):
        with closing(sqlite3.connect(uri.removeprefix(SQLITE).partition("?")[0])) as database:
            database.execute("PRAGMA schema_version").fetchone()


def without_passwords(words: str) -> str:
    """Return what a store says in a line, without the passwords of its URL and of the environment."""
    words = IN_A_URL.sub("//***@", " ".join(words.split()))
    for variable in SECRETS:
        if value := os.environ.get(variable):
            words = words.replace(value, "***")
    return words[:MOST_CHARS]


class MlflowRecord:
    """What MLflow knows of a batch."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        import mlflow
        from mlflow import MlflowClient

        mlflow.set_tracking_uri(order["uri"])  # 3.1 sends files to where this points, whatever its client was told
        self.order, self.output = order, OutputFolder(Path(order["output"]))
        self.client = MlflowClient(tracking_uri=order["uri"])
        name = order["experiment"]
        known = self.client.get_experiment_by_name(name)
        self.experiment = known.experiment_id if known else self.client.create_experiment(name, order["artifacts"])
        self.batch = str(self.output.path).replace("'", "")
        every = self._search(f"tags.`{BATCH}` = '{self.batch}'")
        self.runs = {run.data.tags[ATTEMPT]: run.info.run_id for run in every if ATTEMPT in run.data.tags}
        """By the attempts that they are of; the batch's own by an empty name."""
        self.parent = self.runs.get("") or self._begin_batch()

    def write(self) -> None:
        """Write the attempts that are not there yet, and how the batch has ended."""
        self._sweep()
        ends = judged_attempts(self.output)
        for patch in self.order["settings"]:
            for folder in self.output.patch(patch).attempts():
                event, name = ends.get((patch, folder.number)), f"{patch}/{folder.number}"
                if event and name not in self.runs:
                    self._write_attempt(name, folder, event)
        if self.order["has_ended"]:
            self._end_batch()

    def _search(self, words: str) -> Iterator[Any]:
        page = None
        while True:
            runs = self.client.search_runs([self.experiment], words, max_results=RUNS_AT_ONCE, page_token=page)
            yield from runs
            if not (page := runs.token):
                return

    def _sweep(self) -> None:
        """Remove runs that were cut off before they had the name of their attempt: they are written anew."""
        for run in list(self._search(f"tags.`{PARENT}` = '{self.parent}'")):
            if ATTEMPT not in run.data.tags:
                self.client.delete_run(run.info.run_id)

    def _begin_batch(self) -> str:
        name = self.output.path.resolve().parent.name or "batch"
        tags = {BATCH: self.batch, ATTEMPT: "", "mlflow.runName": name}
        return str(self.client.create_run(self.experiment, tags=tags).info.run_id)

    def _end_batch(self) -> None:
        if self.output.report("html").exists():
            self.client.log_artifact(self.parent, str(self.output.report("html")))
        self.client.set_terminated(self.parent, "FINISHED")

    def _write_attempt(self, name: str, folder: AttemptFolder, event: AttemptEnded) -> None:
        """Make a run with all that is known of an attempt; the tag by which it is found comes last."""
        end_ms = round(1000 * (event.t or 0.0))
        begin_ms = end_ms - round(1000 * (event.seconds or 0.0))
        tags = {PARENT: self.parent, "mlflow.runName": name, "splatbatch.patch": event.patch}
        tags |= {"splatbatch.outcome": event.outcome, "splatbatch.cause": event.cause}
        run = self.client.create_run(self.experiment, start_time=begin_ms, tags=tags).info.run_id
        job = folder.read_job()
        settings = {**self.order["settings"][event.patch], **(job.changes if job else {})}
        self._log_settings(run, settings)
        self._log_figures(run, list(_figures(folder, event, end_ms)))
        for path in _artifacts(folder, with_splat=self.order["splats"]):
            self.client.log_artifact(run, str(path))
        self.client.set_tag(run, BATCH, self.batch)
        self.client.set_tag(run, ATTEMPT, name)
        self.client.set_terminated(run, STATES.get(event.outcome, "FAILED"), end_ms)

    def _log_settings(self, run: str, settings: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        every = [Param(key, str(value)[:MOST_CHARS]) for key, value in settings.items()]
        for start in range(0, len(every), PARAMS_AT_ONCE):
            self.client.log_batch(run, params=every[start : start + PARAMS_AT_ONCE])

    def _log_figures(self, run: str, figures: Sequence[tuple[str, float, int, int]]) -> None:
        from mlflow.entities import Metric

        for start in range(0, len(figures), METRICS_AT_ONCE):
            self.client.log_batch(run, metrics=[Metric(*one) for one in figures[start : start + METRICS_AT_ONCE]])


def _figures(folder: AttemptFolder, event: AttemptEnded, end_ms: int) -> Iterator[tuple[str, float, int, int]]:
    """Yield name, value, time in ms and step: the curves, then what the whole attempt came to."""
    for line in folder.read_progress():
        for name in CURVES:
            if (value := line.figure(name)) is not None and line.step is not None:
                yield name, float(value), round(1000 * (line.t or 0.0)), line.step
    last, final = event.step or 0, (folder.read_metrics() or Metrics()).final
    whole = {"seconds": event.seconds, "final_num_gaussians": event.num_gaussians, "gpu_peak_mib": event.gpu_peak_mib}
    whole |= {f"final_{name}": getattr(final, name) for name in FINAL}
    for name, total in whole.items():
        if total is not None:
            yield name, float(total), end_ms, last


def _artifacts(folder: AttemptFolder, *, with_splat: bool) -> Iterator[Path]:
    for path in (folder.log, folder.metrics, folder.settings, folder.exit, folder.result):
        if path.is_file() and path.stat().st_size <= MOST_LOG_BYTES:
            yield path
    if with_splat and folder.splat.is_file():
        yield folder.splat


if __name__ == "__main__":
    sys.exit(main())
