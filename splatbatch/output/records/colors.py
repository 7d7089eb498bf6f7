"""colors.json: the tones of a batch's photographs, solved before its first training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from splatbatch.output.records.fingerprint import tones_in
from splatbatch.output.records.metrics import TrainingSettings
from splatbatch.output.records.record import TypedRecord, reads
from splatbatch.scene.colors.correction import NEUTRAL, ColorCorrection, ToneOf
from splatbatch.scene.patches import Patch


def tone_to_record(tone: ColorCorrection) -> list[float]:
    """Return the JSON form of a tone: gain R, G, B, then vignetting, tilt and field, where there are any."""
    return [round(one, 6) for one in tone.values()]


def tones_to_record(tones: Mapping[str, ColorCorrection]) -> dict[str, list[float]]:
    """Return the JSON form of tones by image name."""
    return {name: tone_to_record(tone) for name, tone in tones.items()}


def as_photographed(patches: Iterable[Patch]) -> dict[str, Any]:
    """Return what settings say of how patches were photographed, where one folder has all photographs.

    Where they and their masks lie, and the tone of each.
    """
    patches = tuple(patches)
    masks = patches[0].masks
    return {
        "images": str(patches[0].images),
        "masks": str(masks) if masks else None,
        "tones": tones_to_record({name: tone for patch in patches for name, tone in patch.tones.items()}),
    }


def tone_in(settings: TrainingSettings) -> ToneOf:
    """Return what tells the tone of a photograph as settings say it; one that is not named is as it should be."""
    return lambda name: ColorCorrection.of(settings.tones[name]) if name in settings.tones else NEUTRAL


def tones_from_record(value: object) -> dict[str, ColorCorrection]:
    """Return the tones that `tones_to_record` wrote; what is no tone is left out."""
    return {name: ColorCorrection.of(one) for name, one in tones_in(value).items()}


@dataclass(frozen=True)
class Outlier(TypedRecord):
    """A photograph that differs from those that see the same points."""

    name: str = ""
    times: float | None = None
    """So much brighter, in the mean of the channels."""

    def in_words(self) -> str:
        """Return it as "IMG_9427 is 1.58x brighter than its neighbours"."""
        return f"{self.name} is {times_in_words(self.times or 1.0)} than its neighbours"


def times_in_words(times: float) -> str:
    """Return how bright a photograph is beside others as "1.58x brighter"."""
    return f"{times:.2f}x brighter" if times >= 1 else f"{1 / times:.2f}x darker"


@dataclass(frozen=True)
class SceneColors(TypedRecord):
    """What was solved for the photographs of a scene, or why nothing was."""

    tones: dict[str, ColorCorrection] = field(default_factory=dict, metadata=reads(tones_from_record))
    """By image name; photographs that are not named are as they should be, as far as anybody knows."""
    vignetting: dict[str, list[float]] = field(default_factory=dict)
    """By camera, where it is worth anything."""
    residual_before: float | None = None
    """How far the colours of a track are apart, in percent: standard deviation, outliers weighing less."""
    residual_after: float | None = None
    """The same once each photograph is divided by its tone."""
    is_even: bool = False
    """Whether `training.colors: auto` evens the photographs."""
    outliers: tuple[Outlier, ...] = ()
    left_alone: dict[str, str] = field(default_factory=dict)
    """Photographs whose tone is unknown, with the reason."""
    notes: tuple[str, ...] = ()
    problem: str = ""
    """Why nothing was solved; empty if it was."""
    inputs: str = ""
    """Hash of what it was solved from."""
    asked: str = ""
    """How it was asked for; what was asked for otherwise is not gone on from."""
    bytes: dict[str, int] = field(default_factory=dict)
    """Of the photographs of a scene that was cut: those that are another size by now are other photographs."""

    def to_record(self) -> dict[str, Any]:
        """Return it as colors.json holds it."""
        return super().to_record() | {"tones": tones_to_record(self.tones)}

    @property
    def fall(self) -> float:
        """By which share the residual falls; 0 if unknown."""
        before, after = self.residual_before, self.residual_after
        return 1 - after / before if before and after is not None else 0.0


@dataclass(frozen=True)
class Colors(TypedRecord):
    """The tones of a batch: of all its patches together, or of each scene that stands by itself."""

    together: SceneColors = SceneColors()
    scenes: dict[str, SceneColors] = field(default_factory=dict)

    def of(self, patch: str) -> SceneColors:
        """Return what holds for a patch."""
        return self.scenes.get(patch, self.together)
