"""The job of a supervisor: the command of job.json and, for an external trainer, the watch settings of watch.json."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.records.attempt import MEASURING, Go, JobSpec, Then, WatchSettings

GPU_PLACE = "{gpu}"
"""Placeholder in commands and environments for the UUID of the GPU, which only the supervisor knows."""


@dataclass
class Job:
    """The command that a supervisor runs, with its limits; `begin` changes the job when a standby's turn comes.

    A slot is a GPU or a share of the CPU; a standby is an attempt that is prepared while all slots are busy.
    """

    spec: JobSpec
    watch: WatchSettings | None = None
    """How an external trainer is watched; None: the trainer of splatbatch, which writes its progress itself.

    None, too, if watch.json cannot be read.
    """
    group: Path | None = None
    """Control group for the command and its children; None: there is none."""

    @property
    def measures(self) -> bool:
        """Whether the command measures the splat of an external trainer."""
        return self.watch is not None and self.watch.phase == MEASURING

    def begin(self, go: Go) -> None:
        """Note that a standby's turn has come, on the GPU of `go`, which may be another than planned.

        None there: the CPU.
        """
        self.spec = replace(self.spec, gpu=go.gpu, standby=False)

    def then(self, watch: WatchSettings, then: Then) -> Job:
        """Return the job of the second command of an external trainer, which turns its output into a splat.

        Args:
            watch: watch settings of the first command.
            then: second command, and the files that it must leave.
        """
        argv = _filled(then.argv, self.spec.gpu)
        second = replace(watch, finish=then.finish, phase=then.phase, then=None)
        return replace(self, spec=replace(self.spec, argv=argv), watch=second)

    def measure(self, watch: WatchSettings, splat: Path) -> Job:
        """Return the job that measures a splat by splatbatch itself, without the environment of the trainer.

        Args:
            watch: watch settings of the trainer.
            splat: path of the splat.
        """
        env = {name: value for name, value in self.spec.env.items() if name not in watch.env}
        watched = WatchSettings(max_steps=watch.max_steps, phase=MEASURING)
        return replace(self, spec=replace(self.spec, argv=(*watch.measure, str(splat)), env=env), watch=watched)


def read_job(folder: AttemptFolder) -> Job | None:
    """Return the job of an attempt with the GPU's UUID put in for its placeholder; None without a readable job.json.

    On the CPU the placeholder becomes empty.
    """
    spec, watch = folder.read_job(), folder.read_watch()
    if spec is None or watch is None:
        return None if spec is None else Job(spec)
    env = {name: value.replace(GPU_PLACE, spec.gpu or "") for name, value in watch.env.items()}
    return Job(replace(spec, argv=_filled(spec.argv, spec.gpu), env=spec.env | env), replace(watch, env=env))


def _filled(argv: tuple[str, ...], gpu: str | None) -> tuple[str, ...]:
    return tuple(word.replace(GPU_PLACE, gpu or "") for word in argv)
