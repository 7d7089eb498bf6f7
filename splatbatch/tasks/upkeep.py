"""What `train` sets right before it trains: products that were lost or replaced, and manifests that know too little."""

from __future__ import annotations

from splatbatch.files import write_json
from splatbatch.hashing import FileFacts, with_contents
from splatbatch.output import results
from splatbatch.output.records.result import Result
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.fingerprints.inputs import differences, inputs_of, places


def restore(batch: Batch, name: str) -> tuple[str, str]:
    """Bring back an accepted product that is gone or was replaced; return its attempt and, if another, that of before.

    Both are empty where nothing was to be done, or nothing fits.
    """
    folder = batch.output.patch(name)
    before, found = (folder.read_result() or Result()).attempt, results.restore(folder)
    return found, before if found and found != before else ""


def refresh(batch: Batch, name: str) -> None:
    """Write down what a fresh result does not know of its files: those of a folder that was copied have other times."""
    task = next(task for task in batch.tasks if task.name == name)
    folder = batch.output.patch(name)
    result = folder.read_result() or Result()
    facts, then = FileFacts(), result.held_against.files
    now = inputs_of(task.patch, task.recipe, facts).files
    files = with_contents(now, then, differences(then, now, places(task.patch, task.recipe), facts))
    num_gaussians = result.splat.num_gaussians or result.num_gaussians or 0
    splat = results.splat_facts(folder.splat, num_gaussians)
    write_json(folder.result, result.with_files(files).with_fields(splat=splat).to_record())
    folder.damage.unlink(missing_ok=True)  # it was read, and is what was accepted
