"""Records attempts in MLflow: a receiver of events, and the process that it starts to write.

The process, `python -m splatbatch.monitor.mlflow_runs`, reads its order as JSON from stdin. A batch is a parent run,
each attempt a run below it. Runs that exist already, by their tags, are not written again, so that the next process
completes the runs that a killed process left out. The batch waits for such a process only at its end, for at most
`sinks.BUDGET_S` seconds.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from splatbatch.config import Tracking
from splatbatch.errors import TrainerError
from splatbatch.files import MIB
from splatbatch.machine.limited_program import Hook
from splatbatch.monitor.sinks import BatchOutcome, Sink
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.events import AttemptEnded, Event
from splatbatch.output.layout import OutputFolder
from splatbatch.output.ledger import judged_attempts
from splatbatch.output.records.metrics import Metrics
from splatbatch.text import one_line

PROGRAM = (sys.executable, "-m", "splatbatch.monitor.mlflow_runs")
"""Command of the process that writes."""
FILES, DATABASE = "file:", "sqlite:///"
IN_A_FILE = f"{DATABASE}mlflow.db"
"""Store that is suggested where a folder is not supported."""
TIMEOUT_S = 120.0
"""Time limit of one process in seconds; the next process writes the rest. At the end of a batch the limit is 30 s."""
PAUSES_S = (60.0, 600.0)
"""First and longest pause in seconds after a store has failed; the pause doubles each time."""

BATCH, ATTEMPT, PARENT, NAME = "splatbatch.batch", "splatbatch.attempt", "mlflow.parentRunId", "mlflow.runName"
CURVES = (
    "loss", "grad_norm", "num_gaussians", "peak_mib", "psnr", "ssim", "lpips", "training_psnr", "psnr_even",
    "psnr_covered",
)  # fmt: skip
"""Figures of progress that are written step by step."""
FINAL = ("psnr_covered", "psnr", "ssim_covered", "ssim", "lpips", "training_psnr", "covered_share")
"""Figures of the finished splat that are written once."""
MOST_CHARS = 500
"""Most characters of a parameter's value, and of an error message."""
MOST_LOG_BYTES = 8 * MIB
"""Size of the largest file of an attempt that is stored, the splat excepted: 8 MiB."""
PATIENCE = {
    "MLFLOW_ENABLE_ASYNC_LOGGING": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # MLflow's default retries for four minutes before it reports an error
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}
"""Environment variables of MLflow that are set unless the user has set them."""
SECRETS = ("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")
"""Environment variables whose values are masked in messages."""
IN_A_URL = re.compile(r"//[^/@\s]+@")
STATES = {"trained": "FINISHED", "made": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}
"""State of an MLflow run by the outcome of the attempt."""


def absolute_uri(store: str, base: Path) -> str:
    """Return the URI of a tracking store, with a relative file or folder resolved from the YAML's folder.

    The URI of a server, or of an absolute place, is returned unchanged.

    Args:
        store: `tracking.mlflow` of the YAML.
        base: folder of the YAML.
    """
    if store.startswith(DATABASE):
        return f"{DATABASE}{base / store.removeprefix(DATABASE)}"
    place = store.removeprefix(FILES)
    return (base / place).as_uri() if store.startswith(FILES) and not place.startswith("/") else store


def remedy(store: str) -> str:
    """Return advice on what to check when a store fails, as the end of a message.

    Args:
        store: URI of the store.
    """
    if store.startswith(FILES):
        return f"newer versions of MLflow keep no store in a folder; write tracking.mlflow: {IN_A_FILE}"
    if store.startswith(DATABASE):
        return f"check that {store.removeprefix(DATABASE)} can be written"
    return "check that the MLflow server runs, and that MLFLOW_TRACKING_URI is right"


class MlflowSink(Sink):
    """Starts the recording process: at first, at the end, and when attempts have ended meanwhile; one at a time."""

    name = "tracking.mlflow"

    def __init__(
        self, settings: Tracking, output: OutputFolder, base: Path, settings_of: Callable[[], Mapping[str, object]]
    ) -> None:
        """Prepare without starting a process.

        Args:
            settings: section `tracking` of the YAML.
            output: the output folder.
            base: folder of the YAML.
            settings_of: returns the settings of each task, by full name, by task.

        Raises:
            TrainerError: MLflow, or a package that MLflow needs for a database, is not installed.
        """
        needed = ("mlflow", *(("sqlalchemy", "alembic") if settings.mlflow.startswith("sqlite:") else ()))
        if missing := [name for name in needed if find_spec(name) is None]:
            raise TrainerError(
                f"tracking.mlflow: {', '.join(missing)} is not installed", "pip install 'splatbatch[mlflow]'"
            )
        self._settings, self._output, self._settings_of = settings, output, settings_of
        self._store = absolute_uri(settings.mlflow, base)
        self._is_due = True  # writes what an earlier run could not, and reports an unreachable store now
        self._hook: Hook | None = None
        self._has_ended = False
        self._failure, self._pause_s, self._not_before = "", PAUSES_S[0], 0.0

    def tell(self, event: Event) -> None:
        """Note that an attempt has ended; other events are ignored."""
        self._is_due |= isinstance(event, AttemptEnded)

    def tick(self) -> Iterator[str]:
        """Check the running process; start one at first, if attempts have ended, or if writing failed.

        After a failure none starts until the pause is over, except at the end of the batch.

        Yield a message if a process failed for another reason than the one before, or after the end of the batch.
        """
        if self._hook and (verdict := self._hook.verdict()) is not None:
            self._hook = None
            yield from self._ended(one_line(verdict))
        if self._is_due and not self._hook and (self._has_ended or time.monotonic() >= self._not_before):
            yield from self._start()

    def close(self, end: BatchOutcome) -> None:
        """Request a last process, which writes everything missing and the end of the batch; `tick` starts it.

        The argument is not used.
        """
        self._is_due = self._has_ended = True

    def is_done(self) -> bool:
        """Return whether no process runs and none is due."""
        return self._hook is None and not self._is_due

    def give_up(self) -> Iterator[str]:
        """End a running process and yield a message; the next `train` writes the missing runs."""
        if self._hook:
            self._hook.end()
        earlier = f" (earlier error: {self._failure})" if self._failure else ""
        yield f"{self.name}: not all written in time{earlier}; the next `train` writes the rest; {remedy(self._store)}"

    def _start(self) -> Iterator[str]:
        self._is_due = False
        path = Path(self._store.removeprefix(DATABASE).partition("?")[0])
        order = {
            "uri": self._store,
            # folder for files of a new experiment: beside a database; a server or folder store decides itself
            "artifacts": str(path.parent / "mlartifacts") if self._store.startswith(DATABASE) else None,
            "experiment": os.environ.get("MLFLOW_EXPERIMENT_NAME") or "splatbatch",
            "splats": self._settings.splats,
            "output": str(self._output.path),
            "settings": self._settings_of(),
            "has_ended": self._has_ended,
        }
        try:
            self._hook = Hook(PROGRAM, json.dumps(order, default=str).encode(), TIMEOUT_S, is_heard=True)
        except OSError as error:
            yield from self._ended(f"cannot be started ({error.strerror})")

    def _ended(self, why: str) -> Iterator[str]:
        """Note how a process ended; after an error schedule another try, and yield the error unless it is the same."""
        before, self._failure = self._failure, why
        if not why:
            self._pause_s = PAUSES_S[0]
            return
        self._is_due |= not self._has_ended
        self._not_before = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, PAUSES_S[1])
        if why != before or self._has_ended:
            yield f"{self.name}: {why}; {remedy(self._store)}"


def main() -> int:
    """Read the order from stdin and carry it out; return the exit code, 0 or 1.

    An error is printed as one line on stdout, without passwords, and raises nothing.
    """
    out = os.dup(1)
    os.dup2(2, 1)  # output of MLflow must not mix with our answer
    for variable, value in PATIENCE.items():
        os.environ.setdefault(variable, value)
    try:
        write(json.load(sys.stdin))
    except Exception as error:  # noqa: BLE001 - any error of a store is reported to the parent
        os.write(out, without_passwords(f"{type(error).__name__}: {error}").encode())
        return 1
    return 0


def without_passwords(words: str) -> str:
    """Return an error message as one line of at most `MOST_CHARS`, with passwords of URLs and environment masked."""
    words = IN_A_URL.sub("//***@", " ".join(words.split()))
    for variable in SECRETS:
        if value := os.environ.get(variable):
            words = words.replace(value, "***")
    return words[:MOST_CHARS]


def write(order: Mapping[str, Any]) -> None:
    """Write the attempts that are not in the store yet; after the batch's end also the report and the final state.

    Runs that an earlier process left incomplete are deleted and written anew.

    Args:
        order: order of the batch: store, experiment, output folder, settings, and whether the batch has ended.

    Raises:
        Exception: any error of MLflow or of the store.
    """
    _open_database(order["uri"])
    import mlflow

    mlflow.set_tracking_uri(order["uri"])
    client, output = mlflow.MlflowClient(), OutputFolder(Path(order["output"]))
    known = client.get_experiment_by_name(order["experiment"])
    experiment = known.experiment_id if known else client.create_experiment(order["experiment"], order["artifacts"])
    batch = str(output.path).replace("'", "")
    found = mlflow.search_runs([experiment], f"tags.`{BATCH}` = '{batch}'", output_format="list")
    runs = {run.data.tags[ATTEMPT]: run.info.run_id for run in found if ATTEMPT in run.data.tags}
    if "" not in runs:  # the run of the batch
        tags = {BATCH: batch, ATTEMPT: "", NAME: output.path.resolve().parent.name or "batch"}
        runs[""] = client.create_run(experiment, tags=tags).info.run_id
    for run in mlflow.search_runs([experiment], f"tags.`{PARENT}` = '{runs['']}'", output_format="list"):
        if ATTEMPT not in run.data.tags:  # interrupted before it got the tag of its attempt: write it again
            client.delete_run(run.info.run_id)
    for folder, event in _ended_attempts(output, order["settings"]):
        if (name := f"{event.patch}/{folder.number}") not in runs:
            end_ms = round(1000 * (event.t or 0.0))
            begin_ms = end_ms - round(1000 * (event.seconds or 0.0))
            tags = {PARENT: runs[""], NAME: name, "splatbatch.patch": event.patch}
            tags |= {"splatbatch.outcome": event.outcome, "splatbatch.cause": event.cause}
            run = client.create_run(experiment, start_time=begin_ms, tags=tags).info.run_id
            _fill(client, run, folder, event, order)
            client.set_tag(run, BATCH, batch)
            client.set_tag(run, ATTEMPT, name)  # set last: by this tag a complete run is found
            client.set_terminated(run, STATES.get(event.outcome, "FAILED"), end_ms)
    if order["has_ended"]:
        if output.report("html").exists():
            client.log_artifact(runs[""], str(output.report("html")))
        client.set_terminated(runs[""], "FINISHED")


def _open_database(uri: str) -> None:
    """Open the SQLite database of a store once: MLflow would report an error only after trying for 100 s."""
    if uri.startswith(DATABASE):
        with closing(sqlite3.connect(uri.removeprefix(DATABASE).partition("?")[0])) as database:
            database.execute("PRAGMA schema_version").fetchone()


def _ended_attempts(output: OutputFolder, patches: Iterable[str]) -> Iterator[tuple[AttemptFolder, AttemptEnded]]:
    ends = judged_attempts(output)
    for patch in patches:
        for folder in output.patch(patch).attempts():
            if event := ends.get((patch, folder.number)):
                yield folder, event


def _fill(client: Any, run: str, folder: AttemptFolder, event: AttemptEnded, order: Mapping[str, Any]) -> None:
    """Write the settings, figures and small files of an attempt into its run, and its splat if ordered."""
    from mlflow.entities import Metric, Param

    job = folder.read_job()
    settings = {**order["settings"][event.patch], **(job.changes if job else {})}
    client.log_batch(run, params=[Param(key, str(value)[:MOST_CHARS]) for key, value in settings.items()])
    client.log_batch(run, metrics=[Metric(*one) for one in _figures(folder, event)])
    for path in (folder.log, folder.metrics, folder.settings, folder.exit, folder.result):
        if path.is_file() and path.stat().st_size <= MOST_LOG_BYTES:
            client.log_artifact(run, str(path))
    if order["splats"] and folder.splat.is_file():
        client.log_artifact(run, str(folder.splat))


def _figures(folder: AttemptFolder, event: AttemptEnded) -> Iterator[tuple[str, float, int, int]]:
    """Yield name, value, time in ms and step of every figure: first the curves, then the attempt's final figures."""
    for line in folder.read_progress():
        for name in CURVES:
            if (value := line.figure(name)) is not None and line.step is not None:
                yield name, float(value), round(1000 * (line.t or 0.0)), line.step
    final = (folder.read_metrics() or Metrics()).final
    whole = {"seconds": event.seconds, "final_num_gaussians": event.num_gaussians, "gpu_peak_mib": event.gpu_peak_mib}
    whole |= {f"final_{name}": getattr(final, name) for name in FINAL}
    for name, total in whole.items():
        if total is not None:
            yield name, float(total), round(1000 * (event.t or 0.0)), event.step or 0


if __name__ == "__main__":
    sys.exit(main())
