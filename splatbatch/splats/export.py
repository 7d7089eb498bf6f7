"""A splat for somebody else: copied whole, or cut to fewer colours and Gaussians, and checked where it arrives."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from splatbatch.errors import OutputError
from splatbatch.files import write_whole
from splatbatch.outcome import Splat, Unfit
from splatbatch.splats.check import check_splat
from splatbatch.splats.ply import Gaussians, read_header, read_splat, write_splat

CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Cut:
    """What an export leaves out."""

    sh_degree: int | None = None
    """Highest degree of the spherical harmonics that stays; None: all."""
    min_opacity: float = 0.0
    """Gaussians below this opacity are left out; from 0 to less than 1."""


def export_splat(source: Path, target: Path, cut: Cut = Cut()) -> Splat:
    """Write a splat elsewhere, whole or not at all; return it as it was found there.

    Raises:
        OutputError: it cannot be read or written, nothing would be left of it, or it did not arrive whole.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if cut == Cut():
            _copy(source, target)
        else:
            header = read_header(source)
            write_splat(target, apply(cut, read_splat(source)), header.step, header.planned)
    except (OSError, ValueError) as error:
        raise OutputError(f"{target}: {source} cannot be exported there ({error})") from error
    arrived = check_splat(target)
    if isinstance(arrived, Unfit):
        raise OutputError(f"{target}: did not arrive whole: {arrived.reason}", "Check the disk, then export again.")
    return arrived


def apply(cut: Cut, gaussians: Gaussians) -> Gaussians:
    """Return the Gaussians that a cut leaves.

    Raises:
        ValueError: it leaves none.
    """
    kept = np.ones(len(gaussians), dtype=bool)
    if cut.min_opacity > 0:
        kept = gaussians.opacities >= math.log(cut.min_opacity / (1 - cut.min_opacity))  # logits
    if not kept.any():
        raise ValueError(f"no Gaussian has an opacity of {cut.min_opacity:g}")
    num_rest = gaussians.shN.shape[1] if cut.sh_degree is None else (cut.sh_degree + 1) ** 2 - 1
    return Gaussians(
        means=gaussians.means[kept],
        scales=gaussians.scales[kept],
        quats=gaussians.quats[kept],
        opacities=gaussians.opacities[kept],
        sh0=gaussians.sh0[kept],
        shN=gaussians.shN[kept, :num_rest],
    )


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as file:
        write_whole(target, lambda copy: copy.writelines(iter(lambda: file.read(CHUNK_BYTES), b"")))
