"""Facts for the report from the inspection of a splat: its grade and figures."""

from __future__ import annotations

from pathlib import Path

from splatbatch.files import read_record
from splatbatch.hashing import FileFacts
from splatbatch.output.attempt_folder import PICTURES
from splatbatch.output.folders import SplatFolder
from splatbatch.output.records.quality import Inspection, QualityFigure
from splatbatch.report.facts import SplatQuality

FIGURES = ("figure", "value", "limit", "state", "what")
MOST_NAMED = 8


def quality_of(folder: SplatFolder, sha256: str | None = None) -> SplatQuality | None:
    """Return the inspection of an accepted or merged splat; None if this splat was not inspected.

    Also None if inspection.json cannot be read, or is of another splat.

    Args:
        folder: folder of the splat, with its inspection and certificate.
        sha256: SHA-256 of the splat; None: it is computed from the splat's file.

    Raises:
        LaterFormatError: a later version of splatbatch wrote the inspection or certificate.
    """
    found = folder.read_inspection()
    if found is None or not found.grade or not found.splat:
        return None
    if found.splat != (FileFacts().sha256(str(folder.splat)) if sha256 is None else sha256):
        return None
    certificate = read_record(folder.certificate) or {}
    named = found.attempt if Path(found.attempt).name == found.attempt else ""
    return SplatQuality(
        grade=found.grade,
        figures=found.figures,
        cells=found.cells,
        holdout={name: one for name, one in found.photos.items() if "psnr" in one},
        cameras={name: {axis: one[axis] for axis in "xyz" if axis in one} for name, one in found.photos.items()},
        psnr=_mean_psnr(found, in_one_piece=False),
        psnr_in_one_piece=_mean_psnr(found, in_one_piece=True),
        thumbnails=found.thumbnails,
        pictures=str(folder.inspecting.path / named / PICTURES),
        seconds=found.seconds,
        certificate=certificate if certificate.get("splat") == found.splat else {},
    )


def _mean_psnr(found: Inspection, *, in_one_piece: bool) -> float | None:
    """Return the mean PSNR of held-out photographs whose neighbours are held out, too, or of the others."""
    every = found.photos.values()
    psnrs = [one["psnr"] for one in every if "psnr" in one and bool(one.get("piece")) == in_one_piece]
    return sum(psnrs) / len(psnrs) if psnrs else None


def figure_row(figure: QualityFigure) -> tuple[str, ...]:
    """Return a figure of an inspection as a row of text under the headings `FIGURES`.

    Value and limit are empty if unknown. At most MOST_NAMED photographs are named.
    """
    value, limit = ("" if one is None else f"{one:.3g}" for one in (figure.value, figure.limit))
    named = ", ".join(figure.subjects[:MOST_NAMED])
    what = f"{figure.unit} {figure.meaning}" + (f": {named}" if named else "")
    what += f" (not measured: {figure.why})" if figure.value is None and figure.why else ""
    return (figure.name, value, limit, figure.state, what)
