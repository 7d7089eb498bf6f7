"""Export of a splat: copied whole, or reduced in spherical harmonics and Gaussians, and checked after it is written."""

from __future__ import annotations

import filecmp
import math
import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from splatbatch.config import NO_OFFSET, Offset
from splatbatch.errors import OutputError
from splatbatch.files import open_regular, write_whole
from splatbatch.outcome import Rejected, Splat
from splatbatch.scene.frame import span_between
from splatbatch.splats import ply
from splatbatch.splats.check import check_splat
from splatbatch.text import spell_place

EXPORTED = "splatbatch export of"
"""First words of the comment in the header of a reduced export, by which it may be overwritten later."""


@dataclass(frozen=True)
class ExportOptions:
    """Options of an export: what is left out, and in which frame the coordinates are."""

    sh_degree: int | None = None
    """Highest degree of the spherical harmonics that is kept; None: all."""
    min_opacity: float = 0.0
    """Gaussians below this opacity are left out; from 0 to less than 1."""
    in_source_frame: bool = False
    """Whether the offset is added again, so that coordinates are those of the source model."""


WHOLE = ExportOptions()
"""Options of an unchanged copy: nothing is left out, and nothing moved."""


class ChangedOnDisk(OutputError):
    """Raised if the splat file of a patch is no longer the one that was accepted."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: changed on disk ({why})", f"Train it again: splatbatch train {name}.")
        self.name = name


def export_splat(splat: Path, name: str, target: Path, cut: ExportOptions = WHOLE) -> Splat:
    """Write the splat of a patch, checked before, to a file, whole or not at all; return it as checked in that file.

    Raises:
        OutputError: the splat cannot be read or written; no Gaussian would be left; or the written file does not pass
            the check.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if cut == WHOLE:
            with open_regular(splat) as file:
                write_whole(target, partial(shutil.copyfileobj, file))
        else:
            cut_to(target, name, ply.read_splat(splat), ply.read_header(splat), cut)
    except (OSError, ValueError) as error:
        raise OutputError(f"{target}: {splat} cannot be exported there ({error})") from error
    arrived = check_splat(target)
    if isinstance(arrived, Rejected):
        raise OutputError(f"{target}: did not arrive whole: {arrived.reason}", "Check the disk, then publish again.")
    return arrived


def cut_to(target: Path, name: str, gaussians: ply.Gaussians, header: ply.SplatHeader, cut: ExportOptions) -> None:
    """Write a splat, reduced by export options, to a file whose header names the patch.

    Raises:
        ValueError: no Gaussian is left.
        OutputError: float32 would not tell neighbouring Gaussians apart in the frame of the source.
        OSError: it cannot be written.
    """
    left, offset = apply(cut, gaussians), header.offset
    if cut.in_source_frame:
        left, offset = in_source_frame(name, left, offset), NO_OFFSET
    said = (f"{EXPORTED} {name}", *ply.offset_comments(offset), *ply.mode_comments(header.antialiased))
    ply.write_splat(target, left, header.step, header.planned, said)


def in_source_frame(name: str, gaussians: ply.Gaussians, offset: Offset) -> ply.Gaussians:
    """Return Gaussians with the offset added again, in float64, before they are rounded once.

    Raises:
        OutputError: float32 would not tell neighbouring Gaussians apart there.
    """
    means = gaussians.means.astype(np.float64) + np.array(offset)
    span = span_between(means, means[:0])
    if any(offset) and span is not None and span.loses():
        step = float(np.spacing(np.float32(np.abs(means).max())))
        raise OutputError(
            f"{name}: --frame source: float32 has steps of {step:.2g} there and would move the Gaussians, which lie"
            f" {span.spacing:.2g} apart",
            f"Leave --frame out and place the splat at {spell_place(offset)}. Formats with a float64 place of their own"
            " carry it: 3D Tiles (transform), glTF (translation of a node), COLMAP models.",
        )
    return replace(gaussians, means=means.astype(np.float32))


def apply(cut: ExportOptions, gaussians: ply.Gaussians) -> ply.Gaussians:
    """Return the Gaussians with at least the wanted opacity, with harmonics up to the wanted degree.

    Raises:
        ValueError: no Gaussian is left.
    """
    kept = np.ones(len(gaussians), dtype=bool)
    if cut.min_opacity > 0:
        kept = gaussians.opacities >= math.log(cut.min_opacity / (1 - cut.min_opacity))  # logits
    if not kept.any():
        raise ValueError(f"no Gaussian has an opacity of at least {cut.min_opacity:g}")
    num_rest = gaussians.shN.shape[1] if cut.sh_degree is None else ply.num_coefficients(cut.sh_degree)
    left = {name: rows[kept] for name, rows in vars(gaussians).items()}
    return ply.Gaussians(**left | {"shN": left["shN"][:, :num_rest]})


def check_outside(what: str, folder: Path, output: Path) -> None:
    """Check that a folder to write into is not in the output folder of a batch; `what` names it in the message.

    Raises:
        OutputError: it is.
    """
    if folder.resolve().is_relative_to(output.resolve()):
        message = f"{what}: lies in the output folder, among what the batch has written"
        raise OutputError(message, "Name a place elsewhere.")


def check_place(target: Path, product: Path, output: Path, *, is_forced: bool) -> None:
    """Check that a product may be written to a file.

    Raises:
        OutputError: it lies in the output folder, is the product itself, or exists and was not written by `publish`.
    """
    check_outside(str(target), target.parent, output)
    if target.exists() and target.samefile(product):
        raise OutputError(f"{target}: is the same file as {product}", "Name a place that is no link to it.")
    if not is_forced and not _may_be_replaced(target, product):
        raise OutputError(f"{target}: exists and was not written by publish", "Add --force to overwrite it.")


def _may_be_replaced(target: Path, product: Path) -> bool:
    """Return whether a file may be overwritten: it is missing, equal to the product, or a reduced export."""
    if target.is_symlink():
        return False
    if not target.exists():
        return True
    with suppress(OSError):
        return ply.has_comment(target, EXPORTED) or filecmp.cmp(target, product, shallow=False)
    return False
