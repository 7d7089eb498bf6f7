"""What is made of accepted splats while nobody trains: the merged scene, its evaluation, publications, films."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from splatbatch.errors import ConfigError, Interrupted, SplatbatchError
from splatbatch.monitor.telling import Lines, open_telling, tell
from splatbatch.night.interruption import Interruption
from splatbatch.publish.film import Film, make_film
from splatbatch.publish.publish import Wish
from splatbatch.publish.publish import publish as publish_splats
from splatbatch.publish.source import Published, published
from splatbatch.scheduler import single
from splatbatch.scheduler.rounds import Rounds
from splatbatch.scheduler.work.holding import held_alone, in_turn
from splatbatch.splats.export import Cut, Source, export_splat
from splatbatch.splats.export import check_place as check_export
from splatbatch.splats.merge import check_place
from splatbatch.store.folders import MergedFiles
from splatbatch.store.records.evaluation import EvaluationSettings, SceneEvaluation
from splatbatch.store.records.merge import Merge
from splatbatch.store.records.publication import Publication
from splatbatch.store.records.run import Making
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.scene.cleaning import Cleaning
from splatbatch.tasks.scene.evaluation import evaluating
from splatbatch.tasks.scene.merging import Done, gather
from splatbatch.tasks.scene.merging import merge as merge_parts


@dataclass(frozen=True)
class MergeOptions:
    """What is wanted of a merged scene."""

    out: Path | None = None
    """The splat; None: the output folder's own place for it."""
    allow_missing: bool = False
    clean: bool = False
    keep_uncleaned: bool = False
    """Write it without cleaning, too."""


@dataclass(frozen=True)
class MergedScene:
    """A scene that was merged just now, or found to be as it would be."""

    files: MergedFiles
    done: Done
    uncleaned: MergedFiles | None = None
    """Where it lies as it was before it was cleaned."""


def merge(batch: Batch, options: MergeOptions = MergeOptions()) -> MergedScene:
    """Merge the splats of all patches into one.

    Raises:
        SplatbatchError: they cannot be merged, or somebody trains them; nothing was written.
    """
    if options.out is not None:
        check_place(options.out, batch.output.path)
        batch.see_apart("--out", options.out, options.out.parent)
    # where nothing was ever trained there is nothing to lock, and nothing to merge
    with held_alone(batch.output, batch.terms, tell) if batch.output.path.is_dir() else nullcontext():
        return merged(batch, options)


def merged(batch: Batch, options: MergeOptions) -> MergedScene:
    """Merge the splats of all patches into one; nobody may train them meanwhile.

    Raises:
        SplatbatchError: they cannot be merged; nothing was written.
    """
    files = MergedFiles.at(options.out) if options.out else batch.output.scene.merged
    parts, cleaning, uncleaned = gather(batch, allow_missing=options.allow_missing), None, None
    if options.clean:
        cleaning = Cleaning(parts.partition, parts.with_cameras(), parts.offset)
        if options.keep_uncleaned:
            uncleaned = MergedFiles.at(files.splat.with_name(f"{files.splat.stem}-uncleaned.ply"))
            merge_parts(parts, uncleaned)
    return MergedScene(files, merge_parts(parts, files, cleaning), uncleaned)


def scene_as_merged(batch: Batch, found: Making) -> MergedScene:
    """Return the merged scene, once the task has ended that has merged it."""
    files = batch.output.scene.merged
    return MergedScene(files, Done(files.read() or Merge(), found.num_new, found.damage))


def evaluate(batch: Batch, settings: EvaluationSettings, interruption: Interruption) -> SceneEvaluation:
    """Measure a splat of the scene, and write down how good it is.

    Raises:
        SplatbatchError: it cannot be measured.
        Interrupted: somebody wants it to end.
    """
    batch.output.create()
    try:
        with held_alone(batch.output, batch.terms, tell) as beat:
            rounds = Rounds(interruption.reason, beat)
            single.make(batch.config, evaluating(batch, settings), rounds, "evaluate")
    except SplatbatchError as error:
        if not interruption.signal:
            raise
        tell(error.message)
        raise Interrupted(interruption.exit_code) from error
    return batch.output.scene.read_evaluation(Path(settings.splat)) or SceneEvaluation()


def publish(batch: Batch, splats: list[Published], wish: Wish, into: Lines | None = None) -> Publication:
    """Publish splats.

    Args:
        batch: whose they are.
        splats: that are accepted.
        wish: as what, and where.
        into: hears in a night how far it is, which waits until no other publish is at work; None: what fits stderr.

    Raises:
        SplatbatchError: some of it could not be written; the rest is there.
    """
    for warning in (warning for splat in splats for warning in splat.warnings):
        tell(f"warning: {warning}")
    with nullcontext(into) if into else open_telling() as telling:
        write = partial(publish_splats, splats, wish, batch.output.path, telling)
        return in_turn(write) if into else write()


def film(batch: Batch, names: Sequence[str], wanted: Film, kind: str, to: Path | None) -> tuple[str, Path]:
    """Make a film of a patch, or of the scene; return of what, and the file.

    Args:
        batch: whose splats.
        names: what is filmed.
        wanted: how.
        kind: as "mp4".
        to: the file, or a folder for it; None: the working folder.

    Raises:
        SplatbatchError: it cannot be made; nothing is left of it.
    """
    splats = published(batch, names)
    if len(splats) > 1:
        raise ConfigError(f"--as {kind}: one film of {len(splats)} splats", "Name a patch, or scene.")
    name = f"{splats[0].name}.{kind}"
    to = to or Path(name)
    file = to / name if to.is_dir() or not to.suffix else to
    made = replace(wanted, out=file)
    batch.see_apart("--to", file, file.parent)
    made.check(batch.output.path)
    return splats[0].name, make_film(splats[0], made, tell)


def ply(batch: Batch, names: Sequence[str], file: Path, cut: Cut, *, is_forced: bool) -> tuple[str, int]:
    """Write a splat into one file; return whose it is, and how many Gaussians have arrived.

    Raises:
        ConfigError: there are several splats.
        OutputError: it cannot be written there, or is not what was accepted.
    """
    splats = published(batch, names)
    if len(splats) > 1:
        raise ConfigError(f"--to {file}: one file for {len(splats)} splats", "Name a folder, or one patch.")
    batch.see_apart("--to", file, file.parent)
    splat = splats[0]
    check_export(file, splat.path, batch.output.path, is_forced=is_forced)
    return splat.name, export_splat(Source(splat.path, splat.name, splat.sha256), file, cut).num_gaussians
