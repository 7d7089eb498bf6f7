"""What is advised is read by the program, and has not failed already; else it is said where to look."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from splatbatch.config import Recipe
from splatbatch.config.trainers.programs import Program
from splatbatch.failures.advice import EarlierFailure, PatchContext, with_advice
from splatbatch.failures.causes import CAUSES
from splatbatch.failures.signatures import shipped_signatures
from splatbatch.outcome import Diagnosis

OOM = Diagnosis("cuda_oom", "degrade", "GPU memory is full.", ("line 412: CUDA out of memory",))
OURS = PatchContext("p0", "gsplat", Recipe().reads(), Recipe().settings())
PROGRAM = Program.model_validate({"command": ["go", "{steps}", "{setting.scale}"], "settings": {"scale": 2}})
FOREIGN = PatchContext("p0", "mine", PROGRAM.reads(), {"training.max_steps": 30_000, "setting.scale": 2})
KEYS = re.compile(r"--set ([\w.]+)=")


def after(background: PatchContext, *failures: EarlierFailure) -> str:
    return with_advice(OOM, replace(background, past=failures)).advice


def test_ours_is_advised_all_that_helps() -> None:
    assert KEYS.findall(after(OURS)) == ["training.cap_max", "training.resolution", "training.images"]


def test_a_program_is_advised_what_it_reads() -> None:
    slow = Diagnosis("time_limit", "degrade", "More time.")
    assert KEYS.findall(with_advice(slow, FOREIGN).advice) == ["training.max_steps"]
    diverged = Diagnosis("nan_loss", "degrade", "Diverged.")
    reads_seed = replace(FOREIGN, reads=FOREIGN.reads | {"training.seed"})
    assert KEYS.findall(with_advice(diverged, reads_seed).advice) == ["training.seed"]


@pytest.mark.parametrize("cause", [name for name, one in CAUSES.items() if one.steps])
def test_of_no_cause_a_program_is_advised_what_it_does_not_read(cause: str) -> None:
    told = with_advice(Diagnosis(cause, "fail", "So."), FOREIGN).advice
    assert set(KEYS.findall(told)) <= FOREIGN.reads


def test_where_nothing_that_it_reads_helps_the_line_of_its_log_is_named() -> None:
    assert after(FOREIGN) == (
        "GPU memory is full. No setting helps here: mine reads only setting.scale, training.max_steps."
        " See line 412 of the log, then change trainers.mine.command, the scene or the machine."
        " Try: splatbatch explain p0 --log"
    )


def test_what_was_in_force_when_it_failed_is_not_advised_again() -> None:
    tried = EarlierFailure(1, "cuda_oom", {"training.cap_max": 400_000})
    assert KEYS.findall(after(OURS, tried)) == ["training.resolution", "training.images"]
    assert "training.cap_max" in after(OURS, replace(tried, cause="nan_loss"))
    small = replace(OURS, settings={**OURS.settings, "training.cap_max": 500_000, "training.resolution": "1/2"})
    assert KEYS.findall(after(small)) == ["training.images"]


def test_where_all_has_failed_it_is_said_in_which_attempts() -> None:
    low = {"training.cap_max": 1000, "training.resolution": "1/2", "training.images": "host"}
    assert after(OURS, EarlierFailure(1, "cuda_oom", low), EarlierFailure(2, "cuda_oom", low)) == (
        "GPU memory is full. Failed the same way in attempt 1, attempt 2: all suggested settings have been tried."
        " See line 412 of the log, then change the scene or the machine. Try: splatbatch explain p0 --log"
    )


@pytest.mark.parametrize(
    "cause", [name for name, one in CAUSES.items() if any(isinstance(step, str) for step in one.steps)]
)
def test_what_is_to_be_typed_is_not_used_up_by_attempts(cause: str) -> None:
    failed = Diagnosis(cause, "retry", "So.")
    past = tuple(EarlierFailure(number, cause, OURS.settings) for number in (1, 2, 3))
    assert with_advice(failed, replace(OURS, past=past)).advice == with_advice(failed, OURS).advice


def test_a_signature_that_brings_what_to_type_is_advised_nothing_else() -> None:
    assert with_advice(Diagnosis("cuda_oom", "fail", "So. Try: this"), OURS).advice == "So. Try: this"


def test_a_signature_names_no_setting_of_a_trainer() -> None:
    sections = "|".join(("training", "refinement", "learning_rates", "evaluation"))
    assert [one.advice for one in shipped_signatures() if re.search(rf"\b({sections})\.\w", one.advice)] == []
