"""`python -m splatbatch.training.formats SETTINGS RESULT`: compare the splats that a JSON file names, into another."""

import sys
from pathlib import Path

from splatbatch.files import write_json
from splatbatch.store.records.evaluation import ComparisonSettings
from splatbatch.training.ending import exit_code_of
from splatbatch.training.formats.measure import compare


def measure(settings: Path, result: Path) -> None:
    """Compare, and write down the result."""
    write_json(result, compare(ComparisonSettings.read(settings) or ComparisonSettings()))


if __name__ == "__main__":
    sys.exit(exit_code_of(lambda: measure(Path(sys.argv[1]), Path(sys.argv[2]))))
