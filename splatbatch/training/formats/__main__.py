"""`python -m splatbatch.training.formats SETTINGS RESULT`: compare the splats that a JSON file names, into another."""

import sys
from pathlib import Path

from splatbatch.errors import SplatbatchError
from splatbatch.files import write_json
from splatbatch.store.records.evaluation import ComparisonSettings
from splatbatch.training.formats.measure import compare


def main(settings: Path, result: Path) -> int:
    """Compare; known causes of failure end in one line."""
    try:
        write_json(result, compare(ComparisonSettings.read(settings)))
    except SplatbatchError as error:
        print(f"splatbatch: {error.message}", file=sys.stderr)  # noqa: T201 - the parent reads it
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
