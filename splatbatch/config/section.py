"""The base class of all sections of the YAML, and the types of their values, with ranges."""

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


def _expanded(value: object) -> object:
    """Expand ~ and $VARIABLES in a path; an unset variable is an error, never an empty string."""
    if not isinstance(value, str):
        return value
    expanded = os.path.expandvars(os.path.expanduser(value))  # noqa: PTH111 - "~" may stand in a non-path too
    if "$" in expanded:
        unset = expanded[expanded.index("$") :].split("/")[0]
        raise ValueError(f"the environment variable {unset} is not set: set the variable, or write its value here")
    return expanded


def _above_zero(value: str) -> str:
    if not float(value[:-1]) > 0:
        raise ValueError("should be a multiple above 0, such as 2x")
    return value


def _as_seconds(given: object) -> object:
    """Read a span of time such as 3h30m."""
    seconds = seconds_of(given) if isinstance(given, str) else None
    return given if seconds is None else seconds


def as_list(given: object) -> Any:
    """Return a single text as a list of this one text; any other value unchanged."""
    return [given] if isinstance(given, str) else given


def either(forms: str) -> WrapValidator:
    """Return a validator for a union of types, with the one message "should be FORMS" for a value that fits none.

    pydantic would give a message for each type of the union.
    """

    def check(given: object, further: ValidatorFunctionWrapHandler) -> object:
        try:
            return further(given)
        except ValidationError as error:
            raise ValueError(f"should be {forms}") from error

    return WrapValidator(check)


FilePath = Annotated[Path, BeforeValidator(_expanded)]
MOST_STEPS = 1_000_000_000
Steps = Annotated[int, Field(gt=0, le=MOST_STEPS)]
SPAN = BeforeValidator(_as_seconds, json_schema_input_type=float | str)
"""Validator that reads a text such as "4h", "1h30m" or "90s" as seconds; other values stay for the type's own
checks."""
Seconds = Annotated[float, SPAN, Field(ge=0)]
"""A span of time in seconds, 0 or more."""
SomeSeconds = Annotated[float, SPAN, Field(gt=0)]
"""A span of time in seconds, above 0."""
Rate = Annotated[float, Field(ge=0)]
Multiple = Annotated[str, Field(pattern=r"^\d+(\.\d+)?x$"), AfterValidator(_above_zero)]
"""Type of a multiple such as "2x", above 0, of a number that is known only later."""
Count = Annotated[Steps | Multiple, either("a whole number above 0, or a multiple such as 2x")]
Fraction = Annotated[float, Field(ge=0, le=1)]
Coordinate = Annotated[float, Field(allow_inf_nan=False)]
Offset = tuple[Coordinate, Coordinate, Coordinate]
"""Vector [x, y, z] subtracted from all coordinates of a scene, in the units of the scene."""
NO_OFFSET: Offset = (0.0, 0.0, 0.0)


HIDDEN = "**********"
"""The text shown in place of a value that may be a password."""


class Section(BaseModel):
    """Base class of all sections of the YAML: unknown keys are mistakes, and values do not change after loading."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        defer_build=True,  # as part of the whole config, not once more for each section: half the time at start
    )

    @field_validator("*", mode="before")
    @classmethod
    def _no_word_for_a_number(cls, given: object, about: ValidationInfo) -> object:
        """Refuse true and false for a number: pydantic reads them as 1 and 0, and YAML reads yes and on as true."""
        values = given if isinstance(given, list | tuple) else (given,)
        if about.field_name and any(isinstance(one, bool) for one in values) and _is_number(cls, about.field_name):
            word = str(next(one for one in values if isinstance(one, bool))).lower()
            raise ValueError(f"should be a number, but is {word}, as which YAML also reads yes, no, on or off")
        return given


@cache
def _is_number(section: type[BaseModel], name: str) -> bool:
    """Return whether a setting takes numbers, but neither true and false nor values of any type."""
    todo, found = [section.model_fields[name].annotation], set()
    while todo:
        kind = todo.pop()
        todo += getattr(kind, "__args__", ())
        found.add(kind)
    return bool(found & {int, float}) and not found & {bool, Any, object}
