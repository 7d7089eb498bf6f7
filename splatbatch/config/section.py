"""What every section of the YAML is made of: the base model, and types with their ranges."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
)

from splatbatch.text import seconds_of


def _expanded(value: Any) -> Any:
    """Expand ~ and $VARIABLES in a path; an unset variable is an error, never an empty string."""
    if not isinstance(value, str):
        return value
    expanded = os.path.expandvars(os.path.expanduser(value))  # noqa: PTH111 - "~" may stand in a non-path too
    if "$" in expanded:
        unset = expanded[expanded.index("$") :].split("/")[0]
        raise ValueError(f"the environment variable {unset} is not set")
    return expanded


def _above_zero(value: str) -> str:
    if not float(value[:-1]) > 0:
        raise ValueError("should be above 0x")
    return value


def _as_seconds(given: Any) -> Any:
    """Read a span of time such as 3h30m."""
    seconds = seconds_of(given) if isinstance(given, str) else None
    return given if seconds is None else seconds


def as_list(given: Any) -> Any:
    """Take a single text for a list of one."""
    return [given] if isinstance(given, str) else given


def either(forms: str) -> WrapValidator:
    """Return what says in one sentence which forms a value may have, where pydantic would list each one's mistakes."""

    def check(given: Any, further: ValidatorFunctionWrapHandler) -> Any:
        try:
            return further(given)
        except ValidationError as error:
            raise ValueError(f"should be {forms}") from error

    return WrapValidator(check)


FilePath = Annotated[Path, BeforeValidator(_expanded)]
MOST_STEPS = 1_000_000_000
Steps = Annotated[int, Field(gt=0, le=MOST_STEPS)]
SPAN = BeforeValidator(_as_seconds, json_schema_input_type=float | str)
"""Takes "4h", "1h30m" and "90s" for seconds."""
Seconds = Annotated[float, SPAN, Field(ge=0)]
"""A span of time."""
SomeSeconds = Annotated[float, SPAN, Field(gt=0)]
"""One that is not empty."""
Rate = Annotated[float, Field(ge=0)]
Multiple = Annotated[str, Field(pattern=r"^\d+(\.\d+)?x$"), AfterValidator(_above_zero)]
"""Such as "2x": that many times a number which is known later."""
Count = Annotated[Steps | Multiple, either("a whole number above 0, or a multiple such as 2x")]
Fraction = Annotated[float, Field(ge=0, le=1)]
Coordinate = Annotated[float, Field(allow_inf_nan=False)]
Offset = tuple[Coordinate, Coordinate, Coordinate]
"""What is taken off every place of a scene, x, y, z in its own units."""
NO_OFFSET: Offset = (0.0, 0.0, 0.0)


HIDDEN = "**********"
"""Stands for what may be a password wherever a config is shown."""


class Section(BaseModel):
    """A section of the YAML: unknown keys are mistakes, values do not change after loading."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        defer_build=True,  # as part of the whole config, not once more for each section: half the time at start
    )

    @field_validator("*", mode="before")
    @classmethod
    def _no_word_for_a_number(cls, given: Any, about: ValidationInfo) -> Any:
        """Take true for no number, which Python and pydantic do: to YAML yes, on and y are true."""
        values = given if isinstance(given, list | tuple) else (given,)
        if about.field_name and any(isinstance(one, bool) for one in values) and _is_number(cls, about.field_name):
            word = str(next(one for one in values if isinstance(one, bool))).lower()
            raise ValueError(f"should be a number; {word} is none, nor what YAML reads so: yes, no, on, off")
        return given


@cache
def _is_number(section: type[BaseModel], name: str) -> bool:
    """Return whether a setting takes numbers, and neither true and false nor just anything."""
    todo, found = [section.model_fields[name].annotation], set()
    while todo:
        kind = todo.pop()
        todo += getattr(kind, "__args__", ())
        found.add(kind)
    return bool(found & {int, float}) and not found & {bool, Any, object}
