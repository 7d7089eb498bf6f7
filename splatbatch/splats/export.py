"""Export of a splat: an unchanged copy, or one with fewer spherical harmonics or Gaussians; checked after writing."""

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
"""First words of the comment in the header of an export that is no unchanged copy.

A later export may overwrite a file with that comment without `--force`.
"""


@dataclass(frozen=True)
class ExportOptions:
    """Options of an export: what is left out, and in which frame the coordinates are; by default nothing changes."""

    sh_degree: int | None = None
    """Highest degree of the spherical harmonics that is kept, 0 to 3; 0: colour alone; None: all degrees."""
    min_opacity: float = 0.0
    """Gaussians below this opacity are left out; from 0 (none is left out) to less than 1."""
    in_source_frame: bool = False
    """Whether the offset of the splat's header is added again, so that coordinates are those of the COLMAP model."""


WHOLE = ExportOptions()
"""Options of an unchanged copy: nothing is left out, and nothing moved."""


class ChangedOnDisk(OutputError):
    """Raised if the splat file of a patch is not the file that was accepted.

    `name` is the patch, `why` a phrase for the message that says how the change was found.
    """

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: changed on disk ({why})", f"Train it again: splatbatch train {name}.")
        self.name = name


def export_splat(splat: Path, name: str, target: Path, cut: ExportOptions = WHOLE) -> Splat:
    """Write the splat of a patch to a file, whole or not at all; return the splat of that file, which is then checked.

    Missing parent folders are made, and an earlier file is replaced. A file that does not pass the check is left there.

    Args:
        splat: path of the accepted splat.
        name: name of the patch, for the header and messages.
        target: path of the file to write.
        cut: what to leave out; `WHOLE`: the bytes are copied.

    Raises:
        OutputError: the splat cannot be read or written; no Gaussian would be left; float32 is too coarse for the
            source frame; or the written file does not pass the check.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if cut == WHOLE:
            with open_regular(splat) as file:
                write_whole(target, partial(shutil.copyfileobj, file))
        else:
            cut_to(target, name, ply.read_splat(splat), ply.read_header(splat), cut)
    except (OSError, ValueError) as error:
        raise OutputError(
            f"{target}: {splat} cannot be exported there ({error})", "Correct what is said in brackets."
        ) from error
    arrived = check_splat(target)
    if isinstance(arrived, Rejected):
        raise OutputError(f"{target}: written, but damaged: {arrived.reason}", "Check the disk, then publish again.")
    return arrived


def cut_to(target: Path, name: str, gaussians: ply.Gaussians, header: ply.SplatHeader, cut: ExportOptions) -> None:
    """Write Gaussians, reduced by export options, to a splat file, whole or not at all; its header names the patch.

    `header` is that of the original file, whose steps and antialiasing go into the new one. So does its offset, unless
    that is added to the coordinates.

    Raises:
        ValueError: no Gaussian is left, or a parameter is not finite.
        OutputError: float32 would not tell neighbouring Gaussians apart in the frame of the source.
        OSError: the file cannot be written.
    """
    left, offset = apply(cut, gaussians), header.offset
    if cut.in_source_frame:
        left, offset = in_source_frame(name, left, offset), NO_OFFSET
    said = (f"{EXPORTED} {name}", *ply.offset_comments(offset), *ply.mode_comments(header.antialiased))
    ply.write_splat(target, left, header.step, header.planned, said)


def in_source_frame(name: str, gaussians: ply.Gaussians, offset: Offset) -> ply.Gaussians:
    """Return Gaussians with the offset added to their means in float64, and rounded to float32 once.

    `name` is the patch, for the message.

    Raises:
        OutputError: float32 would not tell neighbouring Gaussians apart at such coordinates; never for a zero offset.
    """
    means = gaussians.means.astype(np.float64) + np.array(offset)
    span = span_between(means, means[:0])
    if any(offset) and span is not None and span.loses():
        step = float(np.spacing(np.float32(np.abs(means).max())))
        raise OutputError(
            f"{name}: --frame source: such large coordinates have steps of {step:.2g} in float32, too coarse for"
            f" Gaussians that lie {span.spacing:.2g} apart",
            f"Leave --frame out, and place the splat at {spell_place(offset)}. 3D Tiles (transform), glTF (translation"
            " of a node) and COLMAP models can hold this place in float64.",
        )
    return replace(gaussians, means=means.astype(np.float32))


def apply(cut: ExportOptions, gaussians: ply.Gaussians) -> ply.Gaussians:
    """Return the Gaussians with at least `cut.min_opacity`, in their order, with harmonics up to `cut.sh_degree`.

    The offset is not added; see `in_source_frame`.

    Raises:
        ValueError: no Gaussian is left.
    """
    kept = np.ones(len(gaussians), dtype=bool)
    if cut.min_opacity > 0:
        kept = gaussians.opacities >= math.log(cut.min_opacity / (1 - cut.min_opacity))  # logits
    if not kept.any():
        raise ValueError(f"no Gaussian has an opacity of at least {cut.min_opacity:g}: lower --min-opacity")
    num_rest = gaussians.shN.shape[1] if cut.sh_degree is None else ply.num_coefficients(cut.sh_degree)
    left = {name: rows[kept] for name, rows in vars(gaussians).items()}
    return ply.Gaussians(**left | {"shN": left["shN"][:, :num_rest]})


def check_outside(what: str, folder: Path, output: Path) -> None:
    """Check that a folder to write into is not the output folder of a batch, nor a folder in it.

    `what` stands for the folder in the message, as "--out scene.ply". Links are followed.

    Raises:
        OutputError: the folder lies in the output folder.
    """
    if folder.resolve().is_relative_to(output.resolve()):
        message = f"{what}: lies in the output folder, where only the batch itself writes"
        raise OutputError(message, "Name a path outside of that folder.")


def check_place(target: Path, product: Path, output: Path, *, is_forced: bool) -> None:
    """Check that `publish` may write a product to the path `target`; nothing is written.

    Args:
        target: path to write to.
        product: the file that is published.
        output: output folder of the batch.
        is_forced: whether any other existing file may be overwritten (`--force`).

    Raises:
        OutputError: `target` lies in the output folder or is the product itself. Without `is_forced` also if it is a
            link, or exists and neither equals the product nor is a reduced export (`EXPORTED`).
        OSError: `target` exists and the product does not, or a path may not be looked up.
    """
    check_outside(str(target), target.parent, output)
    if target.exists() and target.samefile(product):
        raise OutputError(f"{target}: is the same file as {product}", "Name another path, and no link to this file.")
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
