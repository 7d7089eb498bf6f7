"""colors.json: the colour correction of a batch, solved before training.

The correction of one photograph is its tone: three gains and, where needed, vignetting and shading.
"""

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
    """Return the JSON form of the correction of one photograph: gain R, G, B, then vignetting and shading if any."""
    return [round(one, 6) for one in tone.values()]


def tones_to_record(tones: Mapping[str, ColorCorrection]) -> dict[str, list[float]]:
    """Return the JSON form of the corrections of photographs (tones), by image name."""
    return {name: tone_to_record(tone) for name, tone in tones.items()}


def as_photographed(patches: Iterable[Patch]) -> dict[str, Any]:
    """Return the settings about photographs for patches of one scene: folders of images and masks, and all tones.

    The keys are those of `TrainingSettings`; masks is None without masks. The folders are those of the first patch.
    """
    patches = tuple(patches)
    masks = patches[0].masks
    return {
        "images": str(patches[0].images),
        "masks": str(masks) if masks else None,
        "tones": tones_to_record({name: tone for patch in patches for name, tone in patch.tones.items()}),
    }


def tone_in(settings: TrainingSettings) -> ToneOf:
    """Return a function that gives the colour correction of a photograph by its name.

    The function returns a neutral correction for a photograph of which the settings have none.
    """
    return lambda name: ColorCorrection.of(settings.tones[name]) if name in settings.tones else NEUTRAL


def tones_from_record(value: object) -> dict[str, ColorCorrection]:
    """Return the corrections that `tones_to_record` wrote, by image name; an invalid entry is left out."""
    return {name: ColorCorrection.of(one) for name, one in tones_in(value).items()}


@dataclass(frozen=True)
class Outlier(TypedRecord):
    """A photograph whose brightness differs much from that of photographs of the same points."""

    name: str = ""
    times: float | None = None
    """Factor by which the photograph is brighter, averaged over the channels; below 1 it is darker, None: unknown."""

    def in_words(self) -> str:
        """Return a sentence: "IMG_9427 is 1.58x brighter than its neighbours"; an unknown factor is given as 1.00."""
        return f"{self.name} is {times_in_words(self.times or 1.0)} than its neighbours"


def times_in_words(times: float) -> str:
    """Return a factor of brightness in words: "1.58x brighter" or, below 1, "1.58x darker"."""
    return f"{times:.2f}x brighter" if times >= 1 else f"{1 / times:.2f}x darker"


@dataclass(frozen=True)
class SceneColors(TypedRecord):
    """Colour correction solved for the photographs of one scene, or the reason why none was solved."""

    tones: dict[str, ColorCorrection] = field(default_factory=dict, metadata=reads(tones_from_record))
    """Correction of each corrected photograph, by image name; all other photographs are not corrected."""
    vignetting: dict[str, list[float]] = field(default_factory=dict)
    """Vignetting by camera, where it is not negligible: coefficients of the darkening towards the corners."""
    residual_before: float | None = None
    """Spread of the colours of a track, in percent, before the correction; None: no photograph is corrected.

    The spread is a standard deviation, with less weight for outliers.
    """
    residual_after: float | None = None
    """The same spread after each photograph is divided by its correction; None: no photograph is corrected."""
    is_even: bool = False
    """Whether the correction helps enough that `training.colors: auto` applies it to the photographs."""
    outliers: tuple[Outlier, ...] = ()
    left_alone: dict[str, str] = field(default_factory=dict)
    """Reason why a photograph has no correction, by the photograph's name."""
    notes: tuple[str, ...] = ()
    problem: str = ""
    """Reason why nothing was solved; empty: a correction was solved."""
    inputs: str = ""
    """Hash of the inputs of the solution: with the same hash nothing is solved anew."""
    asked: str = ""
    """Mode of the solution: "all" for the photographs of a cut scene, else empty."""
    bytes: dict[str, int] = field(default_factory=dict)
    """Size of each photograph of a cut scene, in bytes; a photograph of another size now counts as another
    photograph."""

    def to_record(self) -> dict[str, Any]:
        """Return the colours as the JSON object that colors.json holds."""
        return super().to_record() | {"tones": tones_to_record(self.tones)}

    @property
    def fall(self) -> float:
        """Share, up to 1, by which the correction reduces the spread of colours; negative: it grows.

        0.0 if unknown, or if there was no spread.
        """
        before, after = self.residual_before, self.residual_after
        return 1 - after / before if before and after is not None else 0.0


@dataclass(frozen=True)
class Colors(TypedRecord):
    """Content of colors.json: the colours of all patches together, and of patches that are scenes of their own."""

    together: SceneColors = SceneColors()
    scenes: dict[str, SceneColors] = field(default_factory=dict)

    def of(self, patch: str) -> SceneColors:
        """Return the colours of a patch: its own if the patch is a scene of its own, else the common ones."""
        return self.scenes.get(patch, self.together)
