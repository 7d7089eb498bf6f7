"""What `train` sets right before it trains: products that were lost or replaced, and manifests that know too little."""

from __future__ import annotations

import contextlib

from splatbatch.files import write_json
from splatbatch.identity import FileFacts, with_contents
from splatbatch.store import results
from splatbatch.store.events import Restored
from splatbatch.store.ledger import Ledger
from splatbatch.store.records.result import Result
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.evidence import Standing
from splatbatch.tasks.fingerprints.inputs import differences, inputs_of, places
from splatbatch.tasks.plan import Decision, Skip


def restore(batch: Batch, ledger: Ledger) -> None:
    """Bring back accepted products that are gone or were replaced, from the attempts that made them."""
    for name in batch.names:
        with contextlib.suppress(OSError):  # it stays stale, and is told of when its turn comes
            if attempt := results.restore(batch.output.patch(name)):
                ledger.write(Restored(name, attempt))


def refresh(batch: Batch, standing: Standing, decisions: tuple[Decision, ...]) -> list[str]:
    """Write down what fresh results do not know of their files; return their patches.

    Results of 0.1.0 know no hashes; those of a folder that was copied know other times.
    """
    fresh = {one.patch for one in decisions if isinstance(one, Skip)}
    known_too_little = [name for name in batch.names if name in fresh and standing.evidence(name).outdated]
    for name in known_too_little:
        with contextlib.suppress(OSError):  # it stays as it is, and the next run tries
            _refresh(batch, standing, name)
    return known_too_little


def _refresh(batch: Batch, standing: Standing, name: str) -> None:
    task = standing.current(name)
    folder = batch.output.patch(name)
    result = folder.read_result() or Result()
    facts, then = FileFacts(), result.held_against.files
    now = inputs_of(task.patch, task.recipe, facts).files
    files = with_contents(now, then, differences(then, now, places(task.patch, task.recipe), facts))
    num_gaussians = (result.splat and result.splat.num_gaussians) or result.num_gaussians or 0
    splat = results.splat_facts(folder.splat, num_gaussians)
    write_json(folder.result, result.with_files(files).but(splat=splat).to_record())
    folder.damage.unlink(missing_ok=True)  # it was read, and is what was accepted
