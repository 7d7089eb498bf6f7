"""Words that hint at a family of failures, for messages that nobody has written down; no hint asks for a retry."""

from __future__ import annotations

from splatbatch.failures.row import Row, Words

HINTS = (
    Row(
        "cuda_oom",
        "degrade",
        "Memory ran out, most likely the GPU's: keep images on the CPU, cap the Gaussians, or lower the resolution.",
        Words(r"out of memory|(insufficient|not enough)[^\n]{0,20} (memory|VRAM)|memory allocation failed"),
        also=Words(r"cuda|gpu|vram|vulkan|device"),
        strength="hint",
    ),
    Row(
        "host_oom",
        "degrade",
        "Memory ran out: fewer loader workers, fewer images in memory, or lower resolution.",
        Words(r"out of memory|(insufficient|not enough)[^\n]{0,20} memory|memory allocation failed"),
        strength="hint",
    ),
    Row(
        "tensor_limit",
        "degrade",
        "A count is too large for the trainer: cap the Gaussians, or lower the resolution.",
        Words(r"exceeds? (the )?(int|32[- ]bit|INT_MAX)|integer out of range|too many (gaussians|splats)"),
        strength="hint",
    ),
    Row(
        "zero_gaussians",
        "fail",
        "There are no Gaussians to train: check the point cloud, poses and scale.",
        Words(r"\b(empty|zero|no|0) (valid |visible |initial )?(gaussians?|points|splats|primitives|point cloud)\b"),
        midrun="degrade",
        strength="hint",
    ),
    Row(
        "unsupported_camera_model",
        "fail",
        "The trainer cannot use these cameras: undistort to PINHOLE first.",
        Words(
            r"PINHOLE (camera )?model|(distortion|distorted|fisheye)[^\n]*(not supported|unsupported|cannot|must be)"
        ),
        strength="hint",
    ),
    Row(
        "no_training_cameras",
        "fail",
        "There is nothing to train on: merge the patch with its neighbour, or leave it out.",
        Words(
            r"\b(empty|zero|no|0) (valid |registered )?(training|train|dataset|cameras|frames|views)\b",
            r"(dataset|train set|training set)[^\n]{0,20} (is|be) empty",
        ),
        strength="hint",
    ),
    Row(
        "missing_colmap",
        "fail",
        "The folder holds no COLMAP model that can be read: give the one with sparse/ and images/.",
        Words(
            r"(invalid|no valid|failed to load|cannot find|could not find)[^\n]{0,20} (colmap|sparse|scene|dataset)",
            r"\b(colmap|sparse)\b[^\n]{0,60}\b(contains no|has no|is empty)\b",
        ),
        strength="hint",
    ),
    Row(
        "colmap_parse",
        "fail",
        "A file of the scene is malformed: export it again.",
        Words(r"(invalid|corrupt\w*|malformed|failed to parse)[^\n]{0,40}(cameras|points3D|ply|transforms|json)\b"),
        strength="hint",
    ),
    Row(
        "corrupt_image",
        "fail",
        "A photograph seems to be damaged: replace it.",
        Words(r"(corrupt\w*|damaged|invalid)[^\n]{0,20} (image|jpe?g|png)|(image|jpe?g|png)[^\n]{0,20} corrupt"),
        strength="hint",
    ),
    Row(
        "dims_mismatch",
        "fail",
        "Two things of different size meet: run verify-dims.",
        Words(
            r"(shape|size|dimension|resolution)s?\b[^\n]{0,80} "
            r"(mismatch|do(es)? ?n[o']t match|must (match|be equal)|differ)"
        ),
        strength="hint",
    ),
    Row(
        "cuda_driver_mismatch",
        "fail",
        "The driver of the GPU does not fit: update it or reboot.",
        Words(r"driver[^\n]{0,40}(too old|outdated|mismatch|not (found|loaded|running))"),
        strength="hint",
    ),
    Row(
        "jit_build_failed",
        "fail",
        "Something does not compile: mend compiler and CUDA toolkit, or install a prebuilt wheel.",
        Words(r"compil(e|ation|ing)[^\n]{0,20} (fail|error)|failed to (build|compile)"),
        strength="hint",
    ),
    Row(
        "missing_dependency",
        "fail",
        "A package is missing or of another version: install what the trainer asks for.",
        Words(r"not installed|please install|(version|api)[^\n]{0,20} (mismatch|conflict|incompatible)"),
        strength="hint",
    ),
    Row(
        "port_in_use",
        "degrade",
        "A port is taken: use another one, or no viewer.",
        Words(r"\bport\b[^\n]{0,30}(in use|taken|occupied|unavailable)|(failed to bind|bind failed|could not bind)"),
        strength="hint",
    ),
    Row(
        "bad_config",
        "fail",
        "A setting is wrong: correct it.",
        Words(
            r"(invalid|unknown|unrecogni[sz]ed|missing)( required)? (argument|option|config|parameter|flag|setting)",
            r"\bmust be one of\b|\bchoose from\b|\bvalid (values|options|choices)\b",
            r"(\s|['\"`])--[a-z][\w-]+['\"`]? (must|should|cannot|can't|needs?|requires)\b",
        ),
        strength="hint",
    ),
)
