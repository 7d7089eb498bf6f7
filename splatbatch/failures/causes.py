"""The causes of failed attempts: title, steps to try, suspect settings, and how each cause is retried.

The user reads one text, which `failures/advice.py` joins: the `advice` of the signature that matched (or of the exit),
then " Try: " and the `steps` of the cause. Steps are left out if that advice has a " Try: " of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from splatbatch.config import LadderName

Step = str | Mapping[str, Any]
"""One thing to try: text (a command, or where to look), or a mapping of settings to retry with.

PATCH in a text stands for the name of the patch.
"""

# Settings that may be to blame for a cause, as regular expressions of their full names.
PROGRAM = r"setting\..*"
"""Regular expression of the settings of an external trainer; they may lead to any cause."""
WHICH_TRAINER = rf"{PROGRAM}|training\.trainer|evaluation\.holdout_list"
NUMERICS = rf"{PROGRAM}|learning_rates\..*|training\.(init_\w+|strategy|max_steps)|refinement\..*"
GROWTH = rf"{PROGRAM}|refinement\.(grow_grad2d|prune_opa|refine_stop_iter)|training\.coarse_to_fine"
SIZES = r"training\.(cap_max|resolution|images|sh_degree|max_steps)"
LOADING = r"training\.(workers|images|resolution)"
DURATION = rf"{PROGRAM}|training\.(max_steps|cap_max|resolution|device|kernels)"


@dataclass(frozen=True)
class FailureCause:
    """A cause of failures and how it is treated.

    The defaults hold for a cause that only a user's own file of signatures names.
    """

    title: str
    """The cause in words, as status and reports show it."""
    steps: tuple[Step, ...] = ()
    """Steps to try, the most promising first; shown after the advice of the signature. (): none."""
    suspects: str = PROGRAM
    """Regular expression of the settings that may be to blame if a patch sets them differently; empty: none."""
    suspects_if_larger: str = ""
    """Regular expression of the settings that may be to blame only if the patch's value is larger than usual; empty:
    none."""
    lies_in: Literal["patch", "settings", "machine or settings", "machine", "moment"] = "patch"
    """Where the fault lies; "moment": outside the patch, and gone at another time."""
    ladder: LadderName | None = None
    """The ladder of `retry.ladders` from which changed settings are taken for a retry; None: no changed settings
    help."""
    times: int = 1
    """Largest number of retries with the same settings; see `may_repeat`."""
    patience: float = 1.0
    """Factor on the wait before a retry, for causes that need longer to pass."""
    may_repeat: bool = False
    """Whether the same failure twice in one phase may still be chance, as with a lost node.

    If False, a second failure with the same settings counts as deterministic."""
    passes: bool = False
    """Whether waiting cures a failure whose diagnosis has the action `retry`, as a busy GPU.

    Such a failure does not count against `retry.max_attempts` until an hour of waits is over."""

    @property
    def stops_batch(self) -> bool:
        """Whether every further patch would fail the same way, since the fault lies in the machine or the settings."""
        return self.lies_in not in {"patch", "moment"}

    @property
    def may_do_elsewhere(self) -> bool:
        """Whether the task may succeed on another machine, since the fault does not lie in the patch.

        A cause of the moment counts only if it passes by itself.
        """
        return self.stops_batch or (self.passes and self.lies_in != "patch")


# Every cause that this program diagnoses, by its name; the names are part of docs, ledgers and signatures.toml.
CAUSES: Mapping[str, FailureCause] = {
    "audit": FailureCause("the audit found errors"),
    "bad_config": FailureCause(
        "a setting is wrong", ("splatbatch plan", "splatbatch config show"), suspects=WHICH_TRAINER, lies_in="settings"
    ),
    "colmap_failed": FailureCause("COLMAP failed", ("splatbatch reconstruct PHOTOS --pairs all",)),
    "colmap_parse": FailureCause("the reconstruction cannot be read", ("splatbatch verify-dims",)),
    "corrupt_cache": FailureCause(
        "a cached file is damaged",
        ("delete the file that the log names", "torch keeps downloaded files in ~/.cache/torch/hub/checkpoints"),
        lies_in="moment",
    ),
    "corrupt_image": FailureCause("a photograph is damaged", ("splatbatch verify-dims",)),
    "cublas_cudnn_error": FailureCause(
        "a GPU library failed",
        ({"training.resolution": "1/2"},),
        suspects=GROWTH,
        suspects_if_larger=SIZES,
        ladder="gpu_memory",
    ),
    "cuda_absurd_alloc": FailureCause(
        "an impossible GPU memory request",
        ({"training.kernels": "gsplat"}, "splatbatch doctor"),
        suspects=f"{NUMERICS}|{GROWTH}",
        suspects_if_larger=SIZES,
        ladder="gpu_memory",
    ),
    "cuda_busy_or_unavailable": FailureCause(
        "the GPU was busy",
        ("nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv",),
        suspects="",
        lies_in="moment",
        passes=True,
        patience=3,
    ),
    "cuda_device_assert": FailureCause(
        "an index on the GPU was out of range", ("splatbatch explain PATCH --log", "splatbatch doctor")
    ),
    "cuda_driver_mismatch": FailureCause(
        "the NVIDIA driver is missing, too old or half updated", ("nvidia-smi", "splatbatch doctor"), lies_in="machine"
    ),
    "cuda_illegal_access": FailureCause(
        "illegal GPU memory access", ({"training.kernels": "gsplat"}, "dmesg | grep -i xid"), suspects=NUMERICS
    ),
    "cuda_init_unknown": FailureCause(
        "CUDA did not start", ("sudo modprobe -r nvidia_uvm", "sudo modprobe nvidia_uvm"), lies_in="moment", patience=6
    ),
    "cuda_invalid_configuration": FailureCause(
        "a GPU kernel had no Gaussians to work on",
        ("splatbatch verify-dims", {"training.init_scale": 0.5}),
        suspects=NUMERICS,
        ladder="numerics",
    ),
    "cuda_invalid_device": FailureCause(
        "no such GPU",
        ("nvidia-smi -L", "set executor.gpus: auto in the YAML"),
        suspects=rf"{PROGRAM}|training\.device",
        lies_in="machine",
    ),
    "cuda_launch_failure": FailureCause(
        "the GPU stopped answering", ("dmesg | grep -i xid", {"training.kernels": "gsplat"})
    ),
    "cuda_no_kernel_image": FailureCause(
        "the program is not built for this GPU",
        ("splatbatch doctor", "python -c 'import torch; print(torch.cuda.get_arch_list())'"),
        lies_in="machine",
    ),
    "cuda_oom": FailureCause(
        "GPU memory ran out",
        ({"training.cap_max": 500000}, {"training.resolution": "1/2"}, {"training.images": "host"}),
        suspects=GROWTH,
        suspects_if_larger=SIZES,
        ladder="gpu_memory",
        passes=True,  # it is diagnosed with `retry` where other processes hold most of the GPU
    ),
    "dataloader_worker_killed": FailureCause(
        "a process that loads photographs was killed",
        ({"training.workers": 0},),
        suspects_if_larger=LOADING,
        lies_in="moment",
        ladder="host_memory",
    ),
    "dims_mismatch": FailureCause("photographs and cameras differ in size", ("splatbatch verify-dims",)),
    "disk_full": FailureCause(
        "the disk is full",
        ("df -h", "df -i", "quota -s", "splatbatch clean"),
        suspects="",
        lies_in="machine",
        passes=True,
    ),
    "download_failed": FailureCause(
        "a download failed",
        ("download the file once where there is a network, with TORCH_HOME on a shared disk",),
        lies_in="moment",
        passes=True,
        patience=1.5,
    ),
    "fd_limit": FailureCause(
        "too many open files",
        ("ulimit -n 65536, in the shell that starts the batch",),
        suspects_if_larger=LOADING,
        lies_in="moment",
    ),
    "gpu_hardware_fault": FailureCause(
        "the GPU is faulty",
        ("nvidia-smi -q -d ECC,ROW_REMAPPER", "dmesg | grep -i xid"),
        suspects="",
        lies_in="machine",
        patience=12,
    ),
    "hang": FailureCause(
        "no progress",
        ("splatbatch explain PATCH --log", "raise limits.stall_s in the YAML"),
        suspects=DURATION,
        lies_in="moment",
        patience=3,
    ),
    "host_oom": FailureCause(
        "host memory ran out",
        ({"training.workers": 2, "training.resolution": "1/2"},),
        suspects_if_larger=LOADING,
        lies_in="moment",
        ladder="host_memory",
        patience=3,
    ),
    "illegal_instruction": FailureCause(
        "the CPU is too old for the program", ("lscpu | grep Flags",), lies_in="machine"
    ),
    "incomplete_artifact": FailureCause("the splat is incomplete", ("splatbatch explain PATCH --log", "df -h")),
    "internal_fault": FailureCause("an error in splatbatch"),
    "interrupted": FailureCause(
        "interrupted", ("splatbatch train",), suspects="", lies_in="moment", times=3, patience=6, may_repeat=True
    ),
    "io_error": FailureCause(
        "reading from the disk failed",
        ("dmesg | tail", "mount | grep nfs", "set scene.images in the YAML to a copy on a local disk"),
        lies_in="moment",
        passes=True,
        patience=1.5,
    ),
    "jit_build_failed": FailureCause(
        "a CUDA extension does not compile",
        ("splatbatch doctor", "nvcc --version", "python -c 'import torch; print(torch.version.cuda)'"),
        lies_in="machine",
    ),
    "jit_build_race": FailureCause(
        "two trainings compiled at once",
        ("python -c 'from gsplat.cuda._backend import _C', once before the batch",),
        lies_in="moment",
        times=3,
        patience=1.5,
        may_repeat=True,
    ),
    "jit_lock_stale": FailureCause(
        "an earlier compilation left its lock file behind",
        ("find ~/.cache/torch_extensions -name lock -delete",),
        lies_in="moment",
    ),
    "lost": FailureCause(
        "the attempt was lost",
        ("splatbatch status", "splatbatch train"),
        suspects="",
        lies_in="moment",
        times=3,
        may_repeat=True,
    ),
    "missing_colmap": FailureCause(
        "no COLMAP model", ("splatbatch verify-dims", "set scene.patches in the YAML to the folder of the patches")
    ),
    "missing_dependency": FailureCause(
        "a package is missing", ("splatbatch doctor --trainers",), suspects=WHICH_TRAINER, lies_in="machine or settings"
    ),
    "missing_file": FailureCause(
        "a file is missing", ("splatbatch verify-dims", "splatbatch doctor --trainers"), suspects=WHICH_TRAINER
    ),
    "missing_image": FailureCause(
        "a photograph is missing",
        ("splatbatch verify-dims", "set scene.images in the YAML to the folder of the photographs"),
    ),
    "nan_loss": FailureCause(
        "the training diverged",
        ({"learning_rates.means": 8e-05, "training.seed": 7},),
        suspects=NUMERICS,
        ladder="numerics",
    ),
    "native_abort": FailureCause("compiled code aborted", ("splatbatch explain PATCH --log",)),
    "nccl": FailureCause(
        "the GPUs could not talk to each other",
        ("export NCCL_DEBUG=INFO, for more lines in the log", "train each patch on one GPU, which needs no NCCL"),
        lies_in="moment",
        times=3,
        patience=1.5,
    ),
    "no_initial_pair": FailureCause(
        "no two photographs to start the reconstruction from",
        ("splatbatch reconstruct PHOTOS --camera SIMPLE_RADIAL", "splatbatch reconstruct PHOTOS --pairs all"),
        ladder="numerics",
    ),
    "no_densification": FailureCause(
        "no Gaussians were added", ({"refinement.grow_grad2d": 0.0001},), suspects=NUMERICS
    ),
    "no_record": FailureCause("no result was written"),
    "no_training_cameras": FailureCause(
        "the patch has no training photographs",
        ("splatbatch verify-dims",),
        suspects=rf"{PROGRAM}|evaluation\.holdout\w*",
    ),
    "none": FailureCause("nothing is wrong"),
    "not_made": FailureCause("the input of this task has not been made"),
    "not_started": FailureCause(
        "the trainer could not be started",
        ("splatbatch doctor --trainers",),
        suspects=WHICH_TRAINER,
        lies_in="machine or settings",
    ),
    "output_unwritable": FailureCause(
        "the output folder cannot be written",
        ("ls -ld FOLDER", "id", "set output.folder in the YAML to another folder"),
        lies_in="machine",
    ),
    "port_in_use": FailureCause("a network port is taken", ("ss -ltnp shows which process uses it",), lies_in="moment"),
    "process_limit": FailureCause(
        "too many processes",
        ("export OMP_NUM_THREADS=4", "ulimit -u"),
        suspects_if_larger=LOADING,
        lies_in="moment",
        ladder="host_memory",
        passes=True,
    ),
    "program_bug": FailureCause(
        "a bug in the trainer", ("splatbatch explain PATCH --log", "splatbatch doctor"), suspects=WHICH_TRAINER
    ),
    "read_hangs": FailureCause("reading a file hangs", lies_in="moment", passes=True, patience=6),
    "repeated_image": FailureCause("all photographs are the same picture", ("splatbatch verify-dims",)),
    "segfault": FailureCause(
        "the trainer crashed",
        ("splatbatch doctor", {"training.workers": 0}),
        suspects_if_larger=LOADING,
        ladder="segfault",
    ),
    "shm_bus_error": FailureCause(
        "shared memory is too small",
        ("docker run --shm-size=8g (or --ipc=host)", {"training.workers": 0}),
        suspects_if_larger=LOADING,
        lies_in="moment",
        ladder="host_memory",
    ),
    "tensor_limit": FailureCause(
        "too many Gaussians for torch",
        ({"training.cap_max": 1000000},),
        suspects=GROWTH,
        suspects_if_larger=SIZES,
        ladder="gpu_memory",
    ),
    "time_limit": FailureCause(
        "the time limit was hit",
        ("set limits.wall_s: 28800 in the YAML", {"training.max_steps": 15000}),
        suspects=DURATION,
    ),
    "unknown": FailureCause("cause unknown", ("splatbatch explain PATCH --log",), suspects=WHICH_TRAINER),
    "unsupported_camera_model": FailureCause(
        "a camera model that the trainer cannot use",
        ("colmap image_undistorter --image_path images --input_path sparse/0 --output_path new",),
    ),
    "zero_gaussians": FailureCause(
        "no Gaussians are left",
        ("splatbatch verify-dims", {"refinement.prune_opa": 0.001, "training.seed": 7}),
        suspects=NUMERICS,
        ladder="pruning",
    ),
    "zero_gradients": FailureCause(
        "the training learned nothing", ("splatbatch verify-dims", {"training.init_scale": 1}), suspects=NUMERICS
    ),
}


def cause_of(name: str) -> FailureCause:
    """Return a cause by its name; for a name not in CAUSES, a cause with this name as title and the defaults."""
    return CAUSES.get(name, FailureCause(name))


def in_words(cause: str) -> str:
    """Return the title of a cause; a name that is not in CAUSES is returned unchanged."""
    return cause_of(cause).title


def title(cause: str) -> str:
    """Return a cause as title and name, "GPU memory ran out (cuda_oom)"; a name not in CAUSES is returned unchanged."""
    return f"{CAUSES[cause].title} ({cause})" if cause in CAUSES else cause
