"""Work of the command `scene`: split a scene, train, merge and evaluate it in one run.

Steps for which nothing has changed are skipped.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from splatbatch import config as configuration
from splatbatch.config.load import CONFIG_VARIABLE
from splatbatch.config.yaml.edit import save_settings
from splatbatch.errors import ConfigError, SplatbatchError
from splatbatch.files import MOST_JSON_BYTES, names_in, read_regular, write_text
from splatbatch.machine.gpu import presence
from splatbatch.monitor.messages import PipeWriter, log_line
from splatbatch.output.folders import BACKDROP
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.evaluation import SceneEvaluation
from splatbatch.output.records.run import DONE, LEFT_OUT, FollowUpResult
from splatbatch.run.decide import TrainOptions
from splatbatch.run.follow_ups import TRAIN, FinishedBatch, Show, follow_up_result, publish_as_configured
from splatbatch.run.reconstruct import ReconstructOptions, reconstruct, result_of
from splatbatch.run.train import train
from splatbatch.scene.finder import find_layout
from splatbatch.scene.partition.plan import SplitOptions
from splatbatch.scene.partition.record import partition_of
from splatbatch.scene.partition.split import SplitRequest, find_source, split
from splatbatch.scene.template import config_for
from splatbatch.tasks.batch import open_batch
from splatbatch.tasks.scene import evaluation
from splatbatch.tasks.scene.candidates import check_scene

NOT_WHOLE = 1
RECONSTRUCTED = "reconstructed"
"""Name of the folder with the model reconstructed from photographs, below the folder of the scene."""


@dataclass(frozen=True)
class SceneOptions:
    """Options of `scene`: model or photographs, target folder, and settings of the training."""

    source: Path | None
    """COLMAP model of the scene; None: the model is reconstructed from the photographs first."""
    images: Path | None
    """Folder of the photographs; None: it is searched near the model, and `source` must be given."""
    out: Path
    """Folder for the patches, the YAML and the output folder."""
    settings: tuple[str, ...] = ()
    """Settings such as "training.max_steps=7000", written into the YAML; (): none."""
    clean: bool = False
    """Whether the merge leaves out invisible, oversized and floating Gaussians."""

    @property
    def config(self) -> Path:
        """Path of the YAML, in the folder `out`."""
        return self.out / configuration.DEFAULT_CONFIG

    @property
    def model(self) -> Path:
        """Path of the model that is split: `source`, else the model to be reconstructed in the folder `out`."""
        return self.source or self.out / RECONSTRUCTED / "sparse" / "0"

    @property
    def patches(self) -> Path:
        """Folder of the patches, in the folder `out`."""
        return self.out / "patches"


def make_scene(options: SceneOptions, show: Show) -> int:
    """Make one splat of a scene; return the exit code: 0 if it is whole, 1 if a patch is missing.

    Other codes are those of the reconstruction or the training. A second call with the same options resumes. `show` is
    called with each product and the summary.

    Raises:
        SplatbatchError: a step failed.
        OSError: a file cannot be written.
        Interrupted: a signal came before the training began.
    """
    changes = configuration.parse_changes(options.settings)
    if options.source is None:
        if code := _reconstruct(options, show):
            return code
        options = replace(options, images=options.out / RECONSTRUCTED / "images")
    _cut(options, show)
    _write_config(options, changes)
    log_line("train: step 2 of 4")
    batch, errors = open_batch(options.config), list[SplatbatchError]()
    ended = train(batch, TrainOptions(), show, partial(_follow, options, errors))
    if errors:
        raise errors[0]
    found = batch.output.scene.read_evaluation() or SceneEvaluation()
    return ended.exit_code or (NOT_WHOLE if found.lacking else 0)


def _follow(options: SceneOptions, errors: list[SplatbatchError], trained: FinishedBatch) -> Sequence[FollowUpResult]:
    """Merge, evaluate and publish as far as possible; return the results, and append the error of a failed step."""
    done = []
    for what, make in (("merge", _merge), ("evaluate", _evaluate)):
        done.append(found := trained.follow(what, partial(make, options, trained)))
        if not found.is_done:
            errors += [trained.error] if trained.error else []
            return [*done, *publish_as_configured(trained, why_not=f"the scene is {found.words}")]
    return [*done, *publish_as_configured(trained, merges=False)]


def _merge(options: SceneOptions, trained: FinishedBatch) -> FollowUpResult:
    allow_missing = trained.batch.config.publish.allow_missing
    if trained.code not in (0, NOT_WHOLE) or (trained.code and not allow_missing):
        words = "not merged: a patch is missing; set `publish.allow_missing: true` to merge the others"
        return follow_up_result("merge", LEFT_OUT, words, f"{TRAIN} && splatbatch merge")
    trained.say("merge: step 3 of 4")
    trained.show(trained.merge(allow_missing=allow_missing, clean=options.clean))
    return follow_up_result("merge", DONE, f"merged: {trained.batch.output.scene.splat}")


def _evaluate(options: SceneOptions, trained: FinishedBatch) -> FollowUpResult:
    trained.say("evaluate: step 4 of 4")
    batch = open_batch(options.config)
    task = evaluation.evaluation_task(batch, evaluation.order(batch, batch.output.scene.splat))
    if task.is_fresh():
        trained.say("already evaluated: nothing has changed")
    else:
        trained.make(task)
    trained.show(batch.output.scene.read_evaluation() or SceneEvaluation())
    return follow_up_result("evaluate", DONE, "evaluated: the merged scene")


def _reconstruct(options: SceneOptions, show: Show) -> int:
    """Reconstruct a model from the photographs, finished stages excepted; return the exit code.

    Raises:
        ConfigError: neither a model nor photographs are named.
    """
    if options.images is None:
        raise ConfigError("--source or --images is required", "Name a COLMAP model, or the folder of the photographs.")
    log_line("reconstruct: before step 1 of 4")

    asked = ReconstructOptions(options.images, options.out / RECONSTRUCTED)
    code = reconstruct(asked, show)
    if not code and (result := result_of(asked)):
        show(result)
    return code


def _cut(options: SceneOptions, show: Show) -> None:
    """Split the scene into patches, unless the folder holds patches of the same model."""
    patches = options.patches
    before = partition_of(patches) if patches.is_dir() else None
    if before is not None and before.source.resolve() == find_source(options.model).resolve():
        check_scene(before)
        log_line("split: step 1 of 4: the scene is already split")
        return
    log_line("split: step 1 of 4")
    asked = SplitRequest(options.model, options.images, patches, SplitOptions(), trained_in(patches))
    show(split(asked, advance=partial(PipeWriter().advance, "split", unit="patches")))


def _write_config(options: SceneOptions, changes: dict[str, object]) -> None:
    """Write the YAML of the scene with the named settings; in an existing YAML only these settings are changed.

    Raises:
        ConfigError: a setting is unknown, or its value does not fit; the YAML is then unchanged.
    """
    path = options.config
    try:
        before = read_regular(path, MOST_JSON_BYTES).decode() if path.exists() else None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error})", "Name a YAML file, or leave --config out.") from error
    if before is None:
        write_text(path, config_for(find_layout(options.out), options.out.resolve(), has_gpu=presence().is_here()))
    try:
        if changes:
            save_settings(path, changes)
        configuration.load(path)
    except ConfigError:
        if before is None:
            path.unlink(missing_ok=True)
        else:
            write_text(path, before)
        raise


def trained_in(out: Path) -> frozenset[str]:
    """Return the patches of the folder `out` that have an accepted splat in the output folder of a YAML.

    Looked at are the YAML that $SPLATBATCH_CONFIG names, the one in the working folder, and the one beside `out`. A
    YAML that cannot be read is passed over.
    """
    named = os.environ.get(CONFIG_VARIABLE)
    places = [Path(named)] if named else []
    found = set()
    for file in (*places, Path(configuration.DEFAULT_CONFIG), out.absolute().parent / configuration.DEFAULT_CONFIG):
        with contextlib.suppress(SplatbatchError):
            config = configuration.load(file) if file.is_file() else None
            if config is None or config.scene.patches.resolve() != out.resolve():
                continue
            output = OutputFolder(config.output.folder)
            found |= {name for name in names_in(f"{output.path}/patches") if output.patch(name).read_result()}
    return frozenset(found) - {BACKDROP}
