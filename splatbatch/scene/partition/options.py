"""What was asked of a split: how large patches may be, or where they should lie; what cannot be is refused in words."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from splatbatch.errors import ConfigError
from splatbatch.files import MOST_JSON_BYTES, read_regular
from splatbatch.scene.partition.boxes import EVERYWHERE, Box, first_meeting, tile
from splatbatch.scene.partition.record import Axes, BoxForm, Name, Triple, box_of, first_mistake, not_a_frame

MAX_IMAGES = 400
WIDEST_OVERLAP = 0.5
LARGEST_BLOCK = 0.3
WORLD: Axes = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
BOXES_LOOK_SO = 'As {"boxes": [{"name": "p0", "lower": [null, null, null], "upper": [3.5, null, null]}, …]}.'


@dataclass(frozen=True)
class Boxes:
    """Boxes that somebody has drawn."""

    axes: Axes
    cores: dict[str, Box]
    """By the name of the patch; they tile space."""


@dataclass(frozen=True)
class Wish:
    """What was asked of a split."""

    max_images: int | None = None
    """Photographs of a patch; None: `MAX_IMAGES` where nothing else says how many patches there are."""
    overlap: float = 0.15
    """How far patches reach over their core, as a share of its width."""
    grid: tuple[int, int] | None = None
    """Along the cameras' longest way, and across."""
    boxes: Boxes | None = None
    up: tuple[float, float, float] | None = None
    """Direction that is not cut; None: where the cameras vary least."""
    block: float = 0.0
    """Share of the photographs that lie together and may be held out in one piece; 0: none."""
    seed: int = 0
    """Decides where the held-out piece lies."""


def parse_grid(text: str) -> tuple[int, int] | None:
    """Return "3x4" as numbers; None for an empty text.

    Raises:
        ConfigError: it is something else.
    """
    if not text:
        return None
    found = re.fullmatch(r"\s*(\d{1,4})\s*[xX×*]\s*(\d{1,4})\s*", text)
    if not found or not (int(found[1]) and int(found[2])):
        raise ConfigError(f"--grid {text}: should be two numbers above 0, as 3x4")
    return int(found[1]), int(found[2])


def parse_axis(text: str) -> tuple[float, float, float] | None:
    """Return "0,0,1" as a direction; None for an empty text.

    Raises:
        ConfigError: it is something else.
    """
    if not text:
        return None
    try:
        x, y, z = (float(part) for part in text.split(","))
    except ValueError as error:
        raise ConfigError(f"--axis {text}: should be three numbers, as 0,0,1") from error
    return x, y, z


def check_overlap(overlap: float) -> None:
    """See that an overlap can be.

    Raises:
        ConfigError: it cannot; the nearest that can is named.
    """
    if not 0 <= overlap <= WIDEST_OVERLAP:
        nearest = WIDEST_OVERLAP if overlap > 0 else 0
        raise ConfigError(f"--overlap {overlap}: should be 0 to {WIDEST_OVERLAP} of a core's width; nearest: {nearest}")


def check_block(share: float) -> None:
    """See that a share of the photographs can be held out in one piece.

    Raises:
        ConfigError: it cannot; the nearest that can is named.
    """
    if not 0 <= share <= LARGEST_BLOCK:
        nearest = LARGEST_BLOCK if share > 0 else 0
        raise ConfigError(f"--holdout-block {share}: should be 0 to {LARGEST_BLOCK}; nearest: {nearest}")


class _DrawnBox(BoxForm):
    model_config = ConfigDict(extra="forbid", strict=True)
    name: Name


class _Drawing(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    axes: tuple[Triple, Triple, Triple] = WORLD
    boxes: Annotated[tuple[_DrawnBox, ...], Field(min_length=1)]


def read_boxes(path: Path) -> Boxes:
    """Return the boxes of a file: of a partition.json, or drawn by hand; outer sides become infinite.

    Raises:
        ConfigError: it cannot be read, or its boxes do not share space between them.
    """
    try:
        given = json.loads(read_regular(path, MOST_JSON_BYTES))
        if isinstance(given, dict) and "format" in given:  # of a partition: its cores
            cores = [{"name": one["name"], **one["core"]} for one in given["patches"]]
            given = {"axes": given["axes"], "boxes": cores}
        form = _Drawing.model_validate_json(json.dumps(given))
    except OSError as error:
        raise ConfigError(f"--boxes {path}: cannot be read ({error.strerror})") from error
    except ValidationError as error:
        raise ConfigError(f"--boxes {path}: {first_mistake(error)}", BOXES_LOOK_SO) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(f"--boxes {path}: no JSON that holds boxes ({error!r})", BOXES_LOOK_SO) from error
    return _checked(path, form)


def _checked(path: Path, form: Any) -> Boxes:
    names = [one.name for one in form.boxes]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"--boxes {path}: {twice[0]}: two boxes have this name")
    if not_a_frame(form.axes):
        raise ConfigError(f"--boxes {path}: axes: {not_a_frame(form.axes)}")
    boxes = _opened([box_of(one) for one in form.boxes])
    if pair := first_meeting(boxes):
        raise ConfigError(f"--boxes {path}: {names[pair[0]]} and {names[pair[1]]} overlap: cores share no place")
    if not tile(boxes):
        hint = "Let neighbours have the same sides; null is infinitely far."
        raise ConfigError(f"--boxes {path}: the boxes leave space between them, which would be no patch's", hint)
    return Boxes(form.axes, dict(zip(names, boxes, strict=True)))


def _opened(boxes: list[Box]) -> list[Box]:
    """Return boxes whose outer sides are infinite: whoever draws a rectangle means all of the scene."""
    lows = [min(box.lower[axis] for box in boxes) for axis in range(3)]
    highs = [max(box.upper[axis] for box in boxes) for axis in range(3)]

    def side(value: float, outer: float, far: float) -> float:
        return far if value == outer else value

    return [
        Box(
            tuple(side(box.lower[axis], lows[axis], EVERYWHERE.lower[axis]) for axis in range(3)),  # type: ignore[arg-type]
            tuple(side(box.upper[axis], highs[axis], EVERYWHERE.upper[axis]) for axis in range(3)),  # type: ignore[arg-type]
        )
        for box in boxes
    ]
