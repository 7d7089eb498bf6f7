"""The job that a worker is: the options that it is submitted with, and the script that runs on its node."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence

from splatbatch.engines.engine import JOB, Wanted
from splatbatch.store.submissions import Submission

MARGIN_S = 20.0
"""Beside grace_s: what a worker needs to write everything down before Slurm ends it."""
EARLY_S = 60.0
"""Slurm sends a signal up to so long before its time: --signal of sbatch(1)."""
OF_GPUS = ("--gres", "--gpus", "-G", "--gpus-per-node", "--gpus-per-task", "--gpus-per-socket")

SCRIPT = """\
#!/bin/bash
# A worker of splatbatch. It may be run again at any time: it takes up what is left.
export {job}="${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}"
{end}
for needed in {needed}; do
  [ -e "$needed" ] || {{
    echo "splatbatch: $needed is not to be seen on node $SLURMD_NODENAME" >&2
    exit 5
  }}
done
[ -e {cancelled} ] && exit 143
{setup}
{exports}
exec {command}
"""
END = (
    '[ -n "$SLURM_JOB_END_TIME" ] || export SLURM_JOB_END_TIME=$(( $(date +%s) + {seconds} ))  # told since Slurm 23.02'
)
SETUP = """\
{{ {line}
}} || {{ echo "splatbatch: on node $SLURMD_NODENAME this line of executor.setup failed:" {quoted} >&2; exit 5; }}"""


def script_of(wanted: Wanted, submission: Submission, limit_s: float | None) -> str:
    """Return what runs on the node; it is replaced by the worker, so that signals reach that."""
    python, *_ = wanted.command
    needed = [str(submission.path), str(wanted.folder), python]
    return SCRIPT.format(
        job=JOB,
        end=END.format(seconds=int(limit_s)) if limit_s else "",
        needed=shlex.join(needed),
        cancelled=shlex.quote(str(submission.cancelled)),
        setup="\n".join(SETUP.format(line=line, quoted=shlex.quote(line)) for line in wanted.setup),
        exports="\n".join(f"export {name}={shlex.quote(value)}" for name, value in wanted.environment.items()),
        command=shlex.join(wanted.command),
    )


def options_of(wanted: Wanted, submission: Submission, limit_s: float | None, own: Sequence[str]) -> list[str]:
    """Return the options of sbatch: ours, then those of the YAML, which win."""
    last = wanted.num_workers * wanted.num_turns - 1
    at_once = f"%{wanted.num_workers}" if wanted.num_turns > 1 else ""
    ours = [
        f"--job-name={submission.name}",
        f"--comment={submission.name}",
        f"--array=0-{last}{at_once}",
        "--nodes=1",
        "--ntasks=1",
        "--requeue",
        "--open-mode=append",
        f"--output={submission.path}/%a.log",
        f"--chdir={wanted.folder}",
    ]
    if wanted.gpus and not any(one.partition("=")[0] in OF_GPUS for one in own):
        ours.append(f"--gres=gpu:{wanted.gpus}")
    if limit_s:
        ours.append(f"--time={max(1, math.floor(limit_s / 60))}")
        notice_s = wanted.grace_s + MARGIN_S
        # B: or a batch script never hears it
        ours += [f"--signal=B:TERM@{math.ceil(notice_s)}"] if limit_s > 2 * (notice_s + EARLY_S) else []
    return [*ours, *own]
