"""Records of a training process, which reads settings.json, and writes metrics.json and renders/views.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

from splatbatch.fields import mapping, number
from splatbatch.output.records.fingerprint import ORIGIN, FilePlace, tones_in
from splatbatch.output.records.record import ABSENT, KeptRecord, TypedRecord, reads
from splatbatch.text import clock

MOST_PSNR_DB = 100.0
"""Largest PSNR that is accepted when read, in dB; it stands for the infinite PSNR of equal images, which JSON lacks."""
BY_ITSELF = "the program itself"
"""Value of `Metrics.measured_by` for figures that an external trainer measured itself."""


def decibels(value: object) -> object:
    """Return a PSNR in dB; `ABSENT` for a value that is no finite number, or beyond `MOST_PSNR_DB`."""
    known = number(value)
    return ABSENT if known is None or abs(known) > MOST_PSNR_DB else known


class HasPsnr(Protocol):
    """Protocol of a record with the PSNR of a splat."""

    @property
    def psnr(self) -> float | None:
        """PSNR in dB on all pixels that count; None: not measured."""

    @property
    def psnr_covered(self) -> float | None:
        """PSNR in dB on covered pixels alone, which training photographs see too; None: not measured."""


def deciding(one: HasPsnr) -> float | None:
    """Return the PSNR in dB by which splats are ranked and compared; None if none was measured.

    That is the PSNR on covered pixels or, if that one was not measured, on all pixels.
    """
    return one.psnr if one.psnr_covered is None else one.psnr_covered


def spell_figures(one: HasPsnr) -> str:
    """Return both PSNRs in words, the deciding one first: "36.04 dB on covered pixels, 33.53 on all"; "" if none."""
    if one.psnr_covered is None:
        return "" if one.psnr is None else f"{one.psnr:.2f} dB"
    return f"{one.psnr_covered:.2f} dB on covered pixels" + ("" if one.psnr is None else f", {one.psnr:.2f} on all")


@dataclass(frozen=True)
class QualityFigures(TypedRecord):
    """Figures of a splat, averaged over held-out photographs; None in a field: not measured."""

    psnr: float | None = field(default=None, metadata=reads(decibels))
    """PSNR on the original photographs, in dB, on all pixels that count."""
    ssim: float | None = None
    lpips: float | None = None
    training_psnr: float | None = field(default=None, metadata=reads(decibels))
    """PSNR in dB on a few of the photographs that the splat was trained on."""
    psnr_even: float | None = field(default=None, metadata=reads(decibels))
    """PSNR in dB of renderings against colour-corrected photographs.

    None where no photograph of the patch is corrected. `psnr` compares original photographs with renderings to which
    the correction was applied.
    """
    ssim_even: float | None = None
    psnr_covered: float | None = field(default=None, metadata=reads(decibels))
    """PSNR in dB like `psnr`, on the pixels that at least three training photographs see: the figure that decides."""
    ssim_covered: float | None = None
    covered_share: float | None = None
    """Share of covered pixels, from 0 to 1, over all photographs; `psnr_covered` leaves out photographs with almost
    none."""

    def of_all_pixels(self) -> Self:
        """Return the figures without those of covered pixels, which become None."""
        return replace(self, psnr_covered=None, ssim_covered=None, covered_share=None)


@dataclass(frozen=True)
class Resolution(TypedRecord):
    """Resolution of the photographs that were really trained on, which may be lower than requested."""

    used: str = ""
    """Share of the full resolution, as "1/8"; empty: unknown."""
    folder: str = ""
    """Name of the folder of the photographs, as "images_8"; empty: unknown."""
    largest: tuple[float, float] | None = None
    """Width and height of the largest photograph, in pixels; None: unknown."""


@dataclass(frozen=True)
class CoveredSet(TypedRecord):
    """The set of covered pixels on which figures were measured; figures are compared only on the same set."""

    hash: str = ""
    """Hash of the held-out photographs and their covered pixels; empty: covered pixels were not determined."""
    why: str = ""
    """Reason why no pixel is covered; empty: some are, or they were not determined."""


@dataclass(frozen=True)
class EarlierFigures(TypedRecord):
    """Figures of an earlier splat, measured on the same photographs and pixels as those of a new splat."""

    sha256: str = ""
    """SHA-256 of the earlier splat's file; empty: no earlier splat was measured."""
    final: QualityFigures = QualityFigures()


@dataclass(frozen=True)
class EarlyStoppingRecord(TypedRecord):
    """Result of `evaluation.stop_after`: steps planned, and steps made (`ended_at`; None: the run did not end early).

    metrics.json also names the photographs that decided, and lists every check.
    """

    max_steps: int = 0
    ended_at: int | None = None
    saved_s: float | None = None
    """Seconds saved, at the speed of the last steps; 0: no early end, None: unknown."""

    def in_words(self) -> str:
        """Return a sentence on an early end and the time saved by it; "" without an early end."""
        if self.ended_at is None:
            return ""
        saved = f" and saved about {clock(self.saved_s)}" if self.saved_s else ""
        return f"ended early, when it improved no more, after {self.ended_at:,} of {self.max_steps:,} steps{saved}"


@dataclass(frozen=True)
class Metrics(KeptRecord):
    """metrics.json, which result.json repeats: figures of a splat; those by photograph are in `written`."""

    initial: QualityFigures = QualityFigures()
    """Figures before the first step; blank: not measured."""
    final: QualityFigures = QualityFigures()
    """Figures at the end of the training; blank: not measured."""
    peak: dict[str, float] = field(default_factory=dict)
    """Most memory in use, in MiB, by the kind of memory; training_mib and evaluation_mib are torch's on the GPU."""
    measured_by: str = ""
    """Program that measured an external trainer's splat: "the program itself" or "splatbatch"; empty: the builtin
    trainer, or nothing was measured."""
    splat: str = ""
    """Splat file of an external trainer, relative to the attempt's folder; version 0.2.0 wrote an absolute path.
    Empty: splatbatch did not measure such a file."""
    resolution: Resolution | None = None
    """Resolution of the photographs trained on; None: not recorded."""
    covered: CoveredSet = CoveredSet()
    earlier: EarlierFigures = EarlierFigures()
    """Figures of the splat accepted before, if that splat was measured on other pixels until then; else blank."""
    early_stopping: EarlyStoppingRecord | None = None
    """Result of `evaluation.stop_after`; None: the run was to make all its steps."""
    made_with: dict[str, str] = field(default_factory=dict)
    """Versions of programs, and under "on" the name of the GPU, or CPU; empty if not recorded."""

    def photos(self) -> dict[str, QualityFigures]:
        """Return the final figures of each held-out photograph, by name; empty if there are none."""
        images = mapping(mapping(self.written.get("final")).get("images"))
        return {name: QualityFigures.from_record(one) for name, one in images.items()}

    @property
    def torch_peak_mib(self) -> float | None:
        """Most memory that torch had allocated on the GPU, in MiB; None if unknown."""
        return max((mib for name, mib in self.peak.items() if name in ("training_mib", "evaluation_mib")), default=None)


RANKS = ("worst", "median", "best")


@dataclass(frozen=True)
class EvaluatedView(QualityFigures):
    """A rendered held-out photograph, as renders/views.json lists it by rank: its name, size in pixels and figures.

    None in a field: unknown or not measured.
    """

    name: str = ""
    width: float | None = None
    height: float | None = None


@dataclass(frozen=True)
class MeasurementRecord(KeptRecord):
    """metrics.json of an attempt that inspects or evaluates a splat; its other fields are in `written`."""

    inputs: str = ""
    """Hash of the inputs of the measurement; with the same hash the measurement is not repeated."""


@dataclass(frozen=True)
class EarlierSplat(TypedRecord):
    """The splat that is accepted while a new one is trained, and the pixels on which that splat was measured."""

    path: str = ""
    """Path of the splat file; empty: there is no accepted splat."""
    sha256: str = ""
    covered: str = ""
    """Hash of the covered pixels of that measurement; empty: they were not determined."""
    largest: tuple[float, float] | None = None
    """Width and height of the largest photograph of that measurement, in pixels; None: unknown."""

    def is_of(self, covered: str, largest: Sequence[float] | None) -> bool:
        """Return whether the splat's figures are of these covered pixels at this size; else it must be measured again.

        Args:
            covered: hash of the covered pixels.
            largest: width and height of the largest photograph in pixels; None: unknown.
        """
        return self.covered == covered and (self.largest and [*self.largest]) == (largest and [*largest])


@dataclass(frozen=True)
class TrainingSettings(TypedRecord):
    """settings.json: settings and paths for a training process.

    An external trainer gets its settings by its command line instead; here only `patch`, `recipe`, `argv` and `holdout`
    are then recorded.
    """

    patch: str = ""
    """Name of the task, as "p0@base"."""
    recipe: dict[str, Any] = field(default_factory=dict)
    """All settings of the task, by section of the YAML."""
    argv: tuple[str, ...] = ()
    """Command of an external trainer; empty: the builtin trainer."""
    sparse: str = ""
    """Folder of the model, as an absolute path."""
    source: str = ""
    """Folder of the model that the patch was cut from; empty: the config names none."""
    offset: FilePlace = ORIGIN
    """Offset x, y, z to subtract from the coordinates of the model when the model is read, in its units."""
    images: str = ""
    """Folder of the photographs, as an absolute path."""
    masks: str | None = None
    """Folder of the masks; None: there are none."""
    holdout: tuple[str, ...] = ()
    """Names of the held-out photographs; empty: none."""
    resume: str | None = None
    """Checkpoint of an earlier attempt with the same settings; None: the training starts anew."""
    tones: dict[str, list[float]] = field(default_factory=dict, metadata=reads(tones_in))
    """Colour correction of each photograph, by image name; empty: no correction.

    Each is a list: gain in R, G and B, then coefficients of vignetting, tilt and field.
    """
    border: dict[str, Any] = field(default_factory=dict)
    """Boxes of space of a patch that was cut from a scene; empty: the patch was not cut."""
    backdrop: str = ""
    """Path of the backdrop to draw behind the patch; empty: there is none."""
    backdrop_sha256: str = ""
    earlier: EarlierSplat = EarlierSplat()
    """Splat accepted before, which is measured again if its figures are of other pixels; blank: there is none."""
    is_backdrop: bool = False
    """Whether this trains the backdrop: the whole scene with few Gaussians."""

    def as_given(self) -> dict[str, Any]:
        """Return every setting by its full name, as "training.cap_max".

        Settings of an external trainer also as setting.NAME.
        """
        sections = {**self.recipe, "setting": mapping(self.recipe.get("program")).get("settings")}
        return {f"{name}.{key}": value for name, section in sections.items() for key, value in mapping(section).items()}

    @property
    def photographs(self) -> dict[str, Any]:
        """Settings about photographs, to pass to another process that reads the same photographs.

        The keys are the names of the fields: images, masks, holdout, tones.
        """
        return {"images": self.images, "masks": self.masks, "holdout": self.holdout, "tones": self.tones}
