"""Known failures of trainers beside CUDA's own words: wgpu and Vulkan (Brush), and LichtFeld's allocator."""

from __future__ import annotations

from splatbatch.failures.row import Row, Words

PORTABLE = (
    Row(
        "cuda_invalid_device",
        "fail",
        "The trainer finds no GPU through Vulkan: install the driver's Vulkan part (libvulkan1, nvidia_icd.json); see"
        " vulkaninfo --summary.",
        Words(
            r"find a (suitable|compatible)( graphics| wgpu| GPU)? adapter|No (suitable|compatible)[^\n]{0,20} adapter",
            r"RequestAdapterError|No possible adapter available|request_adapter[^\n]*(fail|None)",
            r"VK_ERROR_INITIALIZATION_FAILED|ERROR_INITIALIZATION_FAILED|Unable to find a Vulkan driver",
            r"Found no drivers!|vkCreateInstance[^\n]*(fail|error)",
            r"No (Vulkan|GPU) (device|adapter)s? (found|available)",
        ),
    ),
    Row(
        "cuda_driver_mismatch",
        "fail",
        "The GPU's driver does not fit its Vulkan loader: update the driver, or reboot.",
        Words(r"ERROR_INCOMPATIBLE_DRIVER"),
    ),
    Row(
        "tensor_limit",
        "degrade",
        "A buffer is larger than this GPU's driver allows: cap the Gaussians (training.cap_max), or"
        " training.resolution: 1/2.",
        Words(
            r"Buffer size \d+ (is greater than|exceeds)[^\n]*(max|limit)",
            r"max_(storage_|\*_)?buffer_(binding_)?size",
            r"exceeds? [^\n]{0,40}max_[\w*]*(buffer|binding|workgroup|storage)\w*",
            r"dispatch group size[^\n]*must be less|maximum (storage )?buffer (binding )?size",
            r"too large for[^\n]*binding",
        ),
    ),
    Row(
        "cuda_oom",
        "degrade",
        "GPU memory is full: cap the Gaussians (training.cap_max), or lower the resolution (training.resolution: 1/2).",
        Words(
            r"wgpu error: Out of memory|Not enough memory left|ERROR_OUT_OF_DEVICE_MEMORY|DeviceError::OutOfMemory",
            r"(GPU|device|VRAM|cudaMalloc\w*|memory pool)[^\n]{0,80}(allocat\w+)[^\n]{0,60}(fail|out of memory)",
            r"Failed to allocate [\d.,]+ ?\w* ?(bytes )?(of |on )(the )?(GPU|device|VRAM)|cudaMalloc\w*[^\n]{0,40}fail",
            r"(arena|slab|pool|tensor)[^\n]{0,40}allocation[^\n]{0,40}(fail|out of memory)",
            r"`Err` value: OutOfMemory|cubecl[^\n]{0,160}OutOfMemory|OUT_OF_MEMORY:",
            r"VRAM (is )?(exhausted|full)|out of VRAM",
        ),
        unless=Words(r"pinned host memory|cudaErrorHostMemory"),
    ),
    Row(
        "cuda_launch_failure",
        "retry",
        "The GPU's driver gave the device up: tried once more; if it repeats, see dmesg for Xid and check the driver.",
        Words(
            r"\bdevice (is |was )?lost\b|DeviceLost\b|ERROR_DEVICE_LOST|DXGI_ERROR_DEVICE_(REMOVED|HUNG|RESET)",
            r"GPU (hang|timeout|has stopped responding)|Device::poll[^\n]*(timeout|lost)",
        ),
    ),
)
