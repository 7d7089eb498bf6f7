"""Regular expressions by which a log is read: harmless lines, warnings, exceptions, training steps, its finish."""

from __future__ import annotations

import re

# Lines of runs that work: blanked before the search, so that nothing in them is taken for a failure.
HARMLESS = (
    r"Unable to register cu\w+ factory|computation placer already registered|TF-TRT Warning",
    r"(?<!Error: )Unable to initialize backend '\w+'",  # JAX asks for every kind of device and says which it has not
    r"TORCH_CUDA_ARCH_LIST is not set|Tensorboard not available|A matching Triton is not available",
    r"Error caught was: No module named|Failed to load image Python extension|Encountered quite large input images",
    r"KeyError: 'CameraMessage'",  # viser: an old viewer page
    r"CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR",  # cuDNN says which plans it passed over
    r"FullyFusedMLP is not supported for the selected architecture",
    r"port \d+ (is )?(already )?(in use|not available),? (trying|using)",
    r"^\s*Compile with `?TORCH_USE_CUDA_DSA",  # stands under every CUDA error
    r"Could not load symbol cublasGetSmCountTarget|DecompressionBombWarning",
    r"\b(module|ml|nvidia-smi|tput|conda|deactivate): (command )?not found",
    r"MESA-LOADER|libGL error|swrast(_dri)?\b|libEGL warning|\bxauth\b|XDG_RUNTIME_DIR|^ALSA lib",
    r"couldn't chdir to|cannot set terminal process group|no job control in this shell|/var/lib/(dpkg|apt)/",
    r"errno: 9[79]\b|Address family not supported by protocol",
    r"pip's dependency resolver|\byou have \S+ [\w.+-]+ which is incompatible",
    r"fatal: not a git repository|^(perl|locale|bash): warning|setlocale: |No value for \$TERM",
    r"libnccl-net\S*: cannot open|NET/Plugin|\bNCCL INFO\b|No CUDA runtime is found, using CUDA_HOME",
    r"Failed to open libibverbs|\bcannot remove '|flop counting will not work|Skipping import of cpp extensions",
    r"CUDA kernel errors might be asynchronously reported|consider passing CUDA_LAUNCH_BLOCKING",
    r"malicious pickle data|The current process just got forked|infoROM is corrupted",
    r"^\s*Corrupt JPEG data|libpng warning|iCCP: known incorrect|Invalid SOS parameters for sequential JPEG",
    r"^\s*warnings\.warn\(|xFormers can't load|Please reinstall xformers|Could not import \S+: No module named",
    r"xcgroup_\w+:|unable to create cgroup|WANDB_NOTEBOOK_NAME|wandb[^\n]*(entering retry loop|Network error|retrying)",
    r"find: '[^']*': (Permission denied|No such file)|cannot (touch|stat|access) '[^']*': (No such file|Permission)",
)

_POD_ENDS = r" {2,}(DeadlineExceeded|Evicted|OOMKilling|Preempt\w*|NodeNotReady|Failed)\b"
"""Pattern of Kubernetes events that end a pod; their lines begin with `Normal` or `Warning`, but are no mere
warnings."""

# What only warns: it explains a failure if nothing else does.
WARNINGS = (
    r"\b\w*Warning: (?!CUDA initialization)",
    rf"^\s*warn(ing)?\b(?!{_POD_ENDS})",
    r"\[ ?warn(ing)?\b(?![^\n]*failed to (save|write))|\bwarning ?:|\bwarning\b[^\n]{0,3}\[",
    rf"(?<!nccl )\b(WARN|WARNING)\b(?!{_POD_ENDS}) (?!NET/)(?![^\n]*(NCCL|failed to (save|write)|preempted))",
    r"^\[?w\d{4}\b|^\[W[ \d]|(^|\d: )W (tensorflow|external)/",
    r"Error checking compiler version for|^could not load the\b|\bcustom (kernel|op|extension)s?\b",
    # Tools of a job's script: what they do not find or may not do is seldom what the training died of.
    r"^(bash|sh|curl|wget|cp|mv|mkdir|rm|ln|ls|tar|git|lscpu|which|tput|find|cat|chmod|ssh[-d]\S*|rsync|locale)(: |\[)",
    r"^(/usr)?/bin/(?!python|colmap|ld:|env:)\S+: |^/etc/\S+: |^/root/\S+: |^wandb: (?!ERROR Run init)",
    r"^nvidia-smi\b(?![^\n]*(lost|device handle|bus))|^docker: warning|^srun: warning",
    r"^ERROR: (Could not install packages|pip's)|^ninja: warning|\b_is_a_lwp\b|GLib\S*-warning|^\s*\(process:\d+\)",
    r"\bRetrying\b|\bretry \d+/\d+|\bthrown while requesting\b|will retry",
    r"\b(skipping|ignored|ignoring|falling back|fall back|going on without|continuing without|proceeding without)\b",
    r"\b(instead|anyway)\.?$|\bis deprecated\b",
    # Loggers, viewers and faster kernels that trainers do without, where that ended nothing.
    r"^ModuleNotFoundError: No module named '(tensorboard|wandb|viser|xformers|triton|apex|fused_ssim|flash_attn)\b",
    r"^OSError: \[(Errno 98|WinError 10048)\]",
)

TRACEBACK = (r"Traceback \(most recent call last\)",)
CHAINED = (
    r"The above exception was the direct cause of the following exception",
    r"During handling of the above exception, another exception occurred",
)
ASIDE = (r"^Exception ignored in", r"\bIgnored exception\b")
"""Patterns of lines above a traceback that ended nothing."""

IN_THREAD = (r"^Exception in thread", r"^Error in atexit", r"^Exception in (callback|default exception)")
"""Patterns of lines above a traceback that ended only a thread, or was printed while the interpreter exited."""

ERROR_LEVEL = (
    r"\[(error|critical|fatal)\]",
    r"^(fatal |runtime )?(error|fatal)\b ?:",
    r"^E\d{4,8} |^(\[rank\d+\]:)?\[E[ \d]|❌|^E: |\bERROR   ",
    r"^Training error\b|^Error executing\b",
)
"""Patterns of lines that the program itself marks as errors."""

PANIC = (
    r"\bpanicked at\b",
    r"^\s*terminate called\b",
    r"^\s*what\(\):",
    r"^F\d{4,8} [\d:.]+",
    r"^Fatal Python error:|^fatal runtime error",
    r"Check failure stack trace",
    r"^\s*(uncaught|unhandled) exception|^Caused by:",
    r"^thread '[^']*' has overflowed its stack",
)
PANIC_ENDS = (r"^note: run with|^\s*stack backtrace:",)
"""Patterns of the first line below the message of a panic."""
PANIC_LINES = 8
"""Number of lines below the head of a panic in which PANIC_ENDS is looked for."""

RAISED = (
    r"^[\s│]*(\[[^\]\n]{1,40}\]:? ?)*(\w+\.)*\w*[a-z](Error|Exception|Interrupt|Refused|Timeout)\b(:|$)",
    r"^(\[[^\]\n]{1,40}\]:? ?)*(Exception|(\w+\.)+(error|timeout)): ",
)
"""Patterns of the line with the type and message of an exception, also without a traceback above it."""

MESSAGE_LINES = 3
"""Number of lines taken as the message if it begins below the line of the exception."""

SYMPTOMS = (
    r"CalledProcessError|ChildFailedError|SystemExit|ExecuteUserScriptError|\bRuntimeError: Command\b",
    r"returned non-zero exit status|^(\w+\.)*Exit: ",
)
"""Patterns of exceptions that only report that another program or process failed."""

WRAPS = (r"^\s+raise \w|\bcaught \w+ in (dataloader|replica|worker|pin memory|process)",)
"""Patterns of lines that only pass on an exception: its `raise` statement, or torch's line above a worker's exception.

A match on the message itself is preferred to a match on such a line."""

ECHOES = (
    r"\bNCCL|Dist(Backend|Network|Store)Error|\bgloo\b|\bTCPStore\b|store based barrier|collective operation",
    r"Rendezvous\w*Error|SignalException|KeyboardInterrupt|RuntimeError: Socket Timeout|closed by peer",
    r"recvValue|sendBytes|recv, got",
)
"""Patterns of exceptions of a process whose peers have ended, so that they are the echo of another failure."""

TRAINING_STEP = (
    r"Training(?: progress)?:\s+\d+%[^\n]{0,400}?\b(\d+)/\d+ \[",  # 3DGS and its relatives
    r"\[ITER (\d+)\]",
    r"\bloss=[^\n]{0,160}\b(\d+)/\d+ \[\d",  # gsplat's simple_trainer
    r"^\s*(\d+) \(\d+\.\d+%\)",  # nerfstudio's table
    r"^Step (\d+): \d",  # OpenSplat
    r"\b(\d[\d,]*)/[\d,]+ \| Loss: ",  # LichtFeld
    r"\bepoch (\d+)\b[^\n]{0,80}\bloss\b",
    r"\biter(?:ation)?[\s:=#]+(\d[\d,]*)\b",
    r"\bstep[\s:=#]+(\d[\d,]*)\b(?!\.\d+ (on|stepd) )",  # but for Slurm's "STEP 811203.0 ON gpu-n07"
)

OF_STEPS = re.compile(r"(\d[\d,]*)/(\d[\d,]*)")
"""Pattern of the number of steps made and of all steps, as 900/30000."""

LOSS = (r"\bloss['\"]?(?:\s*[:=]\s*|\s+)['\"]?(-?(?:nan|inf|\d[\d.e+-]*))\b",)

FINISHED = (
    r"Training (is |has )?(been )?(complete|completed|finished|done)\b",
    r"successfully (trained|finished)|\bfinished training\b|\bdone training\b|^Training took\b",
    r"\bJob Done in\b",  # gsplat
    r"^Wrote \S+\.(splat|ply|spz|sog)\b",  # OpenSplat
)
ALL_STEPS_MADE = (r"Training progress: 100%", r"\b100%\|[^\n]*\b(\d+)/\1 \[")
"""Patterns of progress at the last step, after which the program still has to write its files."""

STILL_WRITES = (r"\b(export|sav|writ|convert|compress|bak)ing\b",)
HAS_WRITTEN = (r"\b(wrote|written|exported|saved|converted|compressed|baked)\b",)
"""Patterns of lines that announce that a file is being written, and of lines that say that it was written."""

WRAPS_UP = (r"\b(sav(ed|ing)|wr(ote|iting|itten)|export|early|stop|converged|done|finish|complete|evaluat)",)
"""Pattern of the words of a program that ends its steps on purpose, as by early stopping."""

KILLED_FOR_MEMORY = (
    r"\bkill(?:ed|ing)? process (\d+)|\boom-kill:[^\n]*\bpid=(\d+)|\boom_reaper: reaped process (\d+)",
    r"\bearlyoom\S* [^\n]*\bprocess (\d+)|\boomd\S* [^\n]*\bkill(?:ed|ing) (\S+)|invoked (oom)-killer",
    r"\boom[_ -]kill[^\n]*\bstepid=(\d+\.extern)",
)
OF_A_PROCESS = (
    *KILLED_FOR_MEMORY,
    r"\bxid( \([^)]*\))?[ :=]+(?:8|1[123]|3[12]|4[3567]|69|94|109)\b[^\n]*\bpid='?(\d+)",
    r"\bmps server[^\n]*\bclient (\d+)",
)
"""Patterns of lines of the kernel or the engine about one process, with its number; the process may be of any
program."""
OUR_NAMES = (r"python|\bpt_|\bray\b|train|colmap|glomap|brush|splat|lichtfeld|\bns-\w|cc1plus|nvcc|ptxas|cicc|ninja",)
"""Pattern of the names of processes that may belong to an attempt."""

SOUNDS_BAD = (r"error|exception|traceback|\bfatal\b|\bfail(ed|ure)?\b|\babort(ed)?\b|\bcritical\b|\bpanick?(ed)?\b",)
BAD_WORDS = re.compile(
    r"error|fail|fatal|exception|panic|abort|traceback|killed|oom|out of memory|no space|quota|denied|lost|cancelled"
    r"|terminate|nan|corrupt|xid|not found|no such"
)
"""Pattern of words of which a line in the middle of a very long log must have one to be kept."""
