"""The Python API, imported as `import splatbatch`: the commands as functions on a batch. No function asks.

Nothing is printed on stdout. While a function waits, it writes to stderr for what, as the commands do. Most errors are
`SplatbatchError`, with `message` and `hint`. A signal that ends an inspection or an evaluation raises `Interrupted`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from splatbatch.errors import ConfigError, OutputError
from splatbatch.monitor.messages import PipeWriter
from splatbatch.monitor.sinks import Sink
from splatbatch.output.folders import PatchFolder
from splatbatch.output.records.evaluation import SceneEvaluation
from splatbatch.output.records.publication import PublishOutput
from splatbatch.output.records.result import Result
from splatbatch.output.records.run import DONE
from splatbatch.publish.publish import PublishRequest as PublishWish
from splatbatch.report import write_facts
from splatbatch.report.facts import Report
from splatbatch.run.accept import accept
from splatbatch.run.cancel import cancel
from splatbatch.run.context import status
from splatbatch.run.decide import TrainOptions
from splatbatch.run.follow_ups import by_hand, follow_up_result, publishable_names
from splatbatch.run.inspection import Found, InspectOptions
from splatbatch.run.inspection import inspect as inspect_splats
from splatbatch.run.plan import plan
from splatbatch.run.products import merge
from splatbatch.run.progress import ProgressPrinter
from splatbatch.run.status import report_of
from splatbatch.run.train import train
from splatbatch.splats.export import WHOLE, ExportOptions
from splatbatch.splats.ply import Gaussians, read_splat
from splatbatch.tasks.batch import Batch, open_batch
from splatbatch.tasks.inspection import SCENE
from splatbatch.tasks.scene.evaluation import evaluation_task, order
from splatbatch.tasks.task import Names, as_names

__all__ = [
    "Batch",
    "InspectOptions",
    "Sink",
    "TrainOptions",
    "accept",
    "cancel",
    "evaluate",
    "gaussians",
    "inspect",
    "merge",
    "open_batch",
    "plan",
    "publish_splats",
    "results",
    "status",
    "train",
    "write_report",
]


AS_USUAL = InspectOptions()


def results(batch: Batch) -> dict[str, Result]:
    """Return the records of the accepted splats (result.json), by patch; patches without a readable one are left out.

    Raises:
        OutputError: a later version of splatbatch wrote a record.
    """
    found = {name: batch.output.patch(name).read_result() for name in batch.names}
    return {name: result for name, result in found.items() if result is not None}


def gaussians(batch: Batch, name: str) -> Gaussians:
    """Return the accepted splat of a patch as numpy arrays: means [N, 3] in world units, scales [N, 3] and so on.

    Raises:
        ConfigError: the patch has no accepted splat.
        OutputError: a later version of splatbatch wrote the record of the splat.
        ValueError, OSError: the file is truncated, or cannot be read.
    """
    folder = batch.output.patch(name)
    if (result := folder.read_result()) is None:
        raise ConfigError(
            f"{name}: has no splat yet", "Train it with `splatbatch train`; `splatbatch status` shows progress."
        )
    return read_splat(folder.splat_of(result))


def inspect(batch: Batch, how: InspectOptions = AS_USUAL) -> tuple[Found, Mapping[str, str]]:
    """Inspect accepted splats that have no up-to-date inspection, and write the report; wait until all are inspected.

    Returns:
        The inspection of each splat, by name; and for each splat that could not be inspected the reason.

    Raises:
        OutputError: a training runs, the output folder cannot be written, or a later version wrote it.
        OSError: the report cannot be written.
        Interrupted: a signal ended the inspection.
    """
    found = inspect_splats(batch, how)
    write_report(batch.whole())
    return found


def evaluate(batch: Batch, splat: Path | None = None) -> SceneEvaluation:
    """Measure a splat of the whole scene on photographs that no patch was trained on; write the report, too.

    Args:
        batch: the batch of a cut scene.
        splat: the splat file; None: the merged splat in the output folder.

    Returns:
        The evaluation; an up-to-date one is made again.

    Raises:
        SplatbatchError: the splat cannot be measured, or a training runs.
        OSError: the report cannot be written.
        Interrupted: a signal ended the evaluation.
    """
    splat = splat or batch.output.scene.splat
    task = evaluation_task(batch, order(batch, splat))
    progress = ProgressPrinter("evaluate", task.home, PipeWriter())
    with by_hand(batch, alone=True) as finished:
        finished.make(task, progress.look, "evaluate")
    found = batch.output.scene.read_evaluation(splat) or SceneEvaluation()
    write_report(batch)
    return found


def publish_splats(  # noqa: PLR0913 - the defaults are the settings of the YAML
    batch: Batch,
    names: Names = (),
    to: Path | None = None,
    formats: Names = "",
    *,
    forced: bool = False,
    measured: bool = True,
    cut: ExportOptions = WHOLE,
) -> PublishOutput:
    """Write accepted splats as files for other programs.

    Args:
        batch: the batch with the splats; its YAML gives the other settings of publishing.
        names: patches, or "scene"; a single name may be a string. Empty: the merged scene if there is one, else every
            patch.
        to: the target folder; None: the folder that the YAML names.
        formats: "sog,tiles", or ["sog", "tiles"]; empty: the formats of the YAML.
        forced: whether files that no publish wrote may be overwritten.
        measured: whether the loss by compression is measured, if the YAML says so; False: never.
        cut: what PLY files leave out.

    Returns:
        The files that were written, with the folder.

    Raises:
        SplatbatchError: an output could not be written, or a patch is not trained; the other outputs are written.
            Nothing is written if a format is unknown, or the folder is in use or holds foreign files.
        Interrupted: a signal ended the publishing.
    """
    names, formats = as_names(names), ",".join(as_names(formats))
    is_usual = not (names or to or formats or forced)
    request, lacking = PublishWish.of(batch, to, formats, forced=forced), dict[str, str]()  # fails before any work
    if request.target.folder.is_dir():
        with request.target.work():  # raises if another publish is at work
            pass
    if not names and batch.output.scene.splat.exists():
        names = (SCENE,)
    elif not names:
        names, lacking = publishable_names(batch.whole())
    words = ["--as", ",".join(request.kinds), "--force" if forced else "", "" if measured else "--no-measure"]
    words += ["--to", str(to.absolute())] if to else []
    if "ply" in request.kinds:
        words += ["--sh-degree", str(cut.sh_degree)] if cut.sh_degree is not None else []
        words += ["--min-opacity", str(cut.min_opacity), "--frame", "source" if cut.in_source_frame else "local"]
    words = [*filter(None, words), "--", *names]
    with TemporaryDirectory() as aside, by_hand(batch, alone=False) as finished:
        # a colleague's folder may be read-only
        home = None if os.access(batch.output.path, os.W_OK) else PatchFolder(Path(aside))
        done = finished.run("publish", words, PublishOutput, home) if names else PublishOutput()
    if lacking:
        raise OutputError("; ".join(f"{name}: {why}" for name, why in lacking.items()), "Run `splatbatch train`.")
    if is_usual:  # replaces the result of the run's follow-up
        said = follow_up_result("publish", DONE, f"published: {batch.config.publish.folder}")
        batch.output.note_afterwards("publish", said)
    return replace(done, folder=str(to or batch.config.publish.folder))


def write_report(batch: Batch) -> Report:
    """Write the report of the current state of a batch into its output folder (three files); return its facts.

    Raises:
        OutputError: the output folder cannot be written, or a later version of splatbatch wrote it.
        OSError: the report cannot be written.
    """
    batch.output.create()
    standing = batch.standing()
    return write_facts(report_of(batch, standing), batch.output, batch.config.output.previews_mib, standing)
