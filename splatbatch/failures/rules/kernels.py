"""Known failures of work on the GPU: its memory, kernels, libraries, and the talk between GPUs."""

from __future__ import annotations

from splatbatch.failures.row import Row, Words

_POWERS = {"bytes": -3, "kib": -2, "mib": -1, "gib": 0, "tib": 1, "pib": 2, "eib": 3}  # of 1024, in GiB
_SIZE = r"(\d[\d.]*) ?(bytes|[KMGTPE]iB)"
_REQUEST = Words(rf"Tried to allocate {_SIZE}")
_CARD = Words(rf"{_SIZE} total capacity", rf"total capac\w+ of {_SIZE}")
_FREE = Words(rf"{_SIZE}(?: is)? free")
_USED = Words(rf"{_SIZE} already allocated", rf"{_SIZE} (?:reserved|cached)", rf"this process has {_SIZE}")
_ABSURD_GIB = 1000.0


def _largest_gib(pattern: Words, line: str) -> float:
    """Return the largest size that a pattern finds in a line, in GiB; 0 if it finds none."""
    pairs = ([group for group in match.groups() if group] for match in pattern.finditer(line))
    return max((float(number.rstrip(".")) * 1024.0 ** _POWERS[unit.lower()] for number, unit in pairs), default=0.0)


def asks_absurdly(line: str) -> bool:
    """Tell whether one allocation is more than any card has, or more than this card while it is nearly empty."""
    request, card, used = (_largest_gib(pattern, line) for pattern in (_REQUEST, _CARD, _USED))
    return request > _ABSURD_GIB or (0.0 < card < request and used < 0.25 * card)


def is_crowded_out(line: str) -> bool:
    """Tell whether other processes hold more of the card than this one does."""
    card, free, used = (_largest_gib(pattern, line) for pattern in (_CARD, _FREE, _USED))
    return card - free - used > max(used, 0.25 * card)


_OUT_OF_MEMORY = Words(
    r"CUDA out of memory|cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY|VK_ERROR_OUT_OF_DEVICE_MEMORY",
    r"(CUDA|GPU|device|HIP|MPS|driver|wgpu)\w*[^\n]{0,160}\bout of memory|\bOutOf(Device|Video)Memory",
    r"\bcu(da)?[A-Z]\w*\([^\n]*out of memory",
    r"(insufficient|not enough) GPU memory|MultiplyDescriptor:\s+out of memory",  # SiftGPU inside COLMAP
    r"(?<!lang\.)\bOutOfMemoryError\b|RESOURCE_EXHAUSTED|OOM when allocating tensor",
    r"NVJPEG_STATUS_ALLOCATOR_FAILURE|nvjpeg[^\n]*Memory allocator error",
    r"Failed to allocate \d+ bytes on device",
)

_ASSERTED = Words(r"Assertion `[^\n]*` failed")
"""What a kernel prints before whatever is called next fails, such as the start of a library."""
_MISUSED = r"Duplicate GPU detected|ncclInvalid(Usage|Argument)|NCCL error[^\n]*, invalid (usage|argument)"

KERNELS = (
    Row(
        "cuda_absurd_alloc",
        "fail",
        "One allocation far beyond the card while little is in use: the rasterizer got a garbage count. Rebuild it;"
        " less resolution is only a last try.",
        Words(r"Tried to allocate"),
        holds=asks_absurdly,
        watched="retry",
    ),
    Row(
        "cuda_absurd_alloc",
        "fail",
        "A garbage count reached an allocation (mismatched build, or NaN before it): rebuild the rasterizer.",
        Words(
            r"create tensor with negative dimension|Storage size calculation overflowed",
            r"Tried to allocate more than \d+ ?[PE]i?B",
        ),
        watched="retry",
    ),
    Row(
        "cuda_oom",
        "degrade",
        "Other processes hold most of the GPU: wait until they are gone; only then train with less.",
        Words(r"Tried to allocate"),
        holds=is_crowded_out,
        watched="retry",
    ),
    Row(
        "cuda_oom",
        "degrade",
        "GPU memory ran out while the photographs were loaded onto it: keep images on the CPU, or split the patch.",
        _OUT_OF_MEMORY,
        also=Words(r"\bloadCam\b|cameraList_from_camInfos|original_image[^\n]*\.to\("),
    ),
    Row(
        "cuda_oom",
        "degrade",
        "GPU memory ran out during evaluation: evaluate less or not at all, at lower resolution.",
        _OUT_OF_MEMORY,
        also=Words(r"\bin training_report\b|\bin lpips\b|\bin eval(uate)?\b|\brender_sets\b|^ +training_report\("),
    ),
    Row(
        "cuda_oom",
        "degrade",
        "GPU memory is full: keep images on the CPU, cap the Gaussians, or lower the resolution.",
        _OUT_OF_MEMORY,
    ),
    Row(
        "cuda_device_assert",
        "fail",
        "An index on the GPU was out of range (a label, a mask, a camera): find it with CUDA_LAUNCH_BLOCKING=1.",
        Words(
            r"device-side assert triggered|Assertion `[^\n]*` failed|thread: \[\d+,\d+,\d+\] Assertion",
            r"cudaErrorAssert\b|CUDA_ERROR_ASSERT\b",
        ),
    ),
    Row(
        "cuda_invalid_configuration",
        "fail",
        "A kernel was launched on nothing: no points, or none in view. Check poses, scale and the point cloud.",
        Words(r"invalid configuration argument|cudaErrorInvalidConfiguration|too many resources requested"),
        midrun="retry",
        watched="retry",
    ),
    Row(
        "cuda_illegal_access",
        "retry",
        "Illegal GPU memory access: tried once more in a fresh process; again means a mismatched build.",
        Words(
            r"illegal memory access|cudaErrorIllegalAddress|CUDA_ERROR_ILLEGAL_ADDRESS",
            r"cuda[^\n]{0,80} error[ =:(]+(77|700)\b|Warp Illegal Address",
            r"Invalid __(global|shared|local)__ (read|write)",
            r"misaligned address|cudaErrorMisalignedAddress|CUDA_ERROR_MISALIGNED",
            r"Xid( \([^)]*\))?[ :=]+31\b",
        ),
    ),
    Row(
        "cuda_launch_failure",
        "retry",
        "A GPU kernel failed without a reason: tried once more; if it repeats, check driver, power and hardware.",
        Words(
            r"unspecified launch failure|cudaErrorLaunchFailure|CUDA_ERROR_LAUNCH_FAILED",
            r"cuda[^\n]{0,80} error[ =:(]+(4|719)\b",
            r"launch timed out and was terminated|cudaErrorLaunchTimeout|CUDA_ERROR_LAUNCH_TIMEOUT",
            r"illegal instruction was encountered|cudaErrorIllegalInstruction",
            r"CUDA error: invalid (program counter|address space)|cudaErrorInvalid(Pc|AddressSpace)",
            r"Xid( \([^)]*\))?[ :=]+(8|13|32|43|45|69|109)\b",
        ),
    ),
    Row(
        "cublas_cudnn_error",
        "degrade",
        "A GPU library found no memory to work in: lower the resolution or the number of Gaussians.",
        Words(
            r"CU\w+_STATUS_ALLOC_FAILED|cublas runtime error : resource allocation failed",
            r"CU(BLAS|SOLVER|SPARSE|RAND)_STATUS_\w+,? when calling `cu\w+Create\w*\(",  # no room for its workspace
            r"CUDNN_?\s?STATUS_(?!SUCCESS|VERSION|SUBLIBRARY)\w+|status == CUD\s?NN_STATUS_SUCCESS",
            r"find a valid cuDNN algorithm|unable to find an engine to execute",
            r"because cuDNN failed to initialize|cuDNN (Frontend )?error",
        ),
        unless=_ASSERTED,
    ),
    Row(
        "cublas_cudnn_error",
        "retry",
        "A GPU library call failed: tried once more; if it repeats, check the torch build and earlier faults.",
        Words(
            r"\bCU(BLAS|SOLVER|FFT|SPARSE|RAND)_(STATUS_)?(?!STATUS|SUCCESS)[A-Z]+",
            r"\bcu(blas|solver|fft|sparse|rand)( runtime)? error",
        ),
        unless=_ASSERTED,
    ),
    Row(
        "nccl",
        "fail",
        "Two processes share one GPU, or ask NCCL for what it cannot do: give each its own GPU, or use one GPU.",
        Words(_MISUSED),
    ),
    Row(
        "nccl",
        "retry",
        "The GPUs stopped talking to each other: tried once more, then one GPU per patch; see the other rank's log.",
        Words(
            r"NCCL error|\bnccl(UnhandledCuda|System|Internal|Remote)\w*|NCCL (communicator|operations|work)\b",
            r"NCCL WARN [^\n]*(fail|error|timed? ?out)|\bTCPStore\b|(recvValue|sendBytes) failed|recv, got 0 bytes",
            r"^\s*RuntimeError: Socket Timeout|\[c10d\] The (client|server) socket",
            r"Dist(Backend|Store|Network)Error|Rendezvous(Timeout|Connection|Closed)Error",
            r"Watchdog caught collective operation timeout",
            r"ProcessGroup(NCCL|Gloo)[^\n]*(exception|timeout|aborted|terminated)",
            r"store based barrier|c10d key-value store",
            r"gloo[^\n]*(closed by peer|reset by peer|Timed out|connectFullMesh failed|Read error)",
        ),
        unless=Words(_MISUSED, r"Cuda failure[^\n]*(out of memory|no kernel image|driver version)"),
    ),
)
