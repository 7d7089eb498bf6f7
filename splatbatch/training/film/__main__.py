"""`python -m splatbatch.training.film SETTINGS FRAMES`: draw a flight that a JSON file describes, as raw RGB."""

import sys
from pathlib import Path

from splatbatch.errors import SplatbatchError
from splatbatch.store.records.evaluation import FilmSettings
from splatbatch.training.film.frames import draw


def main(settings: Path, frames: Path) -> int:
    """Draw; known causes of failure end in one line, and how fast it went is said in another."""
    try:
        print(draw(FilmSettings.read(settings), frames))  # noqa: T201 - the parent reads it
    except SplatbatchError as error:
        print(f"splatbatch: {error.message}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
