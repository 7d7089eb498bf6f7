"""Where an export may be written: not among the products of a batch, and over nothing that somebody else wrote."""

from __future__ import annotations

import filecmp
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from splatbatch.errors import OutputError
from splatbatch.splats.ply import MOST_HEADER_BYTES

EXPORTED = "splatbatch export of"
"""Begins the comment in the header of a splat that was cut for somebody else."""


@dataclass(frozen=True)
class Place:
    """The folders of a batch that an export must know."""

    output: Path
    """Everything the batch writes: no export does."""
    export: Path
    """But for this folder in it, which belongs to exports alone."""
    is_forced: bool = False
    """Files of somebody else may be overwritten."""

    def check(self, target: Path, product: Path) -> None:
        """Check that a product may be exported to a path.

        Raises:
            OutputError: it lies in the output folder, is the product itself, or a file that no export wrote.
        """
        home, folder = self.output.resolve(), target.parent.resolve()
        is_own = folder.is_relative_to(home / self.export.name)
        if folder.is_relative_to(home) and not is_own:
            hint = f"Name a place elsewhere, or leave --to out: {self.export}."
            raise OutputError(f"{target}: lies in the output folder, among what the batch has written", hint)
        if target.exists() and target.samefile(product):
            raise OutputError(f"{target}: is the same file as {product}", "Name a place that is no link to it.")
        if not self.is_forced and not is_own and not _may_be_replaced(target, product):
            raise OutputError(f"{target}: is there already, and no export wrote it", "Add --force to overwrite it.")


def _may_be_replaced(target: Path, product: Path) -> bool:
    """Return whether nothing is lost: there is no file, or the same as the product, or one that an export cut."""
    if target.is_symlink():
        return False
    if not target.exists():
        return True
    with suppress(OSError):
        with target.open("rb") as file:
            header = file.read(MOST_HEADER_BYTES).partition(b"end_header\n")[0]
        return f"\ncomment {EXPORTED} ".encode() in header or filecmp.cmp(target, product, shallow=False)
    return False
