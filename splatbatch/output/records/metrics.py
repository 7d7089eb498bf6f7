"""What a training wrote beside its splat: metrics.json, renders/views.json; and settings.json, which it was given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

from splatbatch.fields import mapping, number
from splatbatch.output.records.fingerprint import ORIGIN, FilePlace, tones_in
from splatbatch.output.records.record import ABSENT, KeptRecord, TypedRecord, reads
from splatbatch.text import clock

MOST_PSNR_DB = 100.0
"""Equal images have an infinite PSNR, which JSON cannot hold: this stands for it, and more is not believed."""
BY_ITSELF = "the program itself"
"""Who has measured, where an external trainer did."""


def decibels(value: object) -> object:
    """Return a PSNR; nothing for one that is not finite, or beyond what any two images have."""
    known = number(value)
    return ABSENT if known is None or abs(known) > MOST_PSNR_DB else known


class HasPsnr(Protocol):
    """Whatever has the PSNR of a splat."""

    @property
    def psnr(self) -> float | None:
        """On all pixels that count, in dB."""

    @property
    def psnr_covered(self) -> float | None:
        """On those alone that training photographs see."""


def deciding(one: HasPsnr) -> float | None:
    """Return the PSNR by which splats are ranked and compared: the covered one, else that of all pixels."""
    return one.psnr if one.psnr_covered is None else one.psnr_covered


def spell_figures(one: HasPsnr) -> str:
    """Return both, the one that decides first: "36.04 dB on covered pixels, 33.53 on all"; empty without any."""
    if one.psnr_covered is None:
        return "" if one.psnr is None else f"{one.psnr:.2f} dB"
    return f"{one.psnr_covered:.2f} dB on covered pixels" + ("" if one.psnr is None else f", {one.psnr:.2f} on all")


@dataclass(frozen=True)
class QualityFigures(TypedRecord):
    """How good a splat is, in the mean over held-out photographs."""

    psnr: float | None = field(default=None, metadata=reads(decibels))
    """In dB, on the photographs as they are."""
    ssim: float | None = None
    lpips: float | None = None
    training_psnr: float | None = field(default=None, metadata=reads(decibels))
    """On a few of the photographs that it was trained on."""
    psnr_even: float | None = field(default=None, metadata=reads(decibels))
    """Evened photographs against renderings as they are; `psnr`: photographs as they are against renderings brought to
    their tone. None where no photograph of the patch has a tone."""
    ssim_even: float | None = None
    psnr_covered: float | None = field(default=None, metadata=reads(decibels))
    """As `psnr`, on the pixels alone that at least three training photographs see: the figure that decides."""
    ssim_covered: float | None = None
    covered_share: float | None = None
    """Of the pixels; of photographs of which next to nothing is covered too, which `psnr_covered` leaves out."""

    def of_all_pixels(self) -> Self:
        """Return it without what is of covered pixels alone."""
        return replace(self, psnr_covered=None, ssim_covered=None, covered_share=None)


@dataclass(frozen=True)
class Resolution(TypedRecord):
    """The photographs that were trained on, not those that were asked for."""

    used: str = ""
    """As "1/8"."""
    folder: str = ""
    """As "images_8"."""
    largest: tuple[float, float] | None = None
    """Width and height of the largest, in pixels."""


@dataclass(frozen=True)
class CoveredSet(TypedRecord):
    """Which pixels figures are of."""

    hash: str = ""
    """Of the held-out photographs and their covered pixels; empty: not measured."""
    why: str = ""
    """Nothing is covered."""


@dataclass(frozen=True)
class EarlierFigures(TypedRecord):
    """How good an earlier splat is on what a new one was measured on."""

    sha256: str = ""
    """Of its file."""
    final: QualityFigures = QualityFigures()


@dataclass(frozen=True)
class HalfOfHoldout(TypedRecord):
    """Every other held-out photograph."""

    gain_db: float | None = None
    """From the first check of the run to the last."""


@dataclass(frozen=True)
class EarlyStoppingRecord(TypedRecord):
    """Result of `evaluation.stop_after`; metrics.json also says how the plateau was found, and holds every check."""

    max_steps: int = 0
    ended_at: int | None = None
    saved_s: float | None = None
    """At the pace of the tail."""
    chosen_by: HalfOfHoldout | None = None
    checked_by: HalfOfHoldout | None = None
    """It had no part in the choice: what the other half gains beyond it, that half was flattered by."""

    def in_words(self) -> str:
        """Return what an early end has saved; empty where there was none."""
        if self.ended_at is None:
            return ""
        saved = f" and saved about {clock(self.saved_s)}" if self.saved_s else ""
        return f"ended early, at its plateau, after {self.ended_at:,} of {self.max_steps:,} steps{saved}"

    def flattered_by(self) -> str:
        """Return what choosing the end by held-out photographs has done to their figures; empty if unknown."""
        chosen, other = self.chosen_by, self.checked_by
        if self.ended_at is None or not chosen or not other or chosen.gain_db is None or other.gain_db is None:
            return ""
        gains = f"{chosen.gain_db:+.2f} dB in the half that chose the end, {other.gain_db:+.2f} dB in the other"
        return f"held-out photographs since the first check: {gains}"


@dataclass(frozen=True)
class Metrics(KeptRecord):
    """metrics.json, and what result.json repeats of it; also photograph by photograph, and notes, as written."""

    initial: QualityFigures = QualityFigures()
    """Before the first step."""
    final: QualityFigures = QualityFigures()
    peak: dict[str, float] = field(default_factory=dict)
    """The most memory in use, in MiB: torch's on the GPU in training_mib and evaluation_mib."""
    measured_by: str = ""
    """Who has measured: "the program itself", or "splatbatch" where an external trainer's splat was; empty: ours."""
    splat: str = ""
    """The file that an external trainer has written, as seen from its attempt's folder; a whole path by 0.2.0."""
    resolution: Resolution | None = None
    covered: CoveredSet = CoveredSet()
    earlier: EarlierFigures = EarlierFigures()
    """The splat that was accepted before, where its own figures are of other pixels; else blank."""
    early_stopping: EarlyStoppingRecord | None = None
    """None: the run was to make all its steps."""
    made_with: dict[str, str] = field(default_factory=dict)
    """Versions, and under "on" the name of the GPU, or CPU; empty if not recorded."""

    def photos(self) -> dict[str, QualityFigures]:
        """Return the figures of each held-out photograph at the end, by its name."""
        images = mapping(mapping(self.written.get("final")).get("images"))
        return {name: QualityFigures.from_record(one) for name, one in images.items()}

    @property
    def torch_peak_mib(self) -> float | None:
        """Return the most memory that torch had allocated on the GPU; None if unknown."""
        return max((mib for name, mib in self.peak.items() if name in ("training_mib", "evaluation_mib")), default=None)


RANKS = ("worst", "median", "best")


@dataclass(frozen=True)
class EvaluatedView(QualityFigures):
    """A held-out view that is pictured, of those in renders/views.json: by rank, the worst first."""

    name: str = ""
    width: float | None = None
    height: float | None = None


@dataclass(frozen=True)
class MeasurementRecord(KeptRecord):
    """What a process of ours that measures a splat has found, whatever else it says: metrics.json of its attempt."""

    inputs: str = ""
    """Hash of what it was found from."""


@dataclass(frozen=True)
class EarlierSplat(TypedRecord):
    """The splat that is accepted while another one is trained, and what its figures are of."""

    path: str = ""
    sha256: str = ""
    covered: str = ""
    """Hash of the covered pixels; empty: not determined."""
    largest: tuple[float, float] | None = None
    """Width and height of its largest photograph."""

    def is_of(self, covered: str, largest: Sequence[float] | None) -> bool:
        """Return whether its figures are of these covered pixels, at this size of photographs."""
        return self.covered == covered and (self.largest and [*self.largest]) == (largest and [*largest])


@dataclass(frozen=True)
class TrainingSettings(TypedRecord):
    """settings.json: what a training process is to do; an external trainer is told by its argv instead."""

    patch: str = ""
    recipe: dict[str, Any] = field(default_factory=dict)
    argv: tuple[str, ...] = ()
    sparse: str = ""
    """Folder of the model."""
    source: str = ""
    """Folder of the model that it was cut from, as far as the config names it."""
    offset: FilePlace = ORIGIN
    """Taken off its coordinates as it is read."""
    images: str = ""
    masks: str | None = None
    holdout: tuple[str, ...] = ()
    resume: str | None = None
    """Checkpoint of an earlier attempt with the same settings."""
    tones: dict[str, list[float]] = field(default_factory=dict, metadata=reads(tones_in))
    """By image name: the gain in R, G and B, then vignetting, tilt and field; empty: as they are."""
    border: dict[str, Any] = field(default_factory=dict)
    """The boxes of a patch with a core; empty: it has none."""
    backdrop: str = ""
    """The splat that is drawn behind it; empty: none."""
    backdrop_sha256: str = ""
    earlier: EarlierSplat = EarlierSplat()
    """Is measured, too, where its figures are of other pixels than those of the new one; blank: there is none."""
    is_backdrop: bool = False
    """The whole scene is trained, coarsely, to be drawn behind its patches."""

    def as_given(self) -> dict[str, Any]:
        """Return every setting by its full name, as "training.cap_max"; of a program also setting.NAME."""
        sections = {**self.recipe, "setting": mapping(self.recipe.get("program")).get("settings")}
        return {f"{name}.{key}": value for name, section in sections.items() for key, value in mapping(section).items()}

    @property
    def photographs(self) -> dict[str, Any]:
        """Return the settings that are about photographs, as another process is told of the same ones."""
        return {"images": self.images, "masks": self.masks, "holdout": self.holdout, "tones": self.tones}
