"""What each cause is called: in words for people, by its name for programs."""

from __future__ import annotations

from collections.abc import Mapping

WORDS: Mapping[str, str] = {
    "audit": "the audit found errors",
    "bad_config": "a setting is wrong",
    "colmap_failed": "COLMAP failed",
    "colmap_parse": "the reconstruction cannot be read",
    "corrupt_cache": "a cached file is damaged",
    "corrupt_image": "a photograph is damaged",
    "cublas_cudnn_error": "a GPU library failed",
    "cuda_absurd_alloc": "an absurd amount of GPU memory was asked for",
    "cuda_busy_or_unavailable": "the GPU was busy",
    "cuda_device_assert": "an index on the GPU was out of range",
    "cuda_driver_mismatch": "the NVIDIA driver does not fit",
    "cuda_illegal_access": "illegal GPU memory access",
    "cuda_init_unknown": "CUDA did not start",
    "cuda_invalid_configuration": "a GPU kernel had no Gaussians to work on",
    "cuda_invalid_device": "no such GPU",
    "cuda_launch_failure": "the GPU stopped answering",
    "cuda_no_kernel_image": "built for another kind of GPU",
    "cuda_oom": "GPU memory ran out",
    "dataloader_worker_killed": "a loader worker was killed",
    "dims_mismatch": "photographs and cameras differ in size",
    "disk_full": "the disk is full",
    "download_failed": "a download failed",
    "fd_limit": "too many open files",
    "gpu_hardware_fault": "the GPU is faulty",
    "hang": "nothing moved any more",
    "host_oom": "host memory ran out",
    "illegal_instruction": "the CPU is too old for the program",
    "incomplete_artifact": "the splat is not whole",
    "internal_fault": "a fault of splatbatch itself",
    "interrupted": "interrupted",
    "io_error": "reading from the disk failed",
    "jit_build_failed": "a CUDA extension does not compile",
    "jit_build_race": "two trainings compiled at once",
    "jit_lock_stale": "a compile lock was left behind",
    "lost": "no word came back",
    "missing_colmap": "no COLMAP model",
    "missing_dependency": "a package is missing",
    "missing_file": "a file is missing",
    "missing_image": "a photograph is missing",
    "nan_loss": "the training diverged",
    "native_abort": "compiled code aborted",
    "nccl": "the GPUs could not talk to each other",
    "no_initial_pair": "no two photographs to begin with",
    "no_densification": "no Gaussians were added",
    "no_record": "no result was left",
    "no_training_cameras": "no photograph belongs to the patch",
    "none": "nothing is wrong",
    "not_made": "what it is made from is not there",
    "not_started": "the trainer could not be started",
    "output_unwritable": "the output folder cannot be written",
    "port_in_use": "a network port is taken",
    "process_limit": "too many processes",
    "program_bug": "a fault in the trainer",
    "read_hangs": "a file does not answer",
    "repeated_image": "all photographs are the same picture",
    "segfault": "the trainer crashed",
    "shm_bus_error": "shared memory is too small",
    "tensor_limit": "too many Gaussians for torch",
    "time_limit": "the time limit was hit",
    "unknown": "cause unknown",
    "unsupported_camera_model": "a camera model that the trainer cannot use",
    "zero_gaussians": "no Gaussians are left",
    "zero_gradients": "the training learned nothing",
}


def in_words(cause: str) -> str:
    """Return a cause as people say it; a reason that is no cause of ours stays as it is."""
    return WORDS.get(cause, cause)


def title(cause: str) -> str:
    """Return a cause in words, with the name under which documents and programs know it."""
    return f"{WORDS[cause]} ({cause})" if cause in WORDS else cause
