"""What happens to a batch: begun, looked at, held up, ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from splatbatch.store.events.event import Event


@dataclass(frozen=True)
class BatchStarted(Event, event="batch_started"):
    """A run begins to train."""

    patches: tuple[str, ...]
    slots: tuple[str, ...]
    changes: dict[str, Any]
    """Settings changed by --set."""


@dataclass(frozen=True)
class BatchEnded(Event, event="batch_ended"):
    """A run is over."""

    trained: int
    of: int
    stopped: str


@dataclass(frozen=True)
class Forecasted(Event, event="forecast"):
    """How long a run is expected to take."""

    seconds: float | None
    basis: str
    patches: str
    text: str


@dataclass(frozen=True)
class Paced(Event, event="deadline"):
    """What is given up so that the batch ends in time, chosen or corrected."""

    text: str


@dataclass(frozen=True)
class Unwell(Event, event="unwell"):
    """The preflight found something odd about the machine."""

    check: str
    message: str


@dataclass(frozen=True)
class Expected(Event, event="expected"):
    """What a patch is expected to need."""

    patch: str
    gpu_mib: int
    host_mib: int
    num_gaussians: int
    photos: str
    photos_mib: int
    num_points: int
    mean_px: int


@dataclass(frozen=True)
class Tight(Event, event="tight"):
    """A patch may not fit."""

    patch: str
    reason: str


@dataclass(frozen=True)
class OrphansStopped(Event, event="twins_stopped"):
    """Attempts of an earlier run still ran."""

    keys: tuple[str, ...]


@dataclass(frozen=True)
class Audited(Event, event="audit"):
    """The patches to train were looked at, or nobody wanted that."""

    verified: bool
    refused: dict[str, Any]
    """Patch, and why."""
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Refused(Event, event="refused"):
    """The audit found errors in a patch."""

    patch: str
    reason: str
    inputs: str | None = None
    """State of its files then; None: an earlier version wrote it."""


@dataclass(frozen=True)
class Packing(Event, event="packing"):
    """So many patches share a GPU from now on."""

    patches_per_gpu: int
    paces: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class MpsOff(Event, event="mps_off"):
    """CUDA MPS serves nobody."""

    reason: str


@dataclass(frozen=True)
class SlotGivenUp(Event, event="slot_given_up"):
    """A slot is taken out of service."""

    slot: str
    reason: str


@dataclass(frozen=True)
class Paused(Event, event="paused"):
    """Nothing new is started."""

    reason: str


@dataclass(frozen=True)
class Resumed(Event, event="resumed"):
    """There is room again."""

    waited_s: float | None


@dataclass(frozen=True)
class Waits(Event, event="waits"):
    """Something done for a patch waits for a file that does not answer."""

    patch: str
    path: str
    seconds: float | None


@dataclass(frozen=True)
class CancelRequested(Event, event="cancel_requested"):
    """Somebody wants the batch, or some patches, to end."""

    by: str
    patches: tuple[str, ...]


@dataclass(frozen=True)
class NotifyFailed(Event, event="notify_failed"):
    """Somebody could not be told."""

    reason: str


@dataclass(frozen=True)
class Awaited(Event, event="awaited"):
    """A task waits for a worker that is silent, or for a claim that nobody can read."""

    words: str


@dataclass(frozen=True)
class WorkersSeen(Event, event="workers_seen"):
    """An engine says how its workers are, otherwise than before."""

    words: str
