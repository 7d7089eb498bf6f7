"""`python -m splatbatch.training.film SETTINGS FRAMES`: draw a flight that a JSON file describes, as raw RGB."""

import sys
from pathlib import Path

from splatbatch.store.records.evaluation import FilmSettings
from splatbatch.training.ending import exit_code_of
from splatbatch.training.film.frames import draw


def film(settings: Path, frames: Path) -> None:
    """Draw, and say in one line how fast it went."""
    print(draw(FilmSettings.read(settings) or FilmSettings(), frames))  # noqa: T201 - the parent reads it


if __name__ == "__main__":
    sys.exit(exit_code_of(lambda: film(Path(sys.argv[1]), Path(sys.argv[2]))))
