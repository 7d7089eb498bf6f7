"""What was merely memorised: photographs that were trained on against those that were not."""

from __future__ import annotations

import statistics

from splatbatch.training.evaluation.evaluate import psnr_on
from splatbatch.training.inspection.subject import Look, Subject
from splatbatch.training.spread import spread

MOST_VIEWS = 8


def psnrs(subject: Subject, looks: tuple[Look, ...]) -> dict[str, float]:
    """Return the PSNR of small copies of photographs, in dB; of those of which any pixel counts."""
    small = [look.small for look in looks if look.small.counts()]
    return {photo.name: psnr_on(subject.drawn, photo, subject.recipe) for photo in small}


def gap_db(subject: Subject, held_out: dict[str, float]) -> float | None:
    """Return by how much trained photographs are better than held-out ones; None without either."""
    trained = psnrs(subject, spread(subject.training, MOST_VIEWS))
    if not trained or not held_out:
        return None
    return statistics.fmean(trained.values()) - statistics.fmean(held_out.values())
