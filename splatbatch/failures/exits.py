"""Diagnoses from the end of a process alone, without its log: signals, exit codes, and findings of the trainer."""

from __future__ import annotations

import signal as signals

from splatbatch.outcome import Diagnosis, Exit, Exited, Killed, TimedOut

SIGABRT, SIGKILL = 6, 9
SIGNALS: dict[int, Diagnosis] = {
    1: Diagnosis(
        "interrupted", "retry", "The terminal of the run was closed (SIGHUP): run again, with nohup or in tmux."
    ),
    2: Diagnosis("interrupted", "retry", "A person interrupted the run (SIGINT): run again."),
    3: Diagnosis("interrupted", "retry", "A person interrupted the run (SIGQUIT): run again."),
    4: Diagnosis(
        "illegal_instruction",
        "fail",
        "The program needs a CPU feature that this machine lacks: install a build for this CPU.",
    ),
    SIGABRT: Diagnosis("native_abort", "fail", "The program aborted itself: read the last lines of the log."),
    10: Diagnosis("interrupted", "retry", "The scheduler warned that the time of the job ends (SIGUSR1): run again."),
    12: Diagnosis("interrupted", "retry", "The scheduler warned that the time of the job ends (SIGUSR2): run again."),
    5: Diagnosis("native_abort", "fail", "The program stopped itself (SIGTRAP): read the last lines of the log."),
    7: Diagnosis(
        "shm_bus_error", "degrade", "Bus error (SIGBUS), most likely /dev/shm is full: use fewer loader workers."
    ),
    8: Diagnosis(
        "native_abort",
        "fail",
        "Compiled code divided by zero (SIGFPE): check the input files, then report it to the program's authors.",
    ),
    SIGKILL: Diagnosis(
        "host_oom",
        "degrade",
        "Killed without a message (SIGKILL), most likely because host memory ran out: use fewer loader workers.",
    ),
    11: Diagnosis(
        "segfault",
        "retry",
        "The program crashed (SIGSEGV): the attempt is repeated once; if it crashes again, reinstall the program.",
    ),
    15: Diagnosis("interrupted", "retry", "The process was asked to end (SIGTERM): run again."),
    24: Diagnosis("time_limit", "degrade", "The CPU time limit was reached (SIGXCPU): raise the limit (ulimit -t)."),
    25: Diagnosis("disk_full", "fail", "The file size limit was reached (SIGXFSZ): raise the limit (ulimit -f)."),
    31: Diagnosis(
        "native_abort",
        "fail",
        "A security filter blocked a system call (SIGSYS): allow it in the container's seccomp profile.",
    ),
}

# Windows ends a process with an NTSTATUS code.
_NTSTATUS: dict[int, int] = {
    0xC0000005: 11,  # access violation
    0xC00000FD: 11,  # stack overflow
    0xC000001D: 4,  # illegal instruction
    0xC0000017: 9,  # no memory
    0xC000012D: 9,  # commitment limit
    0xC0000374: SIGABRT,  # heap corruption
    0xC0000409: SIGABRT,  # abort()
    0xC000013A: 2,  # Ctrl-C
}
# -n of a wrapper, cut to 8 bits: 245 is -11. Only for a few signals, since small programs exit with 255.
_CUT_TO_8_BITS: dict[int, int] = {256 - signal: signal for signal in (4, SIGABRT, 9, 11, 15)}

CODES: dict[int, Diagnosis] = {
    2: Diagnosis("bad_config", "fail", "Exit code 2, usually a wrong command line: correct the arguments."),
    125: Diagnosis("missing_dependency", "fail", "Docker could not start the container: read its message in the log."),
    126: Diagnosis("missing_dependency", "fail", "The program is not executable: check its permissions."),
    127: Diagnosis("missing_dependency", "fail", "A program was not found: install it, or correct PATH."),
    124: Diagnosis("time_limit", "degrade", "`timeout` ended the program: give more time."),
    0xC0000135: Diagnosis("missing_dependency", "fail", "A DLL is missing: reinstall the program."),
    0xC0000139: Diagnosis("missing_dependency", "fail", "A DLL is of another version: reinstall the program."),
    0xC0000142: Diagnosis("missing_dependency", "fail", "A DLL failed to initialise: reinstall the program."),
}

DIVERGED = Diagnosis("nan_loss", "degrade", "Training diverged (NaN): try a lower learning rate, or another seed.")

PRUNED = Diagnosis("zero_gaussians", "degrade", "All Gaussians were pruned: prune less, or try another seed.")

HEALTH: dict[str, Diagnosis] = {
    "zero_gradients": Diagnosis(
        "zero_gradients",
        "degrade",
        "All gradients are zero, so nothing is learned: check the camera poses and the scale of the scene.",
    ),
    "no_densification": Diagnosis(
        "no_densification",
        "degrade",
        "No Gaussians were added: lower the densification threshold, or start with larger Gaussians.",
    ),
    "nan_loss": DIVERGED,
    "not finite": DIVERGED,
    "repeated_image": Diagnosis(
        "repeated_image",
        "fail",
        "All photographs are the same picture: use those that the reconstruction was made from.",
    ),
    "zero_gaussians": PRUNED,
    "collapse": PRUNED,
    "empty": PRUNED,
}
"""Diagnoses of what the training process reported about itself, and of reasons why a splat does not count, by name."""


def signal_of(end: Exit | None) -> int | None:
    """Return the number of the signal that ended a process, also if only its exit code tells of it; None: no signal."""
    match end:
        case Killed(signal=signal):
            return signal
        case Exited(code=code) if -64 <= code < 0:
            return -code
        case Exited(code=code) if 128 < code <= 128 + 64:
            return code - 128
        case Exited(code=code):
            return _NTSTATUS.get(code % (1 << 32)) or _CUT_TO_8_BITS.get(code)
        case _:
            return None


def meaning_of_code(end: Exit | None) -> Diagnosis | None:
    """Return the diagnosis of an abort, or of an exit code with a fixed meaning; None: the code says nothing."""
    if signal_of(end) == SIGABRT:
        return SIGNALS[SIGABRT]
    return CODES.get(end.code % (1 << 32)) if isinstance(end, Exited) else None


def meaning_of_health(finding: str) -> Diagnosis | None:
    """Return the diagnosis of a finding like `zero_gradients: 50 steps`; None: the finding is not in HEALTH."""
    return HEALTH.get(finding.partition(":")[0].strip())


def in_words(end: Exit | None) -> str:
    """Return how a process ended, in a few words: "signal 11 (SIGSEGV)", "exit code 1".

    A time limit is named with its seconds. None, an exit that is unknown, becomes "unknown how the process ended". Any
    other exit becomes the name of its class, as "Cancelled".
    """
    signal = signal_of(end)
    match end:
        case _ if signal is not None:
            known = {int(one): f" ({one.name})" for one in signals.Signals}
            return f"signal {signal}{known.get(signal, '')}"
        case Exited(code=code):
            return f"exit code {code}"
        case TimedOut(limit=limit, limit_s=limit_s):
            return f"ended by its {limit} limit of {limit_s:g} s"
        case None:
            return "unknown how the process ended"
        case _:
            return type(end).__name__
