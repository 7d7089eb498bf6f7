"""Corrected copies of the models, all or none: never in place, never a photograph, and refused where no K is honest."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from splatbatch.errors import SceneError
from splatbatch.files import Record
from splatbatch.scene.audit.audit import SOURCE, Audit, source_patch
from splatbatch.scene.colmap.edit import write_changed
from splatbatch.scene.colmap.reconstruction import read_reconstruction
from splatbatch.scene.partition.place import PATCH
from splatbatch.scene.partition.record import read_partition, write_partition
from splatbatch.scene.patches import Patch
from splatbatch.scene.photos.folders import is_folder
from splatbatch.scene.repair.camera_change import Change, How
from splatbatch.scene.repair.centre import centre_missed_by
from splatbatch.scene.repair.plan import Plan, plan_model
from splatbatch.scene.repair.verify import BLOCKING, verify_copies
from splatbatch.scene.reprojection import ReprojectionError, reprojection_error


@dataclass(frozen=True)
class Repaired:
    """A corrected copy: what changed, and the mean reprojection error before and after, each in its own pixels."""

    patch: str
    sparse: Path
    changes: tuple[Change, ...]
    before: ReprojectionError | None
    after: ReprojectionError | None

    def to_record(self) -> Record:
        """Return the JSON form."""
        return {
            "patch": self.patch,
            "sparse": str(self.sparse),
            "changes": [
                {"camera_id": one.before.id, "words": one.in_words(), **asdict(one)} for one in self.changes
            ],
            "error_before_px": self.before.mean_px if self.before else None,
            "error_after_px": self.after.mean_px if self.after else None,
        }  # fmt: skip

    def in_words(self) -> str:
        """Return what was written where, each change on a line, and the reprojection errors."""
        lines = [f"{self.patch}: {self.sparse}"]
        lines += [f"  {change.in_words()}" for change in self.changes] or ["  copied, nothing to change"]
        if self.before and self.after:
            errors = f"{self.before.mean_px:.4g} px before, {self.after.mean_px:.4g} px after"
            lines.append(f"  mean reprojection error {errors} ({self.after.num_observations} observations)")
        else:
            lines.append("  no keypoint has a 3D point: no reprojection error")
        return "\n".join(lines)


def fix_models(
    audit: Audit, patches: Sequence[Patch], source: Path | None, how: How, out: Path
) -> tuple[Repaired, ...]:
    """Write a corrected copy of every patch to out/<patch>/sparse/0, and of the source to out/source/sparse/0.

    Returns nothing, and writes nothing, if every photograph fits its camera. A failure leaves nothing behind.

    Raises:
        SceneError: `out` is not empty, or a model cannot be repaired honestly; all reasons are listed.
    """
    _refuse_occupied(out)
    everyone = [*patches, *([source_patch(source, patches)] if source else [])]
    plans = _plan(audit, everyone, how)
    if not any(plan.changes for plan in plans):
        return ()
    with _written_aside(out) as aside:
        for plan in plans:
            folder = aside / plan.patch.name
            write_changed(plan.patch.sparse, plan.model.cameras, plan.of_image, folder / "sparse/0")
            _link_photographs(plan.patch, aside)
        _carry_partition(plans, aside, out)
        _verify_crops(plans, aside)
        verify_copies(audit, [replace(plan.patch, sparse=aside / plan.patch.name / "sparse/0") for plan in plans])
        errors = [
            (reprojection_error(plan.model), _error_after(aside / plan.patch.name / "sparse/0")) for plan in plans
        ]
    return tuple(
        Repaired(plan.patch.name, out / plan.patch.name / "sparse/0", plan.changes, before, after)
        for plan, (before, after) in zip(plans, errors, strict=True)
    )


def _plan(audit: Audit, patches: Sequence[Patch], how: How) -> list[Plan]:
    names = [patch.name for patch in patches]
    reasons = [
        f"{finding.patch}: {finding.subject}: {finding.message} → {finding.remedy}"
        for finding in audit.findings
        if finding.patch in names and finding.kind in BLOCKING
    ]
    if len(set(names)) < len(names):
        reasons.append(f"two models share a name: {', '.join(names)} → rename a patch ({SOURCE} is the source)")
    plans = []
    if not reasons:
        cameras = {name: [row.camera_id for row in audit.rows if row.patch == name] for name in names}
        plans = [plan_model(patch, cameras[patch.name], how, reasons) for patch in patches]
    if reasons:
        raise SceneError(
            "cannot be repaired honestly, nothing was written:\n  " + "\n  ".join(reasons),
            "Mend these first, or leave the patch out with --patch.",
        )
    return plans


def _verify_crops(plans: Sequence[Plan], aside: Path) -> None:
    """See that photographs show what lies about the centre, where they and the colours of points can tell.

    Raises:
        SceneError: they were cropped elsewhere.
    """
    for plan in plans:
        cut = [np.abs(change.shift) for change in plan.changes if change.shift != (0.0, 0.0)]
        copy = replace(plan.patch, sparse=aside / plan.patch.name / "sparse/0")
        missed = centre_missed_by(copy, np.max(cut, axis=0)) if cut else None
        if missed:
            x, y = missed
            raise SceneError(
                f"{plan.patch.name}: the photographs were not cropped about the centre: they show their points"
                f" ({x:+d}, {y:+d}) px from there; nothing was written",
                "Crop the originals about the centre, or cut K where the model is made.",
            )


def _error_after(sparse: Path) -> ReprojectionError | None:
    return reprojection_error(read_reconstruction(sparse))


def _link_photographs(patch: Patch, aside: Path) -> None:
    """Let the copies find photographs and masks as the models do: beside one model, or beside all of them."""
    is_own = patch.images.resolve().parent in patch.sparse.resolve().parents[:2]
    place = aside / patch.name if is_own else aside
    beside = [patch.images.with_name(f"{patch.images.name}{end}") for end in ("", "_2", "_4", "_8")]
    for path in [*beside, *([patch.masks] if patch.masks else [])]:
        name = path.name if is_own else path.name.replace(patch.images.name, "images")
        if is_folder(path) and not (place / name).exists():
            (place / name).symlink_to(path.resolve(), target_is_directory=True)


def _carry_partition(plans: Sequence[Plan], aside: Path, out: Path) -> None:
    """Let the copies be patches of the partition that the models were cut by: their cores and hold-out are the same."""
    path = next((plan.patch.partition for plan in plans if plan.patch.partition), None)
    if path is None:
        return
    has_source = any(plan.patch.name == SOURCE for plan in plans)
    known = read_partition(path)
    source = out / SOURCE / "sparse/0" if has_source else known.source
    write_partition(replace(known, path=aside / path.name, source=source), home=out)
    for plan in plans:
        record = path.parent / plan.patch.name / PATCH
        if record.is_file():
            shutil.copyfile(record, aside / plan.patch.name / PATCH)


def _refuse_occupied(out: Path) -> None:
    try:
        is_occupied = any(out.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        raise SceneError(f"--out {out}: {error.strerror}", "Name a folder that does not exist yet.") from error
    if is_occupied:
        raise SceneError(f"--out {out}: the folder is not empty", "Name a folder that does not exist yet.")


@contextmanager
def _written_aside(out: Path) -> Iterator[Path]:
    """Give a folder on the same file system that becomes `out` if all goes well, and vanishes if not."""
    home = next(parent for parent in out.absolute().parents if parent.is_dir())
    aside = home / f".{out.name}.{os.getpid()}"
    try:
        aside.mkdir()
        yield aside
        out.parent.mkdir(parents=True, exist_ok=True)
        aside.rename(out)
    except OSError as error:
        raise SceneError(f"--out {out}: cannot be written ({error.strerror})", "Nothing was written.") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
