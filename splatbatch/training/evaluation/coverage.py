"""Which pixels of held-out photographs a splat is judged on: the same for every attempt and program."""

from __future__ import annotations

import contextlib
from pathlib import Path

from splatbatch.errors import SceneError
from splatbatch.output.records.metrics import TrainingSettings
from splatbatch.scene.colmap.reconstruction import Reconstruction, count_points, read_reconstruction
from splatbatch.scene.colmap.rigs import rigs_of
from splatbatch.scene.coverage_mask import CoverageMask, coverage_mask
from splatbatch.scene.partition.border import Border

MOST_POINTS = 2_000_000
"""Of what a patch was cut from: of more, the patch's own points count alone, for each of its attempts reads them."""


def covered_of(settings: TrainingSettings, model: Reconstruction | None = None) -> CoverageMask | None:
    """Return what is covered of the held-out photographs of a patch; None where none is, and of what lies behind.

    Args:
        settings: of a training, an inspection or an evaluation.
        model: of the patch, as its files have it, with tracks; None: it is read.

    Raises:
        ModelError: a file of the model is missing, unreadable, cut or garbage.
    """
    if settings.is_backdrop or not settings.holdout:
        return None
    sparse, border = Path(settings.sparse), Border.from_record(settings.border)
    whole = model or read_reconstruction(sparse, tracks=True)
    # within its reach a patch with a core has all the points that there are
    source = None if border else _source_of(settings)
    return coverage_mask(whole, frozenset(settings.holdout), border, rigs_of(sparse), source)


def _source_of(settings: TrainingSettings) -> Reconstruction | None:
    """Return what a patch was cut from; None where nothing is named, it cannot be read, or it is very large."""
    folder = Path(settings.source)
    if not settings.source or folder == Path(settings.sparse):
        return None
    with contextlib.suppress(SceneError):
        if count_points(folder) <= MOST_POINTS:
            return read_reconstruction(folder, tracks=True)
    return None
