"""A traceback is read whole, whatever other threads, bars and ranks write in between."""

import pytest
from logs import diagnose_log

HEAD = 'Traceback (most recent call last):\n  File "train.py", line 42, in loadCam\n'
CODE = "    image = image.cuda()\n"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 48.00 MiB.\n"
LOADING = "GPU memory ran out while the photographs were loaded onto it"
BAR = "Training progress:  26%|##        | 8000/30000 [04:31<12:27, 29.43it/s, Loss=0.07]\n"
THREAD = (
    'Exception in thread Thread-2:\nTraceback (most recent call last):\n  File "v.py", line 9, in run\nOSError: gone\n'
)


@pytest.mark.parametrize(
    "log",
    [
        f"{HEAD}viewer: a page was closed\n{CODE}{OOM}",
        f"{HEAD}{CODE}viewer: a page was closed\n{OOM}",
        f"{BAR}{HEAD}{BAR}{CODE}{OOM}",
        f"{HEAD}{THREAD}{CODE}{OOM}",
        f"{HEAD}{CODE}{THREAD}{OOM}",
        "      " + f"{HEAD}{CODE}{OOM}".replace("\n", "\n      "),
    ],
    ids=["line", "line before the message", "bar", "thread", "thread before the message", "indented"],
)
def test_what_others_write_into_a_traceback_does_not_end_it(log):
    found = diagnose_log(log, 1)
    assert (found.cause, found.advice[: len(LOADING)]) == ("cuda_oom", LOADING)


def interleaved(*logs: str) -> str:
    """Return the lines of ranks as they come in, each with its rank."""
    lines = [[f"[rank{rank}]: {line}" for line in log.splitlines()] for rank, log in enumerate(logs)]
    return "\n".join(line for together in zip(*lines, strict=True) for line in together) + "\n"


def test_tracebacks_of_ranks_that_are_interleaved_are_told_apart():
    found = diagnose_log(interleaved(f"{HEAD}{CODE}KeyError: 'fl_z'\n", f"{HEAD}{CODE}{OOM}"), 1)
    assert (found.cause, found.evidence[0].endswith(OOM.strip())) == ("cuda_oom", True)


def test_an_unknown_exception_is_quoted_though_others_write_above_it():
    log = f"{HEAD}{CODE}viewer closed a page\nmothership.DockingRefused: the bay is occupied\n"
    assert "line 5: mothership.DockingRefused: the bay is occupied" in diagnose_log(log, 1).evidence


def test_a_thousand_heads_of_tracebacks_end():
    assert diagnose_log("Traceback (most recent call last):\n" * 1000 + OOM, 1).cause == "cuda_oom"
