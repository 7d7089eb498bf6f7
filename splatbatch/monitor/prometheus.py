"""Writes metrics.prom, the state of a batch in the format of the textfile collector of Prometheus' node exporter."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Sequence

from splatbatch.files import write_text
from splatbatch.hashing import Stamp, stamp_of
from splatbatch.monitor.sinks import BatchOutcome, Sink
from splatbatch.monitor.table import batch_eta_s
from splatbatch.output.claims import AtWork, at_work
from splatbatch.output.layout import OutputFolder
from splatbatch.output.workers import Watcher
from splatbatch.tasks.freshness import FreshnessChecker
from splatbatch.tasks.status import STATES, PatchStatus, read_status

EVERY_S = 5.0
"""Least seconds between two writes."""
ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
"""Characters that are escaped in the value of a label."""
MOST_OF_TIME = 0.01
"""Largest share of a core's time that writing may take; with many patches the file is written less often."""
PER_PATCH = (
    ("step", "step", "Training steps done."),
    ("max_steps", "max_steps", "All training steps of the attempt, done or not."),
    ("loss", "loss", "Loss of the latest recorded step."),
    ("psnr_covered", "psnr_covered_db", "PSNR on the pixels of held-out photographs that training photographs see."),
    ("psnr", "psnr_db", "PSNR on held-out photographs."),
    ("num_gaussians", "gaussians", "Number of Gaussians."),
    ("seconds", "seconds", "Duration of the latest attempt."),
    ("eta_s", "eta_seconds", "Time to the last step, at the present speed."),
    ("gpu_used_mib", "gpu_used_mib", "Memory used on the GPU of the attempt that runs."),
    ("gpu_temperature_c", "gpu_temperature_celsius", "Temperature of the GPU of the attempt that runs."),
)
"""Metrics of a patch: field of PatchStatus, name of the metric, help text."""


class MetricsFile(Sink):
    """Rewrites metrics.prom every few seconds, whole or not at all; an error of the disk is ignored.

    Of several workers usually one writes: a worker that finds the file changed since its last look does not write. At
    its end each worker writes.
    """

    def __init__(
        self, output: OutputFolder, names: Sequence[str], standing: FreshnessChecker | None = None, worker: str = ""
    ) -> None:
        """Prepare without writing.

        Args:
            output: the output folder, where the file lies.
            names: names of the patches of the batch.
            standing: freshness checker of the batch; None: any existing splat counts as up to date.
            worker: name of this worker, which `close` does not count as running; empty: it has none.
        """
        self._output, self._names, self._standing, self._worker = output, names, standing, worker
        self._watcher = Watcher(output)
        self._next = 0.0
        self._seen = self._stamp()

    name = "metrics.prom"

    def tick(self) -> None:
        """Write the file if it is due and no other worker has written it; called many times a second.

        Raises:
            LaterFormatError: a later version of splatbatch wrote the output folder.
        """
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + EVERY_S
        if (now := self._stamp()) != self._seen:
            self._seen = now
            return
        began_s = time.thread_time()
        self._write(at_work(self._watcher), is_running=True)
        self._seen = self._stamp()
        self._next = time.monotonic() + max(EVERY_S, (time.thread_time() - began_s) / MOST_OF_TIME)

    def close(self, end: BatchOutcome | None = None) -> None:
        """Write the file for the last time; `splatbatch_running` stays 1 only if other workers are alive.

        The argument is not used.

        Raises:
            LaterFormatError: a later version of splatbatch wrote the output folder.
        """
        others = at_work(self._watcher, self._worker)
        self._write(others, is_running=any(not one.is_frozen for one in others))

    def _stamp(self) -> Stamp:
        return stamp_of(str(self._output.metrics))

    def _write(self, workers: Sequence[AtWork], *, is_running: bool) -> None:
        statuses = read_status(self._output, self._names, standing=self._standing)
        with contextlib.suppress(OSError):
            text = to_prometheus(statuses, workers, time.time(), is_running=is_running)
            write_text(self._output.metrics, text)


def to_prometheus(statuses: Sequence[PatchStatus], workers: Sequence[AtWork], now: float, *, is_running: bool) -> str:
    """Return the metrics in Prometheus's text format, version 0.0.4; metrics without a value are left out.

    Args:
        statuses: statuses of all patches.
        workers: workers that have not ended.
        now: time in seconds since 1970.
        is_running: whether a batch runs in the output folder.
    """
    hosts, nodes = Counter(one.host for one in workers), {one.node for one in statuses if one.node}
    placed = [one for one in statuses if one.node] if len(nodes) > 1 else []
    eta = batch_eta_s(statuses)
    families: list[tuple[str, str, list[tuple[str, float | None]]]] = [
        ("running", "1 while a batch runs in this output folder.", [("", is_running)]),
        ("workers", "Workers that have not ended, on each node.", [(_label(node=one), hosts[one]) for one in hosts]),
        (
            "patch_node",
            "Where a patch is trained, or was: 1 with the name of the node.",
            [(_label(patch=one.patch, node=one.node), 1) for one in placed],
        ),
        ("updated_timestamp_seconds", "When this file was written.", [("", now)]),
        (
            "patches",
            "Patches in each state.",
            [(_label(state=state), sum(one.state == state for one in statuses)) for state in STATES],
        ),
        ("eta_seconds", "Time until every patch is trained.", [("", eta)]),
    ]
    families += [
        (f"patch_{name}", about, [(_label(patch=one.patch), getattr(one, field)) for one in statuses])
        for field, name, about in PER_PATCH
    ]
    return "".join(f"{line}\n" for family in families for line in _family(*family))


def _family(name: str, about: str, values: Sequence[tuple[str, float | None]]) -> Iterator[str]:
    if known := [(label, float(value)) for label, value in values if value is not None]:
        yield f"# HELP splatbatch_{name} {about}"
        yield f"# TYPE splatbatch_{name} gauge"
        yield from (f"splatbatch_{name}{label} {value!r}" for label, value in known)


def _label(**values: str) -> str:
    return "{" + ",".join(f'{name}="{value.translate(ESCAPED)}"' for name, value in values.items()) + "}"
