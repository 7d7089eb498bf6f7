"""What job.json and watch.json order: every field of its kind, or a job that says that it cannot be read."""

from __future__ import annotations

from splatbatch.fields import mapping, number, text, texts, whole
from splatbatch.files import Record

LIMITS = {"wall_s": float("inf"), "grace_s": 10.0, "stall_s": 0.0}
"""What counts where a limit cannot be read."""


def sound_job(record: Record) -> Record:
    """Return a job as the supervisor goes by it; one without a command cannot be started, and says so."""
    limits = mapping(record.get("limits"))
    read = {name: number(limits.get(name)) for name in LIMITS}
    return {
        "key": text(record.get("key")),
        "argv": texts(record.get("argv")),
        "env": sound_environment(record.get("env")),
        "cwd": text(record.get("cwd")) or None,
        "gpu": text(record.get("gpu")) or None,
        "standby": record.get("standby") is True,
        "limits": {name: LIMITS[name] if value is None else max(0.0, value) for name, value in read.items()},
    }


def sound_watch(record: Record | None) -> Record | None:
    """Return how a program of somebody else is watched; None for our own, and where nothing can be read of it."""
    if record is None:
        return None
    then = mapping(record.get("then"))
    return {
        "cwd": text(record.get("cwd")) or None,
        "env": sound_environment(record.get("env")),
        "progress": {name: text(pattern) for name, pattern in mapping(record.get("progress")).items()},
        "max_steps": whole(record.get("max_steps")) or 0,
        "phase": text(record.get("phase")) or "start",
        "finish": mapping(record.get("finish")),
        "finished_after_s": number(record.get("finished_after_s")) or 0.0,
        "then": {**then, "argv": texts(then.get("argv")), "finish": mapping(then.get("finish"))} if then else None,
    }


def sound_environment(value: object) -> dict[str, str]:
    """Return the variables of an environment; those that no process could be given are left out."""
    named = {name: text(one) for name, one in mapping(value).items()}
    return {name: one for name, one in named.items() if name and not {"=", "\0"} & set(name) and "\0" not in one}
