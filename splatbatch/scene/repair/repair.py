"""Corrected copies of the models, all or none: never in place, never a photograph, and refused where no K is honest."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from splatbatch.errors import SceneError
from splatbatch.scene.audit.audit import SOURCE, Audit, source_patch
from splatbatch.scene.audit.size import CameraRow
from splatbatch.scene.colmap.edit import write_changed
from splatbatch.scene.colmap.reconstruction import Reconstruction, read_reconstruction
from splatbatch.scene.colmap.types import CAMERA_MODELS
from splatbatch.scene.patches import Patch
from splatbatch.scene.photos.folders import is_folder
from splatbatch.scene.repair.camera_change import Change, How, Refusal, change_camera
from splatbatch.scene.reprojection import ReprojectionError, reprojection_error

_BLOCKING = frozenset(
    {"missing_model", "corrupt_model", "bad_camera_size", "params_count", "bad_params", "mixed_sizes", "transposed"}
)


@dataclass(frozen=True)
class Repaired:
    """A corrected copy: what changed, and the mean reprojection error before and after, each in its own pixels."""

    patch: str
    sparse: Path
    changes: tuple[Change, ...]
    before: ReprojectionError | None
    after: ReprojectionError | None

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


@dataclass(frozen=True)
class _Plan:
    patch: Patch
    model: Reconstruction
    changes: dict[int, Change]


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
            write_changed(plan.patch.sparse, plan.model.cameras, plan.changes, folder / "sparse/0")
            _link_photographs(plan.patch, folder)
        errors = [
            (reprojection_error(plan.model), _error_after(aside / plan.patch.name / "sparse/0")) for plan in plans
        ]
    return tuple(
        Repaired(plan.patch.name, out / plan.patch.name / "sparse/0", tuple(plan.changes.values()), before, after)
        for plan, (before, after) in zip(plans, errors, strict=True)
    )


def _plan(audit: Audit, patches: Sequence[Patch], how: How) -> list[_Plan]:
    names = [patch.name for patch in patches]
    reasons = [
        f"{finding.patch}: {finding.subject}: {finding.message} → {finding.remedy}"
        for finding in audit.findings
        if finding.patch in names and finding.kind in _BLOCKING
    ]
    if len(set(names)) < len(names):
        reasons.append(f"two models share a name: {', '.join(names)} → rename a patch ({SOURCE} is the source)")
    plans = [] if reasons else [_plan_one(audit, patch, how, reasons) for patch in patches]
    if reasons:
        raise SceneError(
            "cannot be repaired honestly, nothing was written:\n  " + "\n  ".join(reasons),
            "Mend these first, or leave the patch out with --patch.",
        )
    return plans


def _plan_one(audit: Audit, patch: Patch, how: How, reasons: list[str]) -> _Plan:
    """Return the plan for one model; what speaks against it is added to `reasons`."""
    model = read_reconstruction(patch.sparse)
    changes = {}
    for row in audit.rows:
        if row.patch != patch.name:
            continue
        change = _change(row, model, how)
        if isinstance(change, Refusal):
            reasons.append(f"{patch.name}: {change.what} → {change.remedy}")
        elif change.moves_pixels:
            changes[row.camera_id] = change
    return _Plan(patch, model, changes)


def _change(row: CameraRow, model: Reconstruction, how: How) -> Change | Refusal:
    if not row.sizes:
        return Refusal(f"camera {row.camera_id}: none of its photographs can be read", "Bring the photographs back.")
    if row.model not in CAMERA_MODELS:
        return Refusal(f"camera {row.camera_id}: unknown camera model {row.model}", "Undistort the reconstruction.")
    return change_camera(model.cameras[row.camera_id], row.sizes[0][0], how)


def _error_after(sparse: Path) -> ReprojectionError | None:
    return reprojection_error(read_reconstruction(sparse))


def _link_photographs(patch: Patch, folder: Path) -> None:
    """Let a patch that keeps its photographs beside its model find them from the copy too."""
    if is_folder(patch.images) and patch.images.resolve().parent in patch.sparse.resolve().parents[:2]:
        (folder / patch.images.name).symlink_to(patch.images.resolve(), target_is_directory=True)


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
