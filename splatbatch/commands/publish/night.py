"""What a night ends with: once every patch is trained, the scene is merged and published as the YAML says."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import typer

from splatbatch import config as configuration
from splatbatch.errors import OutputError, SplatbatchError
from splatbatch.plain_text import one_line


@contextlib.contextmanager
def publishing_after(config: Path | None, *, merges: bool = True, is_worker: bool = False) -> Iterator[None]:
    """Publish after a command that trains, if that ended well and the YAML asks for it; its exit code stays.

    Whether it asks is read before: it may change later.

    Args:
        config: the YAML.
        merges: a scene that was cut into patches is merged first.
        is_worker: others may be at work; the last to leave publishes what all have trained.
    """
    is_asked = _asks(config)
    try:
        yield
    except typer.Exit as ended:
        if ended.exit_code == 0 and is_asked and (not is_worker or _is_last(config)):
            _publish(config, merges=merges)
        raise


def _asks(config: Path | None) -> bool:
    """Return whether a YAML asks for it; of mistakes in it the command that trains tells."""
    with contextlib.suppress(SplatbatchError):
        return bool(configuration.load(configuration.find_config(config)).publish.formats)
    return False


def _is_last(config: Path | None) -> bool:
    """Return whether no other worker is at the batch any more."""
    from splatbatch.commands.output import tell
    from splatbatch.scheduler.work.others import see_no_workers
    from splatbatch.store.claims.workers import Watcher
    from splatbatch.tasks.batch import open_batch

    try:
        see_no_workers(Watcher(open_batch(config).output), lambda: None, tell)
    except OutputError:
        tell("others are at work: the last of them publishes")
        return False
    return True


def _publish(config: Path | None, *, merges: bool) -> None:
    """Publish; why that cannot be done is told."""
    from splatbatch.commands.publish.publish import run, show
    from splatbatch.commands.scene import merge as merging
    from splatbatch.scene.partition.record import partition_of
    from splatbatch.tasks.batch import open_batch

    try:
        batch = open_batch(config)
        if merges and not batch.config.scene.scenes and partition_of(batch.config.scene.patches):
            merging.merge(config, merging.MergeOptions(), as_json=False)
        show(run(batch, ()))
    except (SplatbatchError, OSError) as error:
        hint = f" ({error.hint})" if isinstance(error, SplatbatchError) and error.hint else ""
        typer.echo(one_line(f"not published: {error}{hint}; again: splatbatch publish"), err=True)
