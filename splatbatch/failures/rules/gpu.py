"""Known failures of a GPU and its driver, before any kernel of ours has run."""

from __future__ import annotations

from splatbatch.failures.row import Row, Words

GPU = (
    Row(
        "gpu_hardware_fault",
        "fail",
        "The GPU is lost or faulty: stop the batch, reboot, check power and cooling.",
        Words(
            # NVIDIA's Xid catalogue: those that need a reset.
            r"Xid( \([^)]*\))?[ :=]+(5[4678]|6[0-24]|7[49]|95|1[12]\d|136|14[03]|154)\b",
            r"fallen off the bus|GPU (is )?lost\b|NVML_ERROR_GPU_IS_LOST|GpuIsLost",
            r"Unable to determine the device handle|Critical Xid Error",
            r"GPU (requires|needs|is in need of) (a )?reset",
            r"hardware stack error|uncorrectable NVLink error",
            r"cudaError(HardwareStackError|NvlinkUncorrectable|Contained)",
            r"RmInitAdapter failed|thermal shutdown|overheating",
            r"AER: (Multiple )?Uncorrected[^\n]*(Fatal|received)|PCIe Bus Error: severity=Uncorrected",
            r"Error while waiting for GPU progress|GPU reset (is )?required|Row remapping failure",
        ),
        scope="end",
    ),
    Row(
        "gpu_hardware_fault",
        "fail",
        "The GPU's memory is faulty (double bit error): stop the batch on this GPU, reset it.",
        Words(r"Xid( \([^)]*\))?[ :=]+48\b"),
        unless=Words(r"uncorrectable ECC error"),
        scope="end",
    ),
    Row(
        "gpu_hardware_fault",
        "retry",
        "Uncorrectable memory (ECC) error: tried once more, on another GPU if there is one; again means a faulty card.",
        Words(r"uncorrectable ECC error|ECC_?UNCORRECTABLE|Double Bit ECC", r"Xid( \([^)]*\))?[ :=]+(63|92|94)\b"),
        scope="end",
    ),
    Row(
        "cuda_no_kernel_image",
        "fail",
        "A compiled part was built without this GPU's architecture: install or build it for this GPU.",
        Words(
            r"no kernel image is available|cudaErrorNoKernelImageForDevice|NO_BINARY_FOR_GPU",
            r"device kernel image is invalid|cudaErrorInvalidKernelImage",
            r"invalid device function|cudaErrorInvalidDeviceFunction",
            r"is not compatible with the current PyTorch installation",
            r"invalid value for --gpu-architecture",
            # Thrust and CUB report a missing kernel as a wrong device.
            r"(radix_sort|parallel_for|reduce|scan|transform|for_each)\w*:? failed[^\n]*invalid ?device",
            r"C[UA]\w*_STATUS_ARCH_MISMATCH",
            r"out of resources?: shared memory|insufficient shared memory(?! \(shm)",
            r"cudaFuncSetAttribute[^\n]*failed|failed to (set|increase)[^\n]*shared memory",
            r"PTX JIT compilation failed|cutlass\w*\.h:\d+ status failed",
            r"compatible tinycudann extension for compute capability|Unsupported GPU architecture(?! 'compute_)",
            r"GPU[^\n]{0,60} (is too old|is no longer supported)|requires (a GPU with )?compute capability",
        ),
    ),
    Row(
        "cuda_driver_mismatch",
        "fail",
        "The NVIDIA driver is missing, too old for this CUDA, or half updated: update the driver or reboot.",
        Words(
            r"driver version is insufficient|cudaErrorInsufficientDriver|CUDA_ERROR_(SYSTEM|COMPAT)\w+",
            r"NVIDIA driver on your system is too old|Found no NVIDIA driver",
            r"Driver/library version mismatch|RM version mismatch",
            r"forward compatibility was attempted on non[- ]supported|unsupported display driver",
            r"Error 80[234]\b",
            r"cudaError(CompatNotSupportedOnDevice|SystemDriverMismatch|SystemNotReady|CallRequiresNewerDriver)",
            r"couldn'?t communicate with the NVIDIA driver|Failed to initialize NVML|does not match DSO version",
            r"CUDA driver (library )?(could not be|is not|was not) (found|loaded|installed)|Module nvidia not found",
            r"(?<!\. Error: )libcuda\.so(\.1)?'?: cannot open shared object",
            r"Could not load dynamic library 'libcuda\.so",
            r"unsupported toolchain|Unsupported_?Ptx_?Version",
            r"(libnvidia-ml|NVML)[^\n]*(not found|not loaded|cannot open shared)",
            r"not supported in the installed CUDA driver|CUDA error: operation not supported|cudaErrorNotSupported",
        ),
    ),
    Row(
        "cuda_busy_or_unavailable",
        "retry",
        "Another process holds the GPU (or it is in exclusive mode): tried again after a pause.",
        Words(
            r"CUDA-capable device(s|\(s\))?( is/are| are| is) busy or unavailable",
            r"cudaErrorDevicesUnavailable|CUDA_ERROR_DEVICE_UNAVAILABLE|cuda[^\n]*error ?[=(] ?46\b",
            r"(cudaError|CUDA_ERROR_)MPS_?\w+|MPS (client|server)[^\n]*(fail|not ready|busy|connect)",
            r"exclusive-(thread|process) device (is )?already in use",
        ),
    ),
    Row(
        "cuda_init_unknown",
        "retry",
        "CUDA could not start: tried once more; if it repeats, reload nvidia_uvm or reboot.",
        Words(
            r"CUDA unknown error|CUDA error: unknown error|cuda runtime error \((30|999)\)",
            r"(CUDA_ERROR_|cudaError)_?Unknown\b|cudaSuccess \((30|999) vs\. 0\)",
            r"(CUDA|cuInit)[^\n]*\b(error|code|failure|returned)[ :=(]*(30|999)\b",
            r"\bcuda[^\n]{0,160}(:|->|with error|reason:?) unknown error\b",
        ),
    ),
    Row(
        "cuda_invalid_device",
        "fail",
        "The process sees no such GPU: correct the GPU number or CUDA_VISIBLE_DEVICES.",
        Words(
            r"No (CUDA|HIP) GPUs are available|no CUDA-capable device",
            r"No (CUDA|NVIDIA|GPU)?( |-)?(GPUs?|devices?) (is |was |are |were )?(found|available|detected|visible)",
            r"requested gpus?\b[^\n]*\n?[^\n]*machine only has|No supported gpu backend|No CUDA-enabled (GPU|device)",
            r"Invalid CUDA '|device when none is available|CUDA unavailable, invalid device",
            r"Torch is not able to use GPU|No visible (GPU|CUDA) devices",
            r"CUDA (is )?(not available|unavailable|not detected)|GPU (is )?(not available|not found|not detected)",
            r"invalid device ordinal|Invalid device id|invalid device index",
            r"cudaError(NoDevice|InvalidDevice)\b|CUDA_ERROR_(NO|INVALID)_DEVICE",
            r"Attempting to deserialize object on (a )?CUDA device",
            r"(No|Could not find (a|any)) (suitable |compatible |supported )?(CUDA|NVIDIA)[- ]?(capable )?GPUs?\b",
        ),
        scope="optional",
    ),
    Row(
        "cuda_init_unknown",
        "retry",
        "CUDA could not start: tried once more; if it repeats, reload nvidia_uvm or reboot.",
        Words(
            r"Unexpected error from cudaGetDeviceCount\(\)(?![^\n]*\n?[^\n]*out of memory)",
            r"CUDA driver initialization failed|CUDA error: initialization error|cudaErrorInitializationError",
            r"cuda[^\n]{0,60}\berror ?[=(] ?3\)? ?: initialization error",
        ),
    ),
)
