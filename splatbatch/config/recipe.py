"""The sections of the YAML that decide the result of a training, and the recipe of one task made of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, FieldSerializationInfo, field_serializer, model_validator

from splatbatch.config.section import Count, FilePath, Fraction, Rate, Section, Steps, either
from splatbatch.config.trainers.programs import OUR_TRAINER, Program

AUTO_SCALE = 1.0
AUTO_OPACITY = {"default": 0.1, "mcmc": 0.5}
"""Values of `init_scale: auto`, and by strategy of `init_opacity: auto`.

They are gsplat's presets, except for mcmc's scale of 0.1, which starts worse here.
"""

FEWEST_GAUSSIANS, MOST_GAUSSIANS = 400_000, 1_000_000
"""Range of `cap_max: auto`."""
PIXELS_PER_GAUSSIAN = 8
"""Pixels of surface that get one Gaussian by `cap_max: auto` (docs/benchmarks.md, "As many Gaussians as it takes")."""

STOPS_AFTER, STOPS_ABOVE_STEPS = 2, 10_000
"""Number of checks that `evaluation.stop_after: auto` means, and the steps above which it applies."""
EARLY_SHARE = 0.65
"""Mean share of its steps that a training makes where it may end early (docs/benchmarks.md, 0.4 to 1)."""
LEAST_GAIN_DB = 0.05
"""Default of `least_gain_db`: for 13 % more steps, which is 0.02 dB for 5 % more (docs/benchmarks.md)."""

WITHOUT_EFFECT = (
    "training.checkpoint_every",
    "training.images",
    "training.workers",
    "evaluation.tensorboard",
    "evaluation.inspect",
)
"""Settings that do not change the splat, but only memory use or further files; a change makes no splat stale."""


class Training(Section):
    """How one patch is trained."""

    trainer: str = OUR_TRAINER
    """The program that trains: `gsplat` is ours, any other name stands under `trainers`."""
    max_steps: Steps = 30_000
    """Training steps; schedules are given for 30,000 and scale with this."""
    strategy: Literal["default", "mcmc"] = "mcmc"
    """Densification: `default` (3DGS, Kerbl 2023) or `mcmc` (3DGS-MCMC, Kheradmand 2024)."""
    cap_max: Annotated[Literal["auto"] | Count, either("a whole number above 0, a multiple such as 2x, or auto")] = (
        "auto"
    )
    """At most this many Gaussians; "2x": twice as many as the patch has sparse points; auto: 400,000 to a million, by
    pixels and overlap of the photographs. More are thinned by voxel."""
    sh_degree: Annotated[int, Field(ge=0, le=3)] = 3
    """Highest degree of the spherical harmonics; the degree rises by one at a time."""
    init_scale: Annotated[Literal["auto"] | Annotated[float, Field(gt=0)], either("a number above 0, or auto")] = "auto"
    """First scale of a Gaussian, times the distance to its three nearest neighbours; auto: 1.0."""
    init_opacity: Annotated[
        Literal["auto"] | Annotated[float, Field(gt=0, lt=1)], either("a number between 0 and 1, or auto")
    ] = "auto"
    """First opacity of a Gaussian; auto: 0.1, mcmc 0.5 (gsplat)."""
    ssim_lambda: Fraction = 0.2
    """Weight of 1 - SSIM in the loss; the rest is L1."""
    resolution: Literal["auto", "full", "1/2", "1/4", "1/8"] = "full"
    """Size of the photographs trained on: from images_2, images_4 or images_8 beside their folder if all are there,
    else averaged while loading; auto: the largest whose longer side has at most 1600 px."""
    colors: Literal["auto", "even", "as_is"] = "auto"
    """Photographs of unlike exposure and white balance: `even`: evened by what their tracks tell; `as_is`: not; auto:
    evened where the colours of a track then agree better by a fifth or more. An external trainer is given evened copies
    (JPEG 97, or PNG) for `even` alone."""
    coarse_to_fine: Literal["auto"] | bool = "auto"
    """Begin with small photographs and few Gaussians, and let both grow over the run: faster (DashGaussian, 2025);
    auto: with `default`, which it makes better, not with `mcmc`, which it makes worse."""
    border: Literal["auto", "core", "backdrop", "none"] = "auto"
    """Of patches that `split` has cut: `auto`: Gaussians keep to the core and the backdrop lies behind them; `core` and
    `backdrop`: that alone; `none`: neither. For comparisons."""
    images: Literal["auto", "gpu", "host"] = "auto"
    """Where decoded photographs lie: on the GPU, or in host memory and uploaded for each step; auto: where they fit."""
    workers: Literal["auto"] | Annotated[int, Field(ge=0, le=64)] = "auto"
    """Threads that decode photographs; 0: none but the main one; auto: one per core, at most 16."""
    device: Literal["auto", "cuda", "cpu"] = "auto"
    """`auto`: a GPU where one is, else the CPU if the batch takes an hour at most; `cpu`: however long it takes."""
    checkpoint_every: Annotated[int, Field(ge=0)] = 0
    """Steps between checkpoints, from which an attempt that died is taken up again; 0: none."""
    antialiased: bool = False
    """Keep what Gaussians smaller than a pixel weigh (Mip-Splatting, Yu 2024): for renderings from farther away."""
    kernels: Annotated[Literal["auto", "gsplat"], BeforeValidator(lambda one: "gsplat" if one == "plain" else one)] = (
        "auto"
    )
    """`gsplat`: only torch's and gsplat's own kernels, no CUDA graphs; slower, and needs gsplat's extension built."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 42
    """Seed of everything random in a training."""

    @property
    def keeps_to_core(self) -> bool:
        """Whether the Gaussians of a patch with a core stay inside the core."""
        return self.border in ("auto", "core")

    @property
    def draws_behind(self) -> bool:
        """Whether the backdrop is drawn behind a patch with a core."""
        return self.border in ("auto", "backdrop")

    def cap(self, num_points: int | None = None, surface_px: float = math.inf) -> int:
        """Return `cap_max` as a number.

        Args:
            num_points: number of sparse points of the patch; None: not counted yet.
            surface_px: pixels of its photographs, each place of the surface counted once; by default `auto` is the most
                that it may choose.

        Raises:
            ValueError: `cap_max` is a multiple and `num_points` is None.
        """
        if isinstance(self.cap_max, int):
            return self.cap_max
        if self.cap_max == "auto":
            return round(min(max(surface_px / PIXELS_PER_GAUSSIAN, FEWEST_GAUSSIANS), MOST_GAUSSIANS))
        if num_points is None:
            raise ValueError(f"cap_max {self.cap_max} depends on points that are not counted yet")
        return max(1, round(float(self.cap_max[:-1]) * num_points))

    def resolved(self) -> Training:
        """Return the settings with the values that the strategy decides in place of `auto`."""
        scale = AUTO_SCALE if self.init_scale == "auto" else self.init_scale
        opacity = AUTO_OPACITY[self.strategy] if self.init_opacity == "auto" else self.init_opacity
        growing = self.strategy == "default" if self.coarse_to_fine == "auto" else self.coarse_to_fine
        return self.model_copy(update={"init_scale": scale, "init_opacity": opacity, "coarse_to_fine": growing})


class Refinement(Section):
    """When and where Gaussians are added and removed: gsplat's own names, steps given for a run of 30,000."""

    refine_start_iter: int = 500
    """Refining starts after this step."""
    refine_stop_iter: Steps = 15_000
    """Last step that refines with `default`; `mcmc` goes on to 25,000 as in its paper, times this value / 15,000."""
    refine_every: Steps = 100
    """Steps between two refinements; fewer, but at least 50, in runs shorter than 30,000 (`default`: 7,000)."""
    reset_every: Steps = 3_000
    """`default`: steps between two opacity resets; none in runs shorter than 12,000 or in the last sixth of a run."""
    grow_grad2d: Rate = 0.0002
    """`default`: image-plane gradient above which a Gaussian is split or duplicated."""
    grow_scale3d: Rate = 0.01
    """`default`: Gaussians larger than this share of the scene are split, smaller ones duplicated."""
    prune_scale3d: Rate = 0.1
    """`default`: Gaussians larger than this share of the scene are removed."""
    prune_opa: Fraction = 0.005
    """Opacity under which a Gaussian is removed (`default`) or relocated (`mcmc`)."""
    prune_loss_db: Annotated[float, Field(ge=0)] = 5.0
    """`default`: when refining ends, what several photographs do not miss is removed, up to 65 % of the Gaussians, for
    at most so much PSNR on training photographs, which training mends; 0: nothing, as in runs under 3,000 steps."""
    absgrad: bool = False
    """`default`: use absolute gradients (then grow_grad2d should be about 0.0008)."""
    noise_lr: Rate = 5e5
    """`mcmc`: strength of the exploration noise."""


class LearningRates(Section):
    """Learning rates of Adam; the field's values (3DGS, Kerbl 2023; gsplat)."""

    means: Rate = 1.6e-4
    """Times the scene scale; decays to a hundredth over the run."""
    scales: Rate = 5e-3
    """Of the logarithms of the scales."""
    quats: Rate = 1e-3
    """Of the rotations."""
    opacities: Rate = 5e-2
    """Of the logits of the opacities."""
    sh0: Rate = 2.5e-3
    """Of the colour."""
    shN: Rate = 1.25e-4
    """Of the higher spherical harmonics."""


class Evaluation(Section):
    """Which photographs are held out, and when the splat is measured on them."""

    holdout_every: Annotated[int, Field(ge=0)] = 8
    """Every n-th photograph, sorted by name, is held out, or every n-th frame of a rig; 0: none."""
    holdout_list: FilePath | None = None
    """Text file with one held-out image name per line, instead of every n-th."""
    holdout: Literal["every", "contiguous", "both"] = "every"
    """Of patches that `split` has cut: `every`: the 8th of the scene's photographs each, the same ones in all patches;
    `contiguous`: those taken side by side, as `--holdout-block` chose them; `both` of them, and of patches that no
    split has cut a tenth of the photographs side by side beside every n-th."""
    steps: tuple[Steps, ...] = ()
    """Evaluate after these steps too; the end always is."""
    every: Annotated[int, Field(ge=0)] = 0
    """Evaluate every so many steps too; 0: not."""
    stop_after: Annotated[
        Literal["auto"] | Annotated[int, Field(ge=0)], either("a whole number from 0 on, or auto")
    ] = "auto"
    """End the training early, after so many checks in a row by which 13 % more steps gain less than `least_gain_db`,
    and a 25th of `max_steps` in which the rate of the means falls to its last value; 0: never; auto: 2 where
    `max_steps` exceeds 10,000, else 0."""
    least_gain_db: Annotated[float, Field(gt=0)] = LEAST_GAIN_DB
    """What 13 % more steps must gain for `stop_after`, in PSNR over the covered pixels of held-out photographs."""
    tensorboard: bool = False
    """Write event files for TensorBoard into each attempt's folder; needs the package tensorboard."""
    inspect: bool = False
    """Inspect each splat once the batch is trained, as `splatbatch inspect` does."""


NOTHING_GIVEN = Field(json_schema_extra={"default": {}})


class PatchOverrides(Section):
    """Settings of one patch that differ from the rest."""

    training: Annotated[Training, NOTHING_GIVEN] = Training()
    """Keys of `training`."""
    refinement: Annotated[Refinement, NOTHING_GIVEN] = Refinement()
    """Keys of `refinement`."""
    learning_rates: Annotated[LearningRates, NOTHING_GIVEN] = LearningRates()
    """Keys of `learning_rates`."""
    evaluation: Annotated[Evaluation, NOTHING_GIVEN] = Evaluation()
    """Keys of `evaluation`."""
    setting: dict[str, Any] = {}
    """Keys of the `settings` of the patch's trainer, if that is a program of its own."""

    @field_serializer("training", "refinement", "learning_rates", "evaluation")
    def _given(self, section: Section, about: FieldSerializationInfo) -> dict[str, Any]:
        """Return only the keys of a section that the YAML sets."""
        return section.model_dump(mode=about.mode, exclude_unset=True)


class Recipe(Section):
    """All that decides what one patch's training computes; its hash tells whether a result is still fresh."""

    training: Training = Training()
    refinement: Refinement = Refinement()
    learning_rates: LearningRates = LearningRates()
    evaluation: Evaluation = Evaluation()
    program: Program | None = None
    """The trainer, if it is not ours."""

    def with_training(self, changes: Mapping[str, object]) -> Recipe:
        """Return the recipe with other training settings, as {"device": "cpu"}; the values are not checked again."""
        return self.model_copy(update={"training": self.training.model_copy(update=changes)})

    def stops_after(self) -> int:
        """Return the number of checks in a row without gain after which a training ends early; 0: it never does."""
        if self.program is not None:
            return 0
        asked = self.evaluation.stop_after
        if asked == "auto":
            return STOPS_AFTER if self.training.max_steps > STOPS_ABOVE_STEPS else 0
        return asked

    def expected_steps(self) -> float:
        """Return how many steps a training is expected to make: all, or fewer where it may end early."""
        return self.training.max_steps * (EARLY_SHARE if self.stops_after() else 1.0)

    def acceptable(self) -> tuple[Recipe, ...]:
        """Return the recipe and those whose splats count as its own.

        They make all steps where `stop_after: auto` may end early, and have the most Gaussians of `cap_max: auto`.
        """
        whole = self.model_copy(update={"evaluation": self.evaluation.model_copy(update={"stop_after": 0})})
        recipes = (self, whole) if self.evaluation.stop_after == "auto" and self.stops_after() else (self,)
        if self.training.cap_max != "auto" or self.program is not None:
            return recipes
        return (*recipes, *(one.with_training({"cap_max": self.training.cap()}) for one in recipes))

    @model_validator(mode="after")
    def _stops_by_photographs(self) -> Recipe:
        evaluation = self.evaluation
        holds_none_out = not evaluation.holdout_every and not evaluation.holdout_list and evaluation.holdout == "every"
        if evaluation.stop_after not in ("auto", 0) and holds_none_out:
            raise ValueError("evaluation.stop_after needs held-out photographs: set evaluation.holdout_every too")
        return self

    def settings(self) -> dict[str, Any]:
        """Return every setting by its full name, as "training.cap_max", the strategy's values in place of `auto`."""
        return self.model_copy(update={"training": self.training.resolved()}).as_given()

    def reads(self) -> frozenset[str]:
        """Return the full names of the settings that the trainer reads; an external trainer reads those it names."""
        return self.program.reads() if self.program else frozenset(self.as_given())

    def as_given(self) -> dict[str, Any]:
        """Return every setting by its full name; `auto` stays `auto`."""
        sections = self.model_dump(exclude={"program"}) | {"setting": self.program.settings if self.program else {}}
        return {f"{section}.{key}": value for section, values in sections.items() for key, value in values.items()}

    def decisive(self) -> dict[str, Any]:
        """Return, as JSON, the settings that the result depends on; a splat is stale if they change.

        Of an external trainer these are its command, settings and environment, not how it is watched.
        """
        if self.program is None:
            tree = self.model_dump(mode="json", exclude={"program"})
            for key in WITHOUT_EFFECT:
                section, _, setting = key.partition(".")
                del tree[section][setting]
            return tree
        told = self.program.model_dump(mode="json", include={"command", "settings", "working_folder"})
        told["env"] = dict(self.program.env)  # as it is: of this only a hash is ever written
        training = self.training.model_dump(mode="json", include={"trainer", "max_steps", "seed"})
        return {"training": training, "program": told, "export": list(self.program.artifact.export)}
