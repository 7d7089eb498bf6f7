"""What compression costs, in dB on held-out photographs: measured by a process that renders what came back."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from splatbatch.errors import OutputError
from splatbatch.files import write_json
from splatbatch.machine.bounded import Bounds, run_bounded
from splatbatch.publish.source import Published
from splatbatch.store.records.evaluation import Compared, Comparison, ComparisonSettings

MODULE = "splatbatch.training.formats"


@dataclass(frozen=True)
class Loss:
    """How much worse a splat is for having been compressed."""

    num_photos: int
    psnr: float
    """In dB, of what came back, against photographs as the splat was compared with them in training."""
    loss_db: float
    """The original's, less that."""
    between_db: float
    """PSNR of what came back against the original; 100: equal."""


def measure(
    splat: Published, original: Path, decoded: Mapping[str, Path], work: Path, bounds: Bounds
) -> dict[str, Loss]:
    """Return what each format costs.

    Raises:
        OutputError: it cannot be measured.
    """
    if not decoded:
        return {}
    told = asdict(splat.views) | {"splats": {"": str(original), **{name: str(path) for name, path in decoded.items()}}}
    settings, result = work / "compare.json", work / "compared.json"
    write_json(settings, ComparisonSettings.from_record(told).to_record())
    try:
        ended = run_bounded([sys.executable, "-m", MODULE, str(settings), str(result)], bounds)
    except OSError as error:
        raise OutputError(f"{splat.name}: compression cannot be measured ({error})") from error
    found = Comparison.read(result) if ended.is_well else Comparison()
    before = found.splats.get("", Compared()).psnr
    if before is None:
        raise OutputError(
            f"{splat.name}: compression could not be measured: {ended.why(bounds)}",
            "Publish with --no-measure to leave that out.",
        )
    return {
        name: Loss(found.num_photos, one.psnr, round(before - one.psnr, 3), one.between)
        for name, one in found.splats.items()
        if name and one.psnr is not None and one.between is not None
    }
