"""Known failures of what must be compiled and installed before a training can start."""

from __future__ import annotations

from splatbatch.failures.row import Row, Words

BUILD = (
    Row(
        "jit_build_race",
        "retry",
        "Several trainings compiled the same extension at once: tried again; build it once before the batch.",
        Words(
            r"(No such file or directory|FileNotFoundError)[^\n]*[/\\]lock'?\s*$",
            r"torch_extensions[^\n]*file too short|Text file busy",  # another training is still writing it
        ),
    ),
    Row(
        "jit_lock_stale",
        "degrade",
        "A lock left by a killed compile is waited for without end: delete that lock file.",
        Words(r"Lock file exists in build directory|baton\.wait\(\)|file_baton\.py[^\n]*in wait"),
    ),
    Row(
        "host_oom",
        "degrade",
        "The compiler ran out of host memory, the code is fine: build with MAX_JOBS=1.",
        Words(
            r"Killed signal terminated program|internal compiler error: Killed|died due to signal 9",
            r"virtual memory exhausted|cc1plus[^\n]*out of memory",
            r"compiler is out of heap space|\bC1060\b|\bC3859\b",
        ),
        scope="end",
    ),
    Row(
        "host_oom",
        "degrade",
        "Windows ran out of commit memory, the DLL named is not broken: fewer loader workers, or a larger page file.",
        Words(
            r"\[WinError 1455\]|paging file is too small|页面文件太小",
            r"fichier de pagination|Auslagerungsdatei|archivo de paginación|файл подкачки",
            r"ページング ?ファイル|페이징 파일",
        ),
    ),
    Row(
        "jit_build_failed",
        "fail",
        "A CUDA extension does not compile here: mend compiler and CUDA toolkit, or install a prebuilt wheel.",
        Words(
            r"ninja: (build stopped|error|fatal)|\b(nvcc|ptxas) +(fatal|error)|errors? detected in the compilation of",
            r"internal compiler error|^FAILED: |Error (building|compiling objects for) extension",
            # Any compiler's own words: file, place, error.
            r"\.(cu|cuh|c|cc|cpp|cxx|h|hh|hpp|inl)(:\d+:\d+:|\(\d+(,\d+)?\) ?:) ?(fatal )?error\b|: #error\b",
            r"\b(cc1plus|(gcc|g\+\+|clang|clang\+\+|cl|nvcc|c\+\+|ld)(-\d+)?(\.exe)?): (fatal )?error\b",
            r"undefined reference to|unresolved external symbol|ld returned \d+ exit status",
            r"error: command '[^']*(cc|\+\+|clang|nvcc|cl|link|ninja|cmake)(-[\d.]+)?(\.exe)?' (failed|terminated)",
            r"unsupported (GNU|Microsoft Visual Studio|clang) version|Visual C\+\+ 1\d\.\d+ or greater is required",
            r"fatal error:? ['\"<]?[\w/.+-]+\.(h|hpp|cuh)\b|error C\d{4}\b|LINK : fatal error|\bLNK\d{4}",
            r"was not declared in this scope|collect2: error|cannot find -l\w+",
            r"CMake Error|Configuring incomplete, errors occurred|No CMAKE_CUDA_COMPILER",
            r"^(g?make|nmake)(\[\d+\])?: \*\*\* [^\n]*Error \d",
        ),
    ),
    Row(
        "jit_build_failed",
        "fail",
        "A CUDA extension was not built, for want of a toolkit or by an earlier failure: set CUDA_HOME to a toolkit of"
        " torch's CUDA version (python -c 'import torch; print(torch.version.cuda)'), or install a prebuilt wheel.",
        Words(
            r"Ninja is required|Command '\[?'?(ninja|where'?,? '?cl)\b|Error checking compiler version for cl",
            r"No CUDA toolkit found|CUDA_HOME (environment variable )?(is )?not set|set (your )?CUDA_HOME",
            r"No such file or directory: '?[^\n']*nvcc|nvcc: (command )?not found",
            r"detected CUDA version[^\n]*mismatch|Unknown CUDA arch|_get_cuda_arch_flags",
            r"TCNN_CUDA_ARCHITECTURES|C\+\+1[147] (or later )?compatible compiler is required",
            r"Failed (building|to build)( installable)? wheels?|Could not build wheels|did not run successfully",
            r"subprocess-exited-with-error|metadata-generation-failed|legacy-install-failure",
            # What gsplat and torch say later when the build failed silently.
            r"(cannot import name|has no attribute) 'csrc'|cannot import name '_C' from '?gsplat",
            r"'NoneType' object has no attribute '(project|rasterize|fully_fused|compute_|map_gaussian|CameraModelType"
            r"|spherical_harmonics|isect_|quat_scale|nd_rasterize|intersect_|get_tile)",
            r"torch_extensions[^\n]*\.(so|pyd): cannot open shared object",
        ),
        scope="optional",
    ),
    Row(
        "jit_build_failed",
        "fail",
        "The build finds no compiler on this machine: install one that fits the CUDA toolkit, or a prebuilt wheel.",
        Words(r"\[(WinError|Errno) 2\]"),
        also=Words(r"\bbuild_ext\b|\bbdist_\w+|\begg_info\b|cpp_extension|Building wheel"),
        scope="optional",
    ),
    Row(
        "missing_dependency",
        "fail",
        "The checkpoint is sound, but torch 2.6 and later refuse to unpickle classes of a program: load it with"
        " torch.load(..., weights_only=False), or install torch 2.5.",
        Words(r"Weights only load failed|Unsupported (global|class|operand)[^\n]{0,120}weights_only|WeightsUnpickler"),
    ),
    Row(
        "missing_dependency",
        "fail",
        "A package or library is missing or does not fit the others: install the versions the trainer asks for.",
        Words(
            r"undefined symbol|cannot open shared object file|DLL load failed|Could not load library lib\w+",
            r"\bNo module named\b|cannot import name|module '[\w.]+' has no attribute",
            r"^\s*(Import|ModuleNotFound)Error\b",
            r"symbol lookup error|Symbol not found: _|Library not loaded: |Couldn't load custom C\+\+ ops",
            r"\[WinError (126|127|193|1114)\]|Could not find module '[^']*\.dll'",
            r"3221225781|-1073741515|0xC0000135|3221225785|-1073741511|0xC0000139",  # DLL not found, entry not found
            r"not compiled with (CUDA|GPU)|compiled with different CUDA versions|VERSION_MISMATCH",
            r"version incompatib|but source was compiled with|incompatible with (the )?(installed|current) version",
            r"which is incompatible|is not a supported wheel|requires a different Python|OMP: Error #15",
            r"GLIBC(XX)?_[\d.]+['’]? not found|CXXABI\w*' not found",
            r"(dtype|ndarray|ufunc) size changed|multiarray failed to import|Numpy is not available",
            r"removed in the NumPy 2",
            r"out of bounds for u?int\d+",  # readers of COLMAP files written for NumPy 1
            r"block_width must be between|num_sh_bases\(|operator torchvision::\w+",  # nerfstudio; torch
            r"'(type|ABCMeta|builtin_function_or_method)' object is not subscriptable",
            r"for \|: '\w+' and '",  # old Python
            r"incompatible function arguments",
            r"Rasteriz\w+[^\n]*(unexpected keyword|missing \d+ required|takes \d+ positional)",
            r"No matching distribution found|Could not find a version that satisfies|ResolutionImpossible",
            r"Packages?NotFound(Error)?\b|UnsatisfiableError|DistributionNotFound|VersionConflict",
            r"command not found|is not recognized as an internal or external command|\b(ba|z|da)?sh: [^\n]*: not found",
            r"不是内部或外部命令|未找到命令",
            r"falsch geschrieben oder|Befehl nicht gefunden|n'est pas reconnu en tant que",
            r"commande introuvable|no se reconoce como un comando|orden no encontrada",
            r"не является внутренней или внешней",
            r"内部コマンドまたは外部コマンド|내부 또는 외부 명령|comando interno o esterno",
            r"failed with code (127|32512)\b|failed to open (lib)?nvrtc-builtins",
            r"No such file or directory: '(colmap|ffmpeg|ns-\w+|glomap|magick|nvidia-smi|git)'|Could not find COLMAP",
        ),
        scope="optional",
    ),
)
