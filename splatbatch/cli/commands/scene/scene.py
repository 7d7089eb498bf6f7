"""`scene`: one scene in, one scene out."""

from __future__ import annotations

import shlex
from typing import Any

import typer

from splatbatch import config as configuration
from splatbatch import terminal
from splatbatch.cli.commands.output import print_line
from splatbatch.cli.commands.reconstruct import tell, tell_failed
from splatbatch.cli.commands.scene import split as splitting
from splatbatch.cli.commands.train import show
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.evaluation import SceneEvaluation
from splatbatch.run.context import RunSummary
from splatbatch.run.reconstruct import ReconstructedModel
from splatbatch.run.scene import SceneOptions, make_scene
from splatbatch.scene.partition.split import SplitFiles


def scene(options: SceneOptions) -> None:
    """Make one splat of a scene, and say how good it is; exit with 0 if it is whole, with 1 if a patch is missing."""
    terminal.never_block()

    def show_step(made: Any) -> None:
        if isinstance(made, SplitFiles):
            splitting.show(made, options.patches, dry_run=False)
            return
        if isinstance(made, ReconstructedModel):
            tell(made)
            return
        if isinstance(made, RunSummary) and made.batch.noun == "stage":
            tell_failed(made)
            return
        show(made)
        if isinstance(made, SceneEvaluation):
            splat = OutputFolder(configuration.load(options.config).output.folder).scene.splat
            print_line(
                f"{splat}; to repeat a step: `train`, `merge` or `evaluate` --config {shlex.quote(str(options.config))}"
            )

    raise typer.Exit(make_scene(options, show_step))
