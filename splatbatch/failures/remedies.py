"""What to type: for each cause the command, or the key of the YAML, that comes next. PATCH is the patch's name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from shlex import quote

_RETRY = "splatbatch retry PATCH --set"

REMEDIES: Mapping[str, str] = {
    "gpu_hardware_fault": "nvidia-smi -q -d ECC,ROW_REMAPPER; dmesg | grep -i xid",
    "cuda_no_kernel_image": "splatbatch doctor; python -c 'import torch; print(torch.cuda.get_arch_list())'",
    "cuda_driver_mismatch": "nvidia-smi; splatbatch doctor",
    "cuda_busy_or_unavailable": "nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv",
    "cuda_init_unknown": "sudo modprobe -r nvidia_uvm; sudo modprobe nvidia_uvm",
    "cuda_invalid_device": "nvidia-smi -L; in the YAML executor.gpus: auto",
    "jit_build_race": "python -c 'from gsplat.cuda._backend import _C', once before the batch",
    "jit_lock_stale": "find ~/.cache/torch_extensions -name lock -delete",
    "jit_build_failed": "splatbatch doctor; nvcc --version; python -c 'import torch; print(torch.version.cuda)'",
    "missing_dependency": "splatbatch doctor --trainers",
    "host_oom": f"{_RETRY} training.workers=2 --set training.resolution=1/2",
    "shm_bus_error": f"docker run --shm-size=8g (or --ipc=host); {_RETRY} training.workers=0",
    "disk_full": "df -h; df -i; quota -s; splatbatch clean",
    "output_unwritable": "ls -ld and id, for the folder that is named; in the YAML output.folder",
    "fd_limit": "ulimit -n 65536, in the shell that starts the batch",
    "process_limit": "export OMP_NUM_THREADS=4; ulimit -u",
    "dataloader_worker_killed": f"{_RETRY} training.workers=0",
    "illegal_instruction": "lscpu | grep Flags",
    "interrupted": "splatbatch train",
    "lost": "splatbatch status; splatbatch train",
    "time_limit": f"in the YAML limits.wall_s: 28800; or {_RETRY} training.max_steps=15000",
    "hang": "splatbatch explain PATCH --log; in the YAML limits.stall_s",
    "nccl": "NCCL_DEBUG=INFO tells more; one GPU per patch needs no NCCL",
    "port_in_use": "ss -ltnp shows who holds it",
    "missing_colmap": "splatbatch verify-dims; in the YAML scene.patches: the folder that holds the patches",
    "colmap_parse": "splatbatch verify-dims",
    "colmap_failed": "colmap mapper once more, after colmap exhaustive_matcher",
    "unsupported_camera_model": "colmap image_undistorter --image_path images --input_path sparse/0 --output_path new",
    "corrupt_image": "splatbatch verify-dims",
    "missing_image": "splatbatch verify-dims; in the YAML scene.images: the folder of the photographs",
    "dims_mismatch": "splatbatch verify-dims",
    "no_training_cameras": "splatbatch verify-dims",
    "repeated_image": "splatbatch verify-dims",
    "zero_gaussians": f"splatbatch verify-dims; {_RETRY} refinement.prune_opa=0.001 --set training.seed=7",
    "zero_gradients": f"splatbatch verify-dims; {_RETRY} training.init_scale=1",
    "no_densification": f"{_RETRY} refinement.grow_grad2d=0.0001",
    "nan_loss": f"{_RETRY} learning_rates.means=8e-5 --set training.seed=7",
    "tensor_limit": f"{_RETRY} training.cap_max=1000000",
    "cuda_oom": f"{_RETRY} training.cap_max=500000 (or training.resolution=1/2, training.images=host)",
    "cublas_cudnn_error": f"{_RETRY} training.resolution=1/2",
    "cuda_absurd_alloc": f"{_RETRY} training.kernels=plain; splatbatch doctor",
    "cuda_device_assert": "CUDA_LAUNCH_BLOCKING=1 splatbatch retry PATCH",
    "cuda_invalid_configuration": f"splatbatch verify-dims; {_RETRY} training.init_scale=0.5",
    "cuda_illegal_access": f"{_RETRY} training.kernels=plain; dmesg | grep -i xid",
    "cuda_launch_failure": f"dmesg | grep -i xid; {_RETRY} training.kernels=plain",
    "download_failed": "fetch it once where there is a network, with TORCH_HOME on a disk that all share",
    "io_error": "dmesg | tail; mount | grep nfs; in the YAML scene.images: a copy on a local disk",
    "corrupt_cache": "delete the file that is named; torch's lie in ~/.cache/torch/hub/checkpoints",
    "bad_config": "splatbatch plan; splatbatch config show",
    "missing_file": "splatbatch verify-dims; splatbatch doctor --trainers",
    "not_started": "splatbatch doctor --trainers",
    "segfault": f"splatbatch doctor; {_RETRY} training.workers=0",
    "native_abort": "splatbatch explain PATCH --log",
    "incomplete_artifact": "splatbatch explain PATCH --log; df -h",
    "program_bug": "splatbatch explain PATCH --log; splatbatch doctor",
    "unknown": "splatbatch explain PATCH --log",
}


def for_patch(advice: str, patch: str) -> str:
    """Return advice with the name of its patch, as a shell takes it."""
    return re.sub(r"\b(retry|explain) PATCH\b", lambda match: f"{match[1]} {quote(patch)}", advice)


def with_remedy(cause: str, advice: str) -> str:
    """Return advice with what to type."""
    if "(artifact.finished_after_s)" in advice:  # the program was ended by that, not by limits.stall_s
        return f"{advice} Try: splatbatch explain PATCH --log"
    remedy = REMEDIES.get(cause)
    return f"{advice} Try: {remedy}" if remedy else advice
