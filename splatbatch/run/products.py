"""Products of accepted splats: the merged scene, publications and films, made by a command or in a follow-up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from splatbatch.errors import ConfigError
from splatbatch.monitor.messages import PipeWriter, print_err
from splatbatch.output.folders import MergedFiles
from splatbatch.output.records.merge import MergeOutput
from splatbatch.output.records.publication import Publication, PublishOutput
from splatbatch.run.follow_ups import by_hand
from splatbatch.scheduler.work.exclusive_output import in_turn
from splatbatch.splats.export import ExportOptions, export_splat
from splatbatch.splats.export import check_place as check_export
from splatbatch.splats.merge import check_place
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.scene.clean import CleaningRules
from splatbatch.tasks.scene.merge import gather
from splatbatch.tasks.scene.merge import merge as merge_parts

if TYPE_CHECKING:
    from splatbatch.publish.film import Film


def merge(
    batch: Batch,
    out: Path | None = None,
    *,
    allow_missing: bool = False,
    clean: bool = False,
) -> MergeOutput:
    """Merge the splats of all patches into one; return the record of the merge.

    Args:
        batch: the batch with the patches.
        out: file for the merged splat; None: its place in the output folder.
        allow_missing: whether patches may be missing, which leaves holes.
        clean: whether invisible, oversized and floating Gaussians are left out.

    Raises:
        SplatbatchError: the splats cannot be merged, or a training runs; no splat is written.
        Interrupted: a signal ended the merge.
        OSError: the claim of the output folder cannot be made.
    """
    if out is not None:
        check_place(out, batch.output.path)
        batch.check_apart("--out", out, out.parent)
    if not batch.output.path.is_dir():
        gather(batch, allow_missing=allow_missing)  # raises: nothing was trained yet
    with by_hand(batch, alone=True) as finished:
        return finished.merge(allow_missing=allow_missing, clean=clean, out=out)


def merge_here(batch: Batch, out: Path | None, *, allow_missing: bool, clean: bool) -> MergeOutput:
    """Merge in this process; used by the command `merge` in the process of its attempt.

    A merged splat that is up to date stays as it is. The arguments are those of `merge`.

    Raises:
        SplatbatchError: the splats cannot be merged.
    """
    files = MergedFiles.at(out) if out else batch.output.scene.merged
    parts = gather(batch, allow_missing=allow_missing)
    cleaning = CleaningRules(parts.partition, parts.with_cameras(), parts.offset) if clean else None
    done, damage = merge_parts(parts, files, cleaning, partial(PipeWriter().advance, "merge"))
    if damage:
        print_err(f"warning: {damage}: merged again")
    return done


def publish_here(  # noqa: PLR0913 - the options of `publish`
    batch: Batch,
    names: Sequence[str],
    to: Path | None,
    formats: str,
    *,
    forced: bool,
    measured: bool,
    cut: ExportOptions,
) -> PublishOutput:
    """Publish in this process; used by the command `publish` in the process of its attempt.

    Waits, for half an hour at most, until no other publish writes into the folder. Outputs that have not changed are
    not written again. Returned are all outputs in the folder.

    Raises:
        SplatbatchError: an output could not be written; the others are written. Nothing is written if a format is
            unknown, a splat is not valid, or the folder stays in use or holds foreign files.
    """
    from splatbatch.publish.publish import PublishRequest
    from splatbatch.publish.publish import publish as write
    from splatbatch.publish.source import published

    request = PublishRequest.of(batch, to, formats, forced=forced)
    request = replace(request, cut=cut, is_measured=request.is_measured and measured)
    splats = published(batch, names)
    for warning in (warning for splat in splats for warning in splat.warnings):
        print_err(f"warning: {warning}")
    in_turn(partial(write, splats, request, batch.output.path, PipeWriter()))
    folder = request.target.folder
    return PublishOutput(**vars(Publication.of(folder) or Publication()), folder=str(folder))


def film(batch: Batch, names: Sequence[str], wanted: Film, kind: str, to: Path | None) -> tuple[str, Path]:
    """Make a film of a patch, or of the scene; return the name of the splat, and the file.

    Without ffmpeg the file is a .gif.

    Args:
        batch: the batch with the splats.
        names: the patch to film, or "scene"; empty: the merged scene, or the only patch.
        wanted: settings of the film.
        kind: format, as "mp4".
        to: the file, or a folder for it; None: the working folder.

    Raises:
        SplatbatchError: the film cannot be made; no file is left behind.
    """
    from splatbatch.publish.film import make_film
    from splatbatch.publish.source import published

    splats = published(batch, names)
    if len(splats) > 1:
        raise ConfigError(
            f"--as {kind}: a film shows one splat, but {len(splats)} are selected", "Name one patch, or `scene`."
        )
    name = f"{splats[0].name}.{kind}"
    to = to or Path(name)
    file = to / name if to.is_dir() or not to.suffix else to
    made = replace(wanted, out=file)
    batch.check_apart("--to", file, file.parent)
    made.check(batch.output.path)
    return splats[0].name, make_film(splats[0], made, print_err)


def ply(batch: Batch, names: Sequence[str], file: Path, cut: ExportOptions, *, is_forced: bool) -> tuple[str, int]:
    """Export one splat as a PLY file; return its name, and the number of Gaussians written.

    Args:
        batch: the batch with the splats.
        names: the patch, or "scene"; empty: the merged scene, or the only patch.
        file: the file to write.
        cut: what the file leaves out.
        is_forced: whether an existing file that splatbatch did not write may be replaced.

    Raises:
        ConfigError: several splats are named, or a patch does not exist.
        SceneError: the scene is named, but its partition or a model cannot be read or does not fit the patches.
        OutputError: the file cannot be written, or the splat is missing, stale, or differs from the accepted one.
    """
    from splatbatch.publish.source import published

    splats = published(batch, names)
    if len(splats) > 1:
        raise ConfigError(f"--to {file}: one file cannot hold {len(splats)} splats", "Name a folder, or one patch.")
    batch.check_apart("--to", file, file.parent)
    splat = splats[0]
    check_export(file, splat.path, batch.output.path, is_forced=is_forced)
    return splat.name, export_splat(splat.path, splat.name, file, cut).num_gaussians
