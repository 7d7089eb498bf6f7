"""The pacer of a batch that has a deadline."""

from __future__ import annotations

import time

from splatbatch.scheduler.pace.pacer import DeadlinePacer
from splatbatch.store.events import Paced
from splatbatch.store.ledger import Ledger
from splatbatch.store.records.deadline.choice import Choice
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.deadline.settle import speeds_of
from splatbatch.tasks.deadline.words import correction_in_words
from splatbatch.tasks.footprints import footprints_of
from splatbatch.tasks.settled.deadline import DEADLINE


def pacer_of(batch: Batch, choice: Choice, ledger: Ledger) -> DeadlinePacer:
    """Return what keeps a batch to what was chosen for its deadline, and writes down what it corrects."""
    bare = batch.with_record(DEADLINE, None)
    recipes = list({id(one): one for one in (task.asked.recipe for task in bare.tasks)}.values())

    def tell(now: Choice) -> None:
        DEADLINE.write(batch.output, now)
        latest = now.corrections[-1]
        ledger.write(Paced(correction_in_words(recipes, latest.pace, latest.why)))

    speeds, _ = speeds_of(bare, footprints_of(bare.config, bare.tasks))
    end = time.monotonic() + (choice.ends_at or 0.0) - time.time()
    return DeadlinePacer(choice, speeds, end, tell)
