"""Diagnosis: every known failure, its look-alikes, and the labelled real cases where they are at hand."""

import json
import re
import time
from pathlib import Path

import pytest

from splatbatch.failures.diagnose import diagnose, diagnose_log
from splatbatch.failures.evidence import Evidence
from splatbatch.failures.table import ROWS
from splatbatch.outcome import Cancelled, Exited, Killed, Lost, NotStarted, TimedOut

LOOK_ALIKES = Path(__file__).with_name("look_alikes.txt")
FRESH = Path(__file__).with_name("fresh.jsonl"), Path(__file__).with_name("rounds.jsonl")
CASES = Path(__file__).parents[2].parent / "shared" / "failures" / "dev.jsonl"
OOM = "CUDA out of memory. Tried to allocate"
OLD = "GiB already allocated; {free} GiB free; {used} GiB reserved in total by PyTorch)"
BAR = "Training progress:  40%|####      | 12000/30000 [08:00<12:00, 25.0it/s, Loss=0.04]\n"

# what the log says, exit code, cause, action; at least one for every row of the table
KNOWN = [
    ("NVRM: Xid (PCI:0000:4b:00): 79, pid=77, GPU has fallen off the bus.", 1, "gpu_hardware_fault", "fail"),
    ("RuntimeError: CUDA error: uncorrectable ECC error encountered", 1, "gpu_hardware_fault", "retry"),
    ("RuntimeError: CUDA error: no kernel image is available for execution", 1, "cuda_no_kernel_image", "fail"),
    ("Failed to initialize NVML: Driver/library version mismatch", 1, "cuda_driver_mismatch", "fail"),
    ("CUDA error: CUDA-capable device(s) is/are busy or unavailable", 1, "cuda_busy_or_unavailable", "retry"),
    ("RuntimeError: CUDA unknown error - this may be due to a wrong set-up", 1, "cuda_init_unknown", "retry"),
    ("RuntimeError: No CUDA GPUs are available", 1, "cuda_invalid_device", "fail"),
    ("Unexpected error from cudaGetDeviceCount(). Error 3: initialization error", 1, "cuda_init_unknown", "retry"),
    ("FileNotFoundError: [Errno 2] No such file or directory: '/c/gsplat_cuda/lock'", 1, "jit_build_race", "retry"),
    ("Lock file exists in build directory: '/cache/gsplat_cuda/lock'", None, "jit_lock_stale", "degrade"),
    ("g++: fatal error: Killed signal terminated program cc1plus", 1, "host_oom", "degrade"),
    ("OSError: [WinError 1455] The paging file is too small: c10.dll", 1, "host_oom", "degrade"),
    ("RuntimeError: Error building extension 'gsplat_cuda'", 1, "jit_build_failed", "fail"),
    ("ImportError: /x/_C.so: undefined symbol: _ZN2at4foo", 1, "missing_dependency", "fail"),
    ("DataLoader worker (pid 9) is killed by signal: Bus error.", 1, "shm_bus_error", "degrade"),
    ("    q = mp.SimpleQueue()\nOSError: [Errno 28] No space left on device", 1, "shm_bus_error", "degrade"),
    ("OSError: [Errno 28] inotify watch limit reached", 1, "fd_limit", "degrade"),
    ("OSError: [Errno 28] No space left on device: 'a.ply'", 1, "disk_full", "fail"),
    ("OSError: [Errno 24] Too many open files: 'b.jpg'", 1, "fd_limit", "degrade"),
    ("libgomp: Thread creation failed: Resource temporarily unavailable", 1, "process_limit", "degrade"),
    ("Illegal instruction (core dumped)", 132, "illegal_instruction", "fail"),
    ("run.sh: line 9: 4711 Killed      python train.py", 137, "host_oom", "degrade"),
    ("unable to open shared memory object </torch_7_8> (2)", 1, "dataloader_worker_killed", "retry"),
    ("DataLoader worker (pid(s) 3) exited unexpectedly", 1, "dataloader_worker_killed", "degrade"),
    ("slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 09:00 DUE TO TIME LIMIT ***", 143, "time_limit", "degrade"),
    ("slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 09:00 DUE TO PREEMPTION ***", 143, "interrupted", "retry"),
    ("OSError: [Errno 98] Address already in use", 1, "port_in_use", "degrade"),
    ("  File 'PIL/Png.py', line 3\nstruct.error: unpack_from requires 4 bytes", 1, "corrupt_image", "fail"),
    ("struct.error: unpack requires a buffer of 8 bytes", 1, "colmap_parse", "fail"),
    ("  in read_points3D_text\nValueError: could not convert string to float: 'x'", 1, "colmap_parse", "fail"),
    ("AssertionError: Could not recognize scene type!", 1, "missing_colmap", "fail"),
    ("ValueError: Unsupported camera model: FOV", 1, "unsupported_camera_model", "fail"),
    ("PIL.UnidentifiedImageError: cannot identify image file 'c.jpg'", 1, "corrupt_image", "fail"),
    ("E: Failed to create feature matcher.", 1, "colmap_failed", "fail"),
    ("ERROR: failed to create sparse model", 1, "colmap_failed", "fail"),
    (
        "Number of points at initialisation :  0\nCUDA error: invalid configuration argument",
        1,
        "zero_gaussians",
        "fail",
    ),
    ("Train cameras: 0, Test cameras: 0\nTraining complete.", 0, "no_training_cameras", "fail"),
    (
        "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn",
        1,
        "zero_gaussians",
        "fail",
    ),
    ("invalid gradient at index 3 - got [0, 0, 3] but expected shape compatible", 1, "zero_gaussians", "degrade"),
    ("invalid gradient at index 3 - got [812, 4] but expected shape compatible", 1, "bad_config", "fail"),
    ("RuntimeError: quantile() input tensor is too large", 1, "tensor_limit", "degrade"),
    ("Function 'ExpBackward0' returned nan values in its 0th output.", 1, "nan_loss", "degrade"),
    (
        f"{OOM} 40.0 GiB (GPU 0; 24.0 GiB total capacity; 1.0 {OLD.format(free=22, used=1.2)}",
        1,
        "cuda_absurd_alloc",
        "fail",
    ),
    ("RuntimeError: Trying to create tensor with negative dimension -77", 1, "cuda_absurd_alloc", "fail"),
    (f"{OOM} 1.0 GiB (GPU 0; 24.0 GiB total capacity; 2.0 {OLD.format(free=0.1, used=2.5)}", 1, "cuda_oom", "degrade"),
    (f"  in loadCam\n{OOM} 48.0 MiB", 1, "cuda_oom", "degrade"),
    (f"{BAR}  in training_report\n{OOM} 2.0 GiB", 1, "cuda_oom", "degrade"),
    (f"{BAR}{OOM} 2.0 GiB", 1, "cuda_oom", "degrade"),
    ("RuntimeError: CUDA error: device-side assert triggered", 1, "cuda_device_assert", "fail"),
    ("RuntimeError: CUDA error: invalid configuration argument", 1, "cuda_invalid_configuration", "fail"),
    ("CUDA error: an illegal memory access was encountered", 1, "cuda_illegal_access", "retry"),
    ("CUDA error: unspecified launch failure", 1, "cuda_launch_failure", "retry"),
    ("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR", 1, "cublas_cudnn_error", "degrade"),
    ("CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`", 1, "cublas_cudnn_error", "retry"),
    ("DistBackendError: NCCL error, unhandled system error", 1, "nccl", "retry"),
    ("URLError: <urlopen error [SSL: CERTIFICATE_VERIFY_FAILED]>", 1, "download_failed", "fail"),
    ("urllib.error.URLError: <urlopen error timed out>", 1, "download_failed", "retry"),
    ("OSError: [Errno 116] Stale file handle: '/nas/d.jpg'", 1, "io_error", "retry"),
    ("The size of tensor a (900) must match the size of tensor b (901)", 1, "dims_mismatch", "fail"),
    ("train.py: error: unrecognized arguments: --itertions 9", 2, "bad_config", "fail"),
    ("terminate called after throwing an instance of 'cv::Exception'\nAborted", 134, "missing_image", "fail"),
    ("ERROR:root:Mapper failed with code -1073741819. Exiting.", 1, "segfault", "retry"),
    ("double free or corruption (!prev)\nAborted (core dumped)", 134, "native_abort", "fail"),
    ("PytorchStreamReader failed: failed finding central directory", 1, "corrupt_cache", "degrade"),
    ("FileNotFoundError: [Errno 2] No such file or directory: 'images/e.JPG'", 1, "missing_image", "fail"),
    ("FileNotFoundError: [Errno 2] No such file or directory: 'parts/p3.npy'", 1, "missing_file", "fail"),
    ("F0101 1 mapper.cc:77] Check failed: n >= 2 (1 vs. 2)\nAborted", 134, "colmap_failed", "fail"),
    ("img, radii = rasterizer(\nValueError: too many values to unpack (expected 2)", 1, "missing_dependency", "fail"),
    ("TypeError: unsupported operand type(s) for -: 'float' and 'NoneType'", 1, "program_bug", "fail"),
    ("incremental_mapper.cc:273] => No good initial image pair found.", 1, "colmap_failed", "fail"),
    ("KeyboardInterrupt", 1, "interrupted", "retry"),
]


@pytest.mark.parametrize(("log", "code", "cause", "action"), KNOWN, ids=[f"{c}: {t[:50]}" for t, _, c, _ in KNOWN])
def test_a_known_failure_is_recognised(log, code, cause, action):
    found = diagnose_log(f"Reading camera 9/9\n{log}\n", code)
    assert (found.cause, found.action) == (cause, action)


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


def test_every_row_of_the_table_has_an_example():
    examples = [(log, (code, None)) for log, code, *_ in (*KNOWN, *(param.values for param in look_alikes()))]
    examples += [param.values[:2] for param in fresh_cases()]
    advices = {diagnose_log(log, *end).advice.partition(" Try: ")[0] for log, end in examples}
    assert [row.cause for row in ROWS if row.advice not in advices] == []


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


def test_the_labelled_real_cases_reach_the_bars():
    if not CASES.exists():
        pytest.skip(f"no labelled cases at {CASES}")
    cases = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
    found = [diagnose_log(case["text"], case["exit_code"], case["signal"]) for case in cases]
    fit = [{case["action"], *case["also_ok"]} for case in cases]
    assert sum(f.cause == case["category"] for f, case in zip(found, cases, strict=True)) >= 0.97 * len(cases)
    assert sum(f.action in actions for f, actions in zip(found, fit, strict=True)) >= 0.98 * len(cases)
    assert not [f for f, actions in zip(found, fit, strict=True) if f.action == "retry" and "retry" not in actions]


def spelled(number):
    """Return a number in letters, so that no two lines are alike."""
    return "".join(chr(97 + int(digit)) for digit in str(number))


def test_a_full_disk_is_found_before_any_length_of_symptoms():
    symptoms = "".join(f"  [retry {n}] cannot append to events: write returned -1 at {n * 7}\n" for n in range(4200))
    log = f"step 6990\nOSError: [Errno 28] No space left on device: 'ckpt.pt'\n{symptoms}RuntimeError: writer gave up\n"
    found = diagnose_log(log, 1)
    assert (len(log) > 270_000, found.cause, found.evidence[0][:7]) == (True, "disk_full", "line 2:")


def test_an_unknown_failure_is_quoted_by_its_last_exception_not_its_last_line():
    log = "step 9\nTraceback (most recent call last):\n  File 'a.py', line 1\nDockingRefused: taken\nfiles: 3\nbye\n"
    found = diagnose_log(log, 1)
    assert (found.cause, found.evidence[-1]) == ("unknown", "line 4: DockingRefused: taken")


@pytest.mark.slow(but=r"x\n")
@pytest.mark.parametrize("line", [BAR, "x\n", "cuda image shape error No {0}\n", "{0}Error: not found\n", "\n"])
def test_a_mebibyte_is_explained_in_a_fraction_of_a_second(line):
    """0.3 s is what it may take on a quiet machine; on one that is shared CPU time counts up to thrice."""
    log = "".join(line.replace("{0}", spelled(n)) for n in range((1 << 20) // len(line)))[: 1 << 20]
    seconds = []
    for _ in range(3):
        begin = time.process_time()
        found = diagnose_log(f"{log}\nRuntimeError: CUDA out of memory\n", 1)
        seconds.append(time.process_time() - begin)
    assert (min(seconds) < 0.9, found.cause) == (True, "cuda_oom")
