"""What to type: for each cause the command, or the key of the YAML, that comes next. PATCH is the patch's name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from shlex import quote
from typing import Any

Step = str | Mapping[str, Any]
"""A command, or where to look; or settings to retry with."""

REMEDIES: Mapping[str, tuple[Step, ...]] = {
    "gpu_hardware_fault": ("nvidia-smi -q -d ECC,ROW_REMAPPER", "dmesg | grep -i xid"),
    "cuda_no_kernel_image": ("splatbatch doctor", "python -c 'import torch; print(torch.cuda.get_arch_list())'"),
    "cuda_driver_mismatch": ("nvidia-smi", "splatbatch doctor"),
    "cuda_busy_or_unavailable": ("nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv",),
    "cuda_init_unknown": ("sudo modprobe -r nvidia_uvm", "sudo modprobe nvidia_uvm"),
    "cuda_invalid_device": ("nvidia-smi -L", "in the YAML executor.gpus: auto"),
    "jit_build_race": ("python -c 'from gsplat.cuda._backend import _C', once before the batch",),
    "jit_lock_stale": ("find ~/.cache/torch_extensions -name lock -delete",),
    "jit_build_failed": ("splatbatch doctor", "nvcc --version", "python -c 'import torch; print(torch.version.cuda)'"),
    "missing_dependency": ("splatbatch doctor --trainers",),
    "host_oom": ({"training.workers": 2, "training.resolution": "1/2"},),
    "shm_bus_error": ("docker run --shm-size=8g (or --ipc=host)", {"training.workers": 0}),
    "disk_full": ("df -h", "df -i", "quota -s", "splatbatch clean"),
    "output_unwritable": ("ls -ld and id, for the folder that is named", "in the YAML output.folder"),
    "fd_limit": ("ulimit -n 65536, in the shell that starts the batch",),
    "process_limit": ("export OMP_NUM_THREADS=4", "ulimit -u"),
    "dataloader_worker_killed": ({"training.workers": 0},),
    "illegal_instruction": ("lscpu | grep Flags",),
    "interrupted": ("splatbatch train",),
    "lost": ("splatbatch status", "splatbatch train"),
    "time_limit": ("in the YAML limits.wall_s: 28800", {"training.max_steps": 15000}),
    "hang": ("splatbatch explain PATCH --log", "in the YAML limits.stall_s"),
    "nccl": ("NCCL_DEBUG=INFO tells more", "one GPU per patch needs no NCCL"),
    "port_in_use": ("ss -ltnp shows who holds it",),
    "no_initial_pair": (
        "splatbatch reconstruct PHOTOS --camera SIMPLE_RADIAL",
        "splatbatch reconstruct PHOTOS --pairs all",
    ),
    "missing_colmap": ("splatbatch verify-dims", "in the YAML scene.patches: the folder that holds the patches"),
    "colmap_parse": ("splatbatch verify-dims",),
    "colmap_failed": ("splatbatch reconstruct PHOTOS --pairs all",),
    "unsupported_camera_model": (
        "colmap image_undistorter --image_path images --input_path sparse/0 --output_path new",
    ),
    "corrupt_image": ("splatbatch verify-dims",),
    "missing_image": ("splatbatch verify-dims", "in the YAML scene.images: the folder of the photographs"),
    "dims_mismatch": ("splatbatch verify-dims",),
    "no_training_cameras": ("splatbatch verify-dims",),
    "repeated_image": ("splatbatch verify-dims",),
    "zero_gaussians": ("splatbatch verify-dims", {"refinement.prune_opa": 0.001, "training.seed": 7}),
    "zero_gradients": ("splatbatch verify-dims", {"training.init_scale": 1}),
    "no_densification": ({"refinement.grow_grad2d": 0.0001},),
    "nan_loss": ({"learning_rates.means": 8e-05, "training.seed": 7},),
    "tensor_limit": ({"training.cap_max": 1000000},),
    "cuda_oom": ({"training.cap_max": 500000}, {"training.resolution": "1/2"}, {"training.images": "host"}),
    "cublas_cudnn_error": ({"training.resolution": "1/2"},),
    "cuda_absurd_alloc": ({"training.kernels": "gsplat"}, "splatbatch doctor"),
    "cuda_device_assert": ("splatbatch explain PATCH --log", "splatbatch doctor"),
    "cuda_invalid_configuration": ("splatbatch verify-dims", {"training.init_scale": 0.5}),
    "cuda_illegal_access": ({"training.kernels": "gsplat"}, "dmesg | grep -i xid"),
    "cuda_launch_failure": ("dmesg | grep -i xid", {"training.kernels": "gsplat"}),
    "download_failed": ("fetch it once where there is a network, with TORCH_HOME on a disk that all share",),
    "io_error": ("dmesg | tail", "mount | grep nfs", "in the YAML scene.images: a copy on a local disk"),
    "corrupt_cache": ("delete the file that is named", "torch's lie in ~/.cache/torch/hub/checkpoints"),
    "bad_config": ("splatbatch plan", "splatbatch config show"),
    "missing_file": ("splatbatch verify-dims", "splatbatch doctor --trainers"),
    "not_started": ("splatbatch doctor --trainers",),
    "segfault": ("splatbatch doctor", {"training.workers": 0}),
    "native_abort": ("splatbatch explain PATCH --log",),
    "incomplete_artifact": ("splatbatch explain PATCH --log", "df -h"),
    "program_bug": ("splatbatch explain PATCH --log", "splatbatch doctor"),
    "unknown": ("splatbatch explain PATCH --log",),
}
"""By cause; what is tried first stands first."""


def for_patch(advice: str, patch: str) -> str:
    """Return advice with the name of its patch, as a shell takes it."""
    return re.sub(r"\b(retry|explain) PATCH\b", lambda match: f"{match[1]} {quote(patch)}", advice)


def typed(step: Step) -> str:
    """Return what to type for a step."""
    if isinstance(step, str):
        return step
    return f"splatbatch retry PATCH {' '.join(f'--set {key}={spelt(value)}' for key, value in step.items())}"


def spelt(value: Any) -> str:
    """Return the value of a setting as --set takes it."""
    return f"{value:g}" if isinstance(value, float) else "none" if value is None else str(value)
