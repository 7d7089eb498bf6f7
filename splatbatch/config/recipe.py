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
"""Values that `init_scale: auto` and, by strategy, `init_opacity: auto` stand for.

They are gsplat's presets, except for mcmc's scale of 0.1, which starts worse here."""

FEWEST_GAUSSIANS, MOST_GAUSSIANS = 400_000, 1_000_000
"""Smallest and largest number of Gaussians that `cap_max: auto` chooses."""
PIXELS_PER_GAUSSIAN = 8
"""Pixels of the photographed surface for each Gaussian of `cap_max: auto` (docs/benchmarks.md, "As many Gaussians as it
takes")."""

STOPS_AFTER, STOPS_ABOVE_STEPS = 2, 10_000
"""Number of checks that `evaluation.stop_after: auto` means, and the value of `max_steps` above which it applies."""
EARLY_SHARE = 0.65
"""Mean share of `max_steps` that a training makes if it may end early; single ones make 0.4 to 1
(docs/benchmarks.md)."""
LEAST_GAIN_DB = 0.05
"""Default of `least_gain_db`, in dB of PSNR for 13 % more steps; this is 0.02 dB for 5 % more (docs/benchmarks.md)."""

SH_RATE, EARLIER_SH_RATE = 2.5e-5, 1.25e-4
"""Default of `learning_rates.shN`, and that before version 0.3.0 (3DGS): splats trained with either are up to date."""

WITHOUT_EFFECT = (
    "training.checkpoint_every",
    "training.images",
    "training.workers",
    "evaluation.tensorboard",
    "evaluation.inspect",
)
"""Full names of the settings that change only memory use or further files; a change of theirs makes no splat stale."""


class Training(Section):
    """How each patch is trained."""

    trainer: str = OUR_TRAINER
    """The program that trains: `gsplat` is splatbatch's own trainer; any other name must stand under `trainers`."""
    max_steps: Steps = 30_000
    """Training steps. The steps in `refinement` are given for 30,000 and scale with this value."""
    strategy: Literal["default", "mcmc"] = "mcmc"
    """Densification: `default` (3DGS, Kerbl 2023) or `mcmc` (3DGS-MCMC, Kheradmand 2024)."""
    cap_max: Annotated[Literal["auto"] | Count, either("a whole number above 0, a multiple such as 2x, or auto")] = (
        "auto"
    )
    """Most Gaussians of a splat; "2x": twice as many as the patch has sparse points; auto: 400,000 to a million, by the
    pixels and overlap of the photographs. Sparse points beyond this number are thinned out evenly in space."""
    sh_degree: Annotated[int, Field(ge=0, le=3)] = 3
    """Highest degree of the spherical harmonics, by which a colour depends on the view; training begins at 0, which is
    one colour for all views, and raises the degree by one at a time."""
    init_scale: Annotated[Literal["auto"] | Annotated[float, Field(gt=0)], either("a number above 0, or auto")] = "auto"
    """First scale of each Gaussian, as a multiple of its distance to its three nearest neighbours; auto: 1.0."""
    init_opacity: Annotated[
        Literal["auto"] | Annotated[float, Field(gt=0, lt=1)], either("a number between 0 and 1, or auto")
    ] = "auto"
    """First opacity of each Gaussian; auto: 0.1 with `default`, 0.5 with `mcmc` (gsplat's presets)."""
    ssim_lambda: Fraction = 0.2
    """Weight of 1 - SSIM in the loss, from 0 to 1; L1 has the rest."""
    resolution: Literal["auto", "full", "1/2", "1/4", "1/8"] = "full"
    """Size of the photographs in training. Smaller ones are read from images_2, images_4 or images_8 beside the
    photographs' folder if all are there, else averaged while loading. If the photographs' folder is missing, other
    complete copies are read. auto: the largest of these sizes whose longer side has at most 1600 px, else 1/8."""
    colors: Literal["auto", "even", "as_is"] = "auto"
    """Correction of photographs of unlike exposure and white balance. `even`: the photographs are made alike, as far as
    points seen in several of them tell; `as_is`: they stay as they are; auto: `even` where the colours of a point then
    agree better by a fifth or more, unless other patches were trained without correction before. An external trainer is
    given corrected copies (JPEG 97, or PNG) for `even` alone."""
    coarse_to_fine: Literal["auto"] | bool = "auto"
    """Begin with small photographs and few Gaussians, and let both grow over the run, which is faster (DashGaussian,
    2025). auto: true with `default`, whose splats it makes better; false with `mcmc`, whose splats it makes worse."""
    border: Literal["auto", "core", "backdrop", "none"] = "auto"
    """Border of patches that `split` has cut. `auto`: Gaussians stay inside the core, and the backdrop is drawn behind
    them; `core` or `backdrop`: only that one; `none`: neither. All but auto are for comparisons."""
    images: Literal["auto", "gpu", "host"] = "auto"
    """Where decoded photographs are kept. `gpu`: in GPU memory; `host`: in host memory, and uploaded for each step;
    auto: in GPU memory if they fit, else in host memory."""
    workers: Literal["auto"] | Annotated[int, Field(ge=0, le=64)] = "auto"
    """Number of threads that decode photographs; 0: only the main thread; auto: one per core, at most 16."""
    device: Literal["auto", "cuda", "cpu"] = "auto"
    """Device that trains. `cuda`: a GPU; `cpu`: the CPU, however long it takes; `auto`: a GPU if there is one, else the
    CPU if the batch takes an hour at most."""
    checkpoint_every: Annotated[int, Field(ge=0)] = 0
    """Steps between checkpoints, from which the next attempt goes on after a crash; 0: no checkpoints."""
    antialiased: bool = False
    """Let Gaussians smaller than a pixel keep their weight (Mip-Splatting, Yu 2024), for renderings from farther
    away."""
    kernels: Annotated[Literal["auto", "gsplat"], BeforeValidator(lambda one: "gsplat" if one == "plain" else one)] = (
        "auto"
    )
    """Kernels for rendering and its gradients. `auto`: splatbatch's own, where they work; `gsplat`: only those of torch
    and gsplat, without CUDA graphs, which is slower and needs gsplat's extension built."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 42
    """Seed of all random numbers of a training."""

    @property
    def keeps_to_core(self) -> bool:
        """Whether the Gaussians of a patch with a core stay inside the core."""
        return self.border in ("auto", "core")

    @property
    def draws_behind(self) -> bool:
        """Whether the backdrop is drawn behind a patch with a core."""
        return self.border in ("auto", "backdrop")

    def cap(self, num_points: int | None = None, surface_px: float = math.inf) -> int:
        """Return `cap_max` as a number of Gaussians.

        Args:
            num_points: number of sparse points of the patch; None: not counted yet.
            surface_px: pixels of the patch's photographs, each place of the surface counted once. Without it, `auto`
                gives `MOST_GAUSSIANS`.

        Raises:
            ValueError: `cap_max` is a multiple and `num_points` is None.
        """
        if isinstance(self.cap_max, int):
            return self.cap_max
        if self.cap_max == "auto":
            return round(min(max(surface_px / PIXELS_PER_GAUSSIAN, FEWEST_GAUSSIANS), MOST_GAUSSIANS))
        if num_points is None:
            raise ValueError(f"cap_max {self.cap_max} needs the number of sparse points, which is not known yet")
        return max(1, round(float(self.cap_max[:-1]) * num_points))

    def resolved(self) -> Training:
        """Return the settings with values in place of `auto` for init_scale, init_opacity and coarse_to_fine.

        The strategy decides these values; every other `auto` stays.
        """
        scale = AUTO_SCALE if self.init_scale == "auto" else self.init_scale
        opacity = AUTO_OPACITY[self.strategy] if self.init_opacity == "auto" else self.init_opacity
        growing = self.strategy == "default" if self.coarse_to_fine == "auto" else self.coarse_to_fine
        return self.model_copy(update={"init_scale": scale, "init_opacity": opacity, "coarse_to_fine": growing})


class Refinement(Section):
    """When and where Gaussians are added and removed. The names are gsplat's; steps are given for a run of 30,000."""

    refine_start_iter: int = 500
    """Step after which Gaussians are added and removed."""
    refine_stop_iter: Steps = 15_000
    """Last step that refines with `default`. `mcmc` goes on for 5/3 of this value, as in its paper: to 25,000 for
    15,000."""
    refine_every: Steps = 100
    """Steps between two refinements. Runs shorter than 30,000 steps (`default`: 7,000) shorten them, but not below
    50."""
    reset_every: Steps = 3_000
    """`default`: steps between two resets of all opacities; none after `refine_stop_iter` or in a run's last sixth.
    Runs that stop refining before a second reset have none, as those under 12,000 steps by default."""
    grow_grad2d: Rate = 0.0002
    """`default`: mean gradient in the image plane above which a Gaussian is split or duplicated."""
    grow_scale3d: Rate = 0.01
    """`default`: Gaussians larger than this share of the scene's size are split, smaller ones duplicated."""
    prune_scale3d: Rate = 0.1
    """`default`: Gaussians larger than this share of the scene's size are removed once opacities were reset; so never
    in runs without a reset."""
    prune_opa: Fraction = 0.005
    """Opacity under which a Gaussian is removed (`default`) or relocated (`mcmc`)."""
    prune_loss_db: Annotated[float, Field(ge=0)] = 5.0
    """`default`: most PSNR on training photographs, in dB, that removing the least important Gaussians may cost when
    refining ends. At most 65 % are removed; the steps after that win the PSNR back. 0: none are removed, as in runs
    under 3,000 steps."""
    absgrad: bool = False
    """`default`: use absolute gradients (AbsGS); `grow_grad2d` should then be about 0.0008."""
    noise_lr: Rate = 5e5
    """`mcmc`: strength of the random noise that moves Gaussians to better places; 0: none."""


class LearningRates(Section):
    """Learning rates of Adam, with the field's values (3DGS, Kerbl 2023; gsplat) but for that of `shN`.

    Each rate ends at a hundredth of its value.
    """

    means: Rate = 1.6e-4
    """Rate of the positions, times the size of the scene; it falls over the whole run, the other rates in its last
    25th."""
    scales: Rate = 5e-3
    """Rate of the logarithms of the scales."""
    quats: Rate = 1e-3
    """Rate of the rotations."""
    opacities: Rate = 5e-2
    """Rate of the logits of the opacities."""
    sh0: Rate = 2.5e-3
    """Rate of the colour that is the same from all sides."""
    shN: Rate = SH_RATE
    """Rate of the higher spherical harmonics, by which the colour depends on the view. A fifth of the field's 1.25e-4:
    with that, single photographs are learned by heart where few overlap."""


class Evaluation(Section):
    """Which photographs are held out, and when the splat is measured on them."""

    holdout_every: Annotated[int, Field(ge=0)] = 8
    """Every n-th photograph, sorted by name, is held out, or every n-th frame of a rig; 0: none, apart from a block by
    `holdout`. Patches that `split` has cut hold out every 8th, whatever n above 0 is."""
    holdout_list: FilePath | None = None
    """Text file with the name of one held-out photograph per line; `holdout_every` and `holdout` then have no effect.
    Left out: no such file."""
    holdout: Literal["every", "contiguous", "both"] = "every"
    """Which photographs of patches that `split` has cut are held out. `every`: every 8th of the scene, the same ones in
    all patches; `contiguous`: the block of neighbours that `split --holdout-block` chose; `both`: these and those. In
    patches that no `split` has cut, `both` holds out a tenth of the photographs side by side beside every n-th, and
    `contiguous` is an error."""
    steps: tuple[Steps, ...] = ()
    """Steps after which the splat is measured, too; the last step always is. []: no others."""
    every: Annotated[int, Field(ge=0)] = 0
    """Number of steps after which the splat is measured again and again; 0: only after `steps` and at the end."""
    stop_after: Annotated[
        Literal["auto"] | Annotated[int, Field(ge=0)], either("a whole number from 0 on, or auto")
    ] = "auto"
    """End the training early, after so many checks in a row that gain too little: 13 % more steps gain less than
    `least_gain_db`. A third of `max_steps` is made in any case. After the checks, a 25th of `max_steps` follows, in
    which the learning rates fall to a hundredth. 0: never; auto: 2 where `max_steps` exceeds 10,000, else 0."""
    least_gain_db: Annotated[float, Field(gt=0)] = LEAST_GAIN_DB
    """Gain in dB that 13 % more steps must bring for `stop_after`, in PSNR over the covered pixels of held-out
    photographs."""
    tensorboard: bool = False
    """Write event files for TensorBoard into each attempt's folder; needs the Python package tensorboard."""
    inspect: bool = False
    """Inspect each splat once the batch is trained, as `splatbatch inspect` does."""


NOTHING_GIVEN = Field(json_schema_extra={"default": {}})


class PatchOverrides(Section):
    """Settings of one patch that differ from the rest."""

    training: Annotated[Training, NOTHING_GIVEN] = Training()
    """Keys of `training` that differ for this patch."""
    refinement: Annotated[Refinement, NOTHING_GIVEN] = Refinement()
    """Keys of `refinement` that differ for this patch."""
    learning_rates: Annotated[LearningRates, NOTHING_GIVEN] = LearningRates()
    """Keys of `learning_rates` that differ for this patch."""
    evaluation: Annotated[Evaluation, NOTHING_GIVEN] = Evaluation()
    """Keys of `evaluation` that differ for this patch."""
    setting: dict[str, Any] = {}
    """Keys of `settings` of the patch's external trainer that differ for this patch."""

    @field_serializer("training", "refinement", "learning_rates", "evaluation")
    def _given(self, section: Section, about: FieldSerializationInfo) -> dict[str, Any]:
        """Return only the keys of a section that the YAML sets."""
        return section.model_dump(mode=about.mode, exclude_unset=True)


class Recipe(Section):
    """All settings that decide what the training of one task computes.

    A splat is stale if the settings of `decisive` have changed since its training.
    """

    training: Training = Training()
    refinement: Refinement = Refinement()
    learning_rates: LearningRates = LearningRates()
    evaluation: Evaluation = Evaluation()
    program: Program | None = None
    """The external trainer; None: splatbatch's own trainer."""

    def with_training(self, changes: Mapping[str, object]) -> Recipe:
        """Return the recipe with other training settings, as {"device": "cpu"}; the values are not checked again."""
        return self.model_copy(update={"training": self.training.model_copy(update=changes)})

    def stops_after(self) -> int:
        """Return the number of checks in a row without gain after which a training ends early.

        0: it never does, as with external trainers.
        """
        if self.program is not None:
            return 0
        asked = self.evaluation.stop_after
        if asked == "auto":
            return STOPS_AFTER if self.training.max_steps > STOPS_ABOVE_STEPS else 0
        return asked

    def expected_steps(self) -> float:
        """Return the number of steps that a training is expected to make: all, or fewer if it may end early."""
        return self.training.max_steps * (EARLY_SHARE if self.stops_after() else 1.0)

    def acceptable(self) -> tuple[Recipe, ...]:
        """Return the recipe and all others whose splats count as splats of this recipe.

        Where `stop_after: auto` may end the training early, a splat trained for all steps counts. Where `cap_max` is
        auto, a splat trained with the most Gaussians that auto chooses counts. Where `learning_rates.shN` has its
        default, a splat trained with the earlier default counts. None of this holds for external trainers.
        """
        recipes: tuple[Recipe, ...] = (self,)
        if self.program is not None:
            return recipes
        if self.evaluation.stop_after == "auto" and self.stops_after():
            whole = self.evaluation.model_copy(update={"stop_after": 0})
            recipes += (self.model_copy(update={"evaluation": whole}),)
        if self.training.cap_max == "auto":
            recipes += tuple(one.with_training({"cap_max": self.training.cap()}) for one in recipes)
        if self.learning_rates.shN == SH_RATE:
            rates = self.learning_rates.model_copy(update={"shN": EARLIER_SH_RATE})
            recipes += tuple(one.model_copy(update={"learning_rates": rates}) for one in recipes)
        return recipes

    @model_validator(mode="after")
    def _stops_by_photographs(self) -> Recipe:
        evaluation = self.evaluation
        holds_none_out = not evaluation.holdout_every and not evaluation.holdout_list and evaluation.holdout == "every"
        if evaluation.stop_after not in ("auto", 0) and holds_none_out:
            raise ValueError("evaluation.stop_after needs held-out photographs: set evaluation.holdout_every too")
        return self

    def settings(self) -> dict[str, Any]:
        """Return every setting by its full name, as "training.cap_max".

        The strategy's values stand in place of `auto` for init_scale, init_opacity and coarse_to_fine; other `auto`
        stay.
        """
        return self.model_copy(update={"training": self.training.resolved()}).as_given()

    def reads(self) -> frozenset[str]:
        """Return the full names of the settings that the trainer reads: all with splatbatch's own trainer.

        An external trainer reads those that `Program.reads` returns.
        """
        return self.program.reads() if self.program else frozenset(self.as_given())

    def as_given(self) -> dict[str, Any]:
        """Return every setting by its full name, as "training.cap_max"; `auto` stays `auto`."""
        sections = self.model_dump(exclude={"program"}) | {"setting": self.program.settings if self.program else {}}
        return {f"{section}.{key}": value for section, values in sections.items() for key, value in values.items()}

    def decisive(self) -> dict[str, Any]:
        """Return, as values of JSON, the settings that the splat depends on; a splat is stale if they change.

        Of an external trainer these are its name, steps, seed, command, settings, working folder, environment and
        export, not how it is watched. Values of the environment are not hidden here, so only a hash of the result may
        be written to a file.
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
