"""Diagnosis: how processes end, look-alikes, fresh cases, and the labelled real cases where they are at hand."""

import json
import re
import time
from pathlib import Path

import pytest
from logs import diagnose_log

from splatbatch.failures.diagnose import diagnose
from splatbatch.failures.evidence import Evidence
from splatbatch.outcome import Cancelled, Exited, Killed, Lost, NotStarted, TimedOut

LOOK_ALIKES = Path(__file__).with_name("look_alikes.txt")
FRESH = Path(__file__).with_name("fresh.jsonl"), Path(__file__).with_name("rounds.jsonl")
CASES = Path(__file__).parents[2].parent / "shared" / "failures" / "dev.jsonl"
BAR = "Training progress:  40%|####      | 12000/30000 [08:00<12:00, 25.0it/s, Loss=0.04]\n"


def look_alikes():
    """Read each look-alike: its sentence, exit code, cause and action, and below it, indented, its log."""
    for block in LOOK_ALIKES.read_text(encoding="utf-8").strip().split("\n\n"):
        head, *lines = block.split("\n")
        sentence, code, cause, action = re.fullmatch(r"(.+): exit (\S+) -> (\w+) (\w+)", head).groups()
        log = "\n".join(line.removeprefix("    ") for line in lines)
        yield pytest.param(log, None if code == "None" else int(code), cause, action, id=sentence)


@pytest.mark.parametrize(("log", "code", "cause", "action"), list(look_alikes()))
def test_a_look_alike_is_told_apart(log, code, cause, action):
    found = diagnose_log(log, code)
    assert (found.cause, found.action) == (cause, action)


def fresh_cases():
    """Read cases of our own making: what the programs print, judged once before the rules were mended."""
    for line in (line for file in FRESH for line in file.read_text(encoding="utf-8").splitlines()):
        case = json.loads(line)
        end = case["exit_code"], case["signal"]
        yield pytest.param(case["text"], end, case["cause"], case["action"], id=case["id"])


@pytest.mark.parametrize(("log", "end", "cause", "action"), list(fresh_cases()))
def test_a_fresh_case_is_recognised(log, end, cause, action):
    found = diagnose_log(log, *end)
    assert (found.cause, found.action) == (cause, action)


ENDS = {
    "our wall limit": (TimedOut("wall", 60.0), "time_limit", "degrade"),
    "our stall limit": (TimedOut("stall", 60.0), "hang", "retry"),
    "a cancelled run": (Cancelled("user"), "interrupted", "retry"),
    "a lost node": (Lost("NODE_FAIL"), "interrupted", "retry"),
    "a lost word": (Lost("gone"), "lost", "retry"),
    "no such program": (NotStarted("[Errno 13] exec format"), "not_started", "fail"),
    "a crash": (Killed(11), "segfault", "retry"),
    "a bus error": (Killed(7), "shm_bus_error", "degrade"),
    "a kill": (Killed(9), "host_oom", "degrade"),
    "an abort": (Killed(6), "native_abort", "fail"),
    "a wrong command line": (Exited(2), "bad_config", "fail"),
    "a missing program": (Exited(127), "missing_dependency", "fail"),
    "an unknown failure": (Exited(1), "unknown", "retry"),
    "success without a splat": (Exited(0), "incomplete_artifact", "retry"),
}


@pytest.mark.parametrize("name", ENDS)
def test_an_end_says_something_where_the_log_says_nothing(name):
    end, cause, action = ENDS[name]
    found = diagnose(Evidence(end, "step 12\n", phase="train", step=12, artifact="missing"))
    assert (found.cause, found.action, found.phase) == (cause, action, "train")


def test_a_training_that_waits_for_a_lock_is_no_mere_hang():
    waits = "Building extension gsplat_cuda\nLock file exists in build directory: '/c/gsplat_cuda/lock'\n"
    assert diagnose(Evidence(TimedOut("stall", 60.0), waits)).cause == "jit_lock_stale"
    assert diagnose(Evidence(TimedOut("stall", 60.0), waits + BAR)).cause == "hang"


@pytest.mark.parametrize("end", [Killed(11), Exited(245), TimedOut("stall", 60.0), Exited(1)])
def test_whatever_happens_after_a_whole_splat_is_only_a_warning(end):
    found = diagnose(Evidence(end, "CUDA error: out of memory", artifact=""))
    assert (found.cause, found.action) == ("none", "ok")
    assert "ended badly" in found.advice


@pytest.mark.parametrize(
    ("artifact", "cause", "action"),
    [
        ("cut: 120 of 400 bytes", "incomplete_artifact", "retry"),
        ("from step 200, not from the last step 300", "incomplete_artifact", "retry"),
        ("not finite: 3 of 9 Gaussians", "nan_loss", "degrade"),
        ("empty: 0 Gaussians", "zero_gaussians", "degrade"),
    ],
)
def test_exit_0_with_a_spoilt_splat_is_a_failure(artifact, cause, action):
    found = diagnose(Evidence(Exited(0), "Training complete.", artifact=artifact))
    assert (found.cause, found.action) == (cause, action)


@pytest.mark.parametrize(
    ("why", "words"), [("cut: 1 of 4 bytes", "df -h"), ("which was trained from other inputs", "")]
)
def test_a_splat_that_does_not_count_leads_to_the_disk_only_where_one_may_be_to_blame(why, words):
    advice = diagnose(Evidence(Exited(0), "Training complete.", artifact=why)).advice
    assert ("df -h" in advice, "the disk" in advice) == (bool(words), bool(words))


def test_the_log_may_explain_a_spoilt_splat():
    log = "OSError: [Errno 28] No space left on device\nTraining complete."
    assert diagnose(Evidence(Exited(0), log, artifact="missing")).cause == "disk_full"


@pytest.mark.parametrize(
    ("health", "cause", "action"),
    [
        ("zero_gradients: 50 steps", "zero_gradients", "degrade"),
        ("no_densification: at step 600", "no_densification", "degrade"),
        ("collapse: 9000 to 0 Gaussians", "zero_gaussians", "degrade"),
        ("overfit: 54 dB on training images", "none", "ok"),
    ],
)
def test_a_whole_splat_that_learned_nothing_is_a_failure(health, cause, action):
    found = diagnose(Evidence(Exited(0), "", phase="train", artifact="", health=health))
    assert (found.cause, found.action) == (cause, action)
    assert health in " ".join((*found.evidence, found.advice))


def test_the_memory_killer_outweighs_the_log():
    seen = Evidence(Exited(1), "DataLoader worker (pid 3) exited unexpectedly", artifact="missing", oom_killed=True)
    assert diagnose(seen).cause == "host_oom"


def test_kernel_lines_are_evidence_from_outside_the_log():
    xid = "NVRM: Xid (PCI:0000:4b:00): 79, GPU has fallen off the bus."
    found = diagnose(Evidence(Killed(9), "step 3", artifact="missing", kernel_lines=(xid,)))
    assert (found.cause, found.evidence) == ("gpu_hardware_fault", (f"outside the log: {xid}",))


def test_a_watched_attempt_may_be_tried_again_where_a_log_alone_may_not():
    log = "RuntimeError: CUDA error: invalid configuration argument"
    assert diagnose(Evidence(Exited(1), log, phase="train", step=0, artifact="missing")).action == "retry"
    assert diagnose_log(log, 1).action == "fail"


def test_lines_are_quoted_with_their_number_and_cut_around_what_matters():
    bar = "\r".join(f"{'#' * 300} {step}/900" for step in range(9))
    found = diagnose_log(
        f"one\r\n\x1b[31mtwo\x1b[0m\n{bar}\nRuntimeError: {'x' * 900} CUDA out of memory {'y' * 900}", 1
    )
    assert found.evidence[0].startswith("line 4: x")
    assert "CUDA out of memory" in found.evidence[0]
    assert len(found.evidence[0]) < 260


@pytest.mark.parametrize(
    "line", [BAR, "  File '/py/torch/nn/module.py', line 9, in call\n", "cuda image shape error No ", "x"]
)
def test_a_long_log_is_explained_within_a_second(line):
    log = (line * (100_000 // len(line)))[:100_000]
    begin = time.process_time()
    diagnose_log(log, 1)
    assert time.process_time() - begin < 1.0


@pytest.mark.parametrize("words", ["x", "CUDA ", "cuda image shape error No ", "Training:  4% ", "[1/2] "])
def test_a_line_without_end_is_explained_by_its_beginning_and_its_end(words):
    line = (words * (1 << 18))[: 1 << 18]
    begin = time.process_time()
    found = diagnose_log(f"one\n{line[:-30]} CUDA out of memory\n", 1)
    assert time.process_time() - begin < 0.5
    assert (found.cause, found.evidence[0][:7]) == ("cuda_oom", "line 2:")


def test_the_labelled_real_cases_are_all_told_apart(record_property):
    if not CASES.exists():
        pytest.skip(f"no labelled cases at {CASES}")
    cases = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
    found = [diagnose_log(case["text"], case["exit_code"], case["signal"]) for case in cases]
    fit = [{case["action"], *case["also_ok"]} for case in cases]
    right = [
        one.cause == case["category"] and one.action in ok for one, case, ok in zip(found, cases, fit, strict=True)
    ]
    record_property("figure", f"{sum(right)} of {len(cases)} real failures have their cause and action")
    assert [case["id"] for f, case in zip(found, cases, strict=True) if f.cause != case["category"]] == []
    assert [case["id"] for f, case, actions in zip(found, cases, fit, strict=True) if f.action not in actions] == []


def spelled(number):
    """Return a number in letters, so that no two lines are alike."""
    return "".join(chr(97 + int(digit)) for digit in str(number))


def test_a_full_disk_is_found_before_any_length_of_symptoms():
    symptoms = "".join(f"  [retry {n}] cannot append to events: write returned -1 at {n * 7}\n" for n in range(4200))
    log = f"step 6990\nOSError: [Errno 28] No space left on device: 'ckpt.pt'\n{symptoms}RuntimeError: writer gave up\n"
    found = diagnose_log(log, 1)
    assert (len(log) > 270_000, found.cause, found.evidence[0][:7]) == (True, "disk_full", "line 2:")


def test_an_unknown_failure_is_quoted_by_its_last_lines_and_its_last_exception():
    told = "".join(f"copying file {spelled(n)}\n" for n in range(9))
    log = f"step 9\nTraceback (most recent call last):\n  File 'a.py', line 1\nDockingRefused: taken\n{told}{told}bye\n"
    found = diagnose_log(log, 1)
    assert (found.cause, found.evidence[-1]) == ("unknown", "line 4: DockingRefused: taken")
    assert (len(found.evidence), found.evidence[-2]) == (8, "line 23: bye")


def test_a_panic_is_quoted_by_its_sentence_not_by_its_place():
    log = "thread 'main' panicked at crates/brush-train/src/train.rs:80:9:\nindex out of bounds: the len is 14\n"
    assert diagnose_log(log, 101).evidence == ("line 2: index out of bounds: the len is 14",)


@pytest.mark.all(but=r"x\n")
@pytest.mark.parametrize("line", [BAR, "x\n", "cuda image shape error No {0}\n", "{0}Error: not found\n", "\n"])
def test_a_mebibyte_is_explained_in_a_fraction_of_a_second(line):
    """It may take as long as counting to 32 million: about 2 s on a machine where 0.3 s are usual."""
    log = "".join(line.replace("{0}", spelled(n)) for n in range((1 << 20) // len(line)))[: 1 << 20]
    shares = []
    for _ in range(3):
        begin = time.process_time()
        found = diagnose_log(f"{log}\nRuntimeError: CUDA out of memory\n", 1)
        took = time.process_time() - begin
        sum(n & 1 for n in range(2_000_000))
        shares.append(took / (time.process_time() - begin - took) / 16)
    assert (min(shares) < 1, found.cause) == (True, "cuda_oom"), shares
