"""What a supervisor runs: the job of job.json and, of an external trainer, how watch.json says it is watched."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.records.attempt import MEASURING, Go, JobSpec, Then, WatchSettings

GPU_PLACE = "{gpu}"
"""Stands in commands and environments for the UUID of the GPU, which only the supervisor is told."""


@dataclass
class Job:
    """A command on its way; it changes when a standby is told to go."""

    spec: JobSpec
    watch: WatchSettings | None = None
    """None: our own trainer, which tells its progress itself."""
    group: Path | None = None
    """Control group that the command and all it starts are put into."""

    @property
    def measures(self) -> bool:
        """Return whether it measures what an external trainer has made."""
        return self.watch is not None and self.watch.phase == MEASURING

    def begin(self, go: Go) -> None:
        """Its turn has come, on a GPU that may be another than it was meant for."""
        self.spec = replace(self.spec, gpu=go.gpu, standby=False)

    def then(self, watch: WatchSettings, then: Then) -> Job:
        """Return the job of the second command."""
        argv = _filled(then.argv, self.spec.gpu)
        second = replace(watch, finish=then.finish, phase=then.phase, then=None)
        return replace(self, spec=replace(self.spec, argv=argv), watch=second)

    def measure(self, watch: WatchSettings, splat: Path) -> Job:
        """Return the job of the command that measures a splat: ours, without the variables of the program."""
        env = {name: value for name, value in self.spec.env.items() if name not in watch.env}
        watched = WatchSettings(max_steps=watch.max_steps, phase=MEASURING)
        return replace(self, spec=replace(self.spec, argv=(*watch.measure, str(splat)), env=env), watch=watched)


def read_job(folder: AttemptFolder) -> Job | None:
    """Return the job of an attempt, the GPU named where the program wants its name; None without job.json."""
    spec, watch = folder.read_job(), folder.read_watch()
    if spec is None or watch is None:
        return None if spec is None else Job(spec)
    env = {name: value.replace(GPU_PLACE, spec.gpu or "") for name, value in watch.env.items()}
    return Job(replace(spec, argv=_filled(spec.argv, spec.gpu), env=spec.env | env), replace(watch, env=env))


def _filled(argv: tuple[str, ...], gpu: str | None) -> tuple[str, ...]:
    return tuple(word.replace(GPU_PLACE, gpu or "") for word in argv)
