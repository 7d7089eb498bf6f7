"""The form of partition.json, for strangers: what each key means, which values it takes, as JSON Schema too."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

FORMAT = 1
Finite = Annotated[float, Field(allow_inf_nan=False)]
Triple = tuple[Finite, Finite, Finite]
Side = Finite | None
Count = Annotated[int, Field(ge=0)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*$")]
"""Of a folder, and nothing else."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, use_attribute_docstrings=True, strict=True)


class BoxForm(_Part):
    """A half-open box: lower <= x < upper on each of the partition's axes; null is a side that is infinitely far."""

    lower: tuple[Side, Side, Side]
    upper: tuple[Side, Side, Side]

    @model_validator(mode="after")
    def _has_room(self) -> BoxForm:
        for low, high in zip(self.lower, self.upper, strict=True):
            if low is not None and high is not None and not low < high:
                raise ValueError(f"should have room: lower {low} is not below upper {high}")
        return self


class PatchForm(_Part):
    """A patch: where it is responsible, and what it was cut from."""

    name: Name
    """Of its folder, beside this file."""
    core: BoxForm
    """Where it is responsible; the cores of all patches tile space."""
    grown: BoxForm
    """The core with the overlap around it."""
    bounds: BoxForm
    """The core as far as the scene reaches; finite."""
    num_images: Count = 0
    num_points: Count = 0
    """Of its model."""
    num_core_points: Count = 0
    """Of its model, inside the core."""
    cost: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Share of the scene's work, as the cuts balance it."""
    cut_from: str = ""
    """SHA-256 of all that its files hold; a later split that comes to the same leaves the patch as it is."""


class PartitionForm(_Part):
    """How a scene was cut into patches, and what is decided once for all of them."""

    format: Literal[1]
    """Of this file."""
    source: Annotated[str, Field(min_length=1)]
    """Folder of the COLMAP model that was cut, relative to this file."""
    axes: tuple[Triple, Triple, Triple]
    """Unit vectors, one a row: a place of the world times their transpose lies in the axes of the boxes. The last is
    up: the direction in which the cameras vary least."""
    offset: Triple
    """What is taken off all coordinates before training, the same for every patch."""
    overlap: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.0
    """By how much a core is grown, of its own width."""
    grid: tuple[Count, Count] | None = None
    """Rows, and patches in each, where that was asked for: asked for again, the cores stay where they are."""
    patches: Annotated[tuple[PatchForm, ...], Field(min_length=1)]
    test: tuple[str, ...]
    """Photographs that are held out in every patch, by image name."""
    contiguous: tuple[str, ...] = ()
    """Photographs held out in one piece instead, where that was asked for."""
    train: tuple[str, ...] = ()
    """The other photographs, none of `test`: what is known to be no test stays so when photographs are added."""


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of partition.json."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **PartitionForm.model_json_schema()}
