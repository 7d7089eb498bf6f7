"""watch.json: how the supervisor watches an external trainer, and what the trainer is to leave."""

from __future__ import annotations

from dataclasses import dataclass, field

from splatbatch.fields import text
from splatbatch.store.records.record import TypedRecord, environment, reads


@dataclass(frozen=True)
class Finish(TypedRecord):
    """What should lie below a folder in the end."""

    folder: str = ""
    products: tuple[str, ...] = ()
    """Globs of the splat."""
    step: str = ""
    """Regular expression of the step in a product's path."""
    last_step: int | None = None
    files: tuple[str, ...] = ()
    """Globs of further files."""
    awaited: tuple[str, ...] = ()
    """Globs of files that need not come, but are waited for."""


@dataclass(frozen=True)
class Then(TypedRecord):
    """The command that makes a splat of what the first one left."""

    argv: tuple[str, ...] = ()
    finish: Finish = Finish()
    phase: str = "export"


@dataclass(frozen=True)
class Watch(TypedRecord):
    """How an external trainer is run and watched besides what job.json says."""

    cwd: str | None = None
    env: dict[str, str] = field(default_factory=dict, metadata=reads(environment))
    progress: dict[str, str] = field(default_factory=dict)
    """Regular expressions of figures in the log, by name."""
    max_steps: int = 0
    phase: str = field(default="start", metadata=reads(lambda value: text(value) or "start"))
    finish: Finish = Finish()
    finished_after_s: float = 0.0
    """So long silent with all there, and it counts as done; 0: never."""
    then: Then | None = None
    metrics: tuple[str, ...] = ()
    """Globs of the file that holds its own figures."""
    shown: tuple[str, ...] = ()
    """Variables whose values are no secrets: settings that are shown anyway."""

    def final(self) -> Finish:
        """Return what the last of its commands should leave."""
        return self.then.finish if self.then else self.finish
