"""Corrected copies are audited before they are handed out: by sizes, and by points and keypoints that did not move."""

from __future__ import annotations

from collections.abc import Sequence

from splatbatch.errors import SceneError
from splatbatch.scene.audit.audit import Audit, audit_patches
from splatbatch.scene.audit.findings import TrainerRules
from splatbatch.scene.colmap.types import CAMERA_MODELS
from splatbatch.scene.patches import Patch

_OF_SIZE = frozenset(
    {"scaled", "few_pixels_off", "other_size", "mixed_sizes", "k_left_behind", "size_alone", "k_rescaled"}
)
"""Errors that a repair is there for: a copy that still has them is none."""
_OF_GEOMETRY = frozenset(
    {
        "inverted_poses", "flipped_axes", "quaternion_order", "poses_exchanged", "points_moved", "points_mismatch",
        "cameras_exchanged", "focal_off", "principal_point_off", "wrong_k", "half_applied", "turned", "mirrored",
        "distortion_dropped", "distortion_kept", "wrong_lens",
    }
)  # fmt: skip
BLOCKING = _OF_GEOMETRY | {
    "missing_model", "corrupt_model", "bad_camera_size", "params_count", "bad_params", "transposed",
}  # fmt: skip
"""Errors of an original that no change of sizes mends."""
_NEW = _OF_GEOMETRY | {"unlike_ratios", "principal_point_outside", "reprojection", "wrong_pose"}
"""Errors that a copy must not have unless its original has them."""
_MOST = 8


def verify_copies(audit: Audit, copies: Sequence[Patch]) -> None:
    """See that no copy has an error of sizes, and none of geometry that its original did not have.

    Raises:
        SceneError: one has; the repair would make it worse.
    """
    rules = TrainerRules(False, frozenset(CAMERA_MODELS), audit.trainer)
    had = {(finding.patch, finding.kind) for finding in audit.errors()}
    wrong = [
        f"{one.patch}: {one.subject}: {one.message}"
        for one in audit_patches(copies, None, rules).errors()
        if one.kind in _OF_SIZE or (one.kind in _NEW and (one.patch, one.kind) not in had)
    ]
    if wrong:
        raise SceneError(
            "the corrected copy would not be right, nothing was written:\n  " + "\n  ".join(wrong[:_MOST]),
            "Try the other of scale and crop, or use the photographs that the model was made from.",
        )
