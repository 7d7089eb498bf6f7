"""What each check says of facts that are made up: machines with GPUs, drivers and toolkits of every kind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from splatbatch.config import Config, Recipe
from splatbatch.doctor import checks, inventory
from splatbatch.doctor.checks import (
    CheckResult,
    DoctorOutput,
    Machine,
    MachineNeeds,
    TorchBuild,
    TorchProbe,
    disk_mib,
    extras,
    of_job,
    ok,
    problem,
    warning,
)
from splatbatch.machine.gpu import Gpu, GpuAvailability
from splatbatch.scene.memory_estimate import MemoryEstimate

H200 = Gpu(0, "GPU-a", "NVIDIA H200", 143_771, (9, 0))
WELL = Machine(
    GpuAvailability((H200,)),
    "580.95",
    (13, 0),
    TorchBuild("2.11.0+cu130", (13, 0)),
    (64_000, 63_000),
    1 << 20,
)
SEEN = TorchProbe(architectures=("sm_80", "sm_90", "compute_90"), has_gsplat=True)
BROKEN = replace(WELL, presence=GpuAvailability((), ("/dev/nvidia0",), "Driver/library version mismatch"))


def summary(finding: CheckResult) -> tuple[str, int]:
    return finding.state, finding.exit_code


def test_a_machine_that_is_well_has_nothing_but_ok() -> None:
    found = [*checks.of_machine(WELL), *checks.of_kernels(WELL, SEEN, wants_gsplat=True)]
    assert {one.state for one in found} == {"ok"}
    assert DoctorOutput(tuple(found)).exit_code == 0


def test_the_worst_problem_is_the_exit_code() -> None:
    assert DoctorOutput((ok("a", ""), warning("b", "", ""))).exit_code == 0
    assert DoctorOutput((problem("a", "", "", 5), problem("b", "", "", 4))).exit_code == 5


@pytest.mark.parametrize(
    ("facts", "state", "words"),
    [
        (WELL, ("ok", 0), "NVIDIA driver 580.95, CUDA 13.0; NVML answers"),
        (Machine(), ("ok", 0), "no NVIDIA GPU here: trains on the CPU"),
        (BROKEN, ("problem", 5), "/dev/nvidia0), but cannot be used: NVML says: Driver/library version mismatch"),
        (replace(BROKEN, presence=GpuAvailability((), ("/dev/nvidia0",))), ("problem", 5), "(NVML) lists no GPU"),
    ],
)
def test_a_driver_is_judged_by_what_nvml_says(facts: Machine, state: tuple[str, int], words: str) -> None:
    finding = checks.driver(facts)
    assert (summary(finding), words in finding.message) == (state, True), finding


@pytest.mark.parametrize(
    ("driver_cuda", "torch", "state", "words"),
    [
        ((13, 0), TorchBuild("2.11", (13, 0)), ("ok", 0), "which the driver runs"),
        ((13, 1), TorchBuild("2.11", (12, 8)), ("ok", 0), "which the driver runs"),
        ((12, 2), TorchBuild("2.11", (12, 8)), ("ok", 0), "which the driver runs"),
        ((12, 8), TorchBuild("2.11", (13, 0)), ("problem", 5), "the driver is too old: it runs CUDA up to 12.8"),
        (None, TorchBuild("2.11", (13, 0)), ("ok", 0), "CUDA 13.0"),
        ((13, 0), TorchBuild("2.11+cpu", None), ("problem", 4), "built without CUDA, but this machine has a GPU"),
        ((13, 0), None, ("problem", 4), "not installed"),
    ],
)
def test_torch_must_fit_the_driver(
    driver_cuda: tuple[int, int] | None, torch: TorchBuild | None, state: tuple[str, int], words: str
) -> None:
    finding = checks.torch_build(replace(WELL, driver_cuda=driver_cuda, torch=torch))
    assert (summary(finding), words in finding.message) == (state, True), finding


def test_torch_without_cuda_is_right_where_no_gpu_is() -> None:
    assert checks.torch_build(Machine(torch=TorchBuild("2.11+cpu", None))).state == "ok"


@pytest.mark.parametrize(
    ("capability", "architectures", "runs"),
    [
        ((9, 0), ("sm_80", "sm_90"), True),
        ((8, 9), ("sm_80",), True),
        ((8, 0), ("sm_86",), False),
        ((12, 0), ("sm_80", "sm_90"), False),
        ((12, 0), ("sm_90", "compute_90"), True),
        ((7, 0), ("sm_75", "compute_120"), False),
        ((9, 0), ("sm_90a",), True),
        ((10, 3), ("sm_100a",), False),
        ((10, 3), ("sm_100f",), True),
        ((12, 0), ("sm_100f", "gfx942"), False),
    ],
)
def test_code_runs_on_gpus_as_nvidia_says(
    capability: tuple[int, int], architectures: tuple[str, ...], runs: bool
) -> None:
    assert checks.can_run(capability, architectures) == runs


@pytest.mark.parametrize(
    ("seen", "state", "words"),
    [
        (SEEN, ("ok", 0), "sm_90"),
        (TorchProbe(error="no answer within 120 s"), ("problem", 5), "no answer within 120 s"),
        (TorchProbe(architectures=("sm_100",)), ("problem", 4), "no kernel image for compute capability 9.0"),
        (TorchProbe(launch_error="CUDA error: ECC"), ("problem", 5), "ECC"),
    ],
)
def test_torch_must_have_kernels_for_the_gpu(seen: TorchProbe, state: tuple[str, int], words: str) -> None:
    finding = checks.torch_kernels(seen, [(9, 0)])
    assert (summary(finding), words in finding.message) == (state, True), finding


@pytest.mark.parametrize(
    ("changes", "state", "words"),
    [
        ({}, ("ok", 0), "compiled and work"),
        ({"lacking": ("blend",)}, ("ok", 0), "compiled at first use, in seconds"),
        ({"kernels_error": "no NVRTC"}, ("warning", 0), "do not work here: no NVRTC"),
        ({"kernels_error": "no NVRTC", "has_gsplat": False}, ("problem", 4), "do not work here: no NVRTC"),
    ],
)
def test_our_kernels_work_or_gsplats_stand_in(changes: dict[str, object], state: tuple[str, int], words: str) -> None:
    finding = checks.own_kernels(replace(SEEN, **changes))  # type: ignore[arg-type]
    assert (summary(finding), words in finding.message) == (state, True), finding


def test_only_a_batch_that_trains_with_gsplat_needs_its_kernels() -> None:
    without = replace(SEEN, has_gsplat=False)
    assert {one.state for one in checks.of_kernels(WELL, without)} == {"ok"}
    found = {one.check: one.state for one in checks.of_kernels(WELL, without, wants_gsplat=True)}
    assert found["gsplat"] == "problem"


@pytest.mark.parametrize(
    ("shm_mib", "state"),
    [(None, "ok"), ((64, 64), "warning"), ((64, 31), "problem"), ((8000, 63), "problem"), ((8000, 7000), "ok")],
)
def test_shared_memory_is_judged_as_the_gate_of_the_batch_does(shm_mib: tuple[int, int] | None, state: str) -> None:
    assert checks.shared_memory(shm_mib).state == state


def test_little_shared_memory_is_no_problem_if_patches_do_not_wait_for_it() -> None:
    little, needs = replace(WELL, shm_mib=(8000, 63)), MachineNeeds(Path("/out"))
    found = {wanted: checks.of_machine(little, replace(needs, wanted_mib=wanted)) for wanted in (2048, 0)}
    assert {wanted: [one.state for one in each if one.state != "ok"] for wanted, each in found.items()} == {
        2048: ["problem"], 0: [],
    }  # fmt: skip


def test_few_open_files_are_a_warning() -> None:
    assert [checks.open_files(most).state for most in (1024, 4096)] == ["warning", "ok"]


@pytest.mark.parametrize(
    ("changes", "check", "state"),
    [
        ({"can_write": False}, "output folder", ("problem", 5)),
        ({"free_mib": 100, "wanted_mib": 2048}, "disk", ("problem", 5)),
        ({"free_mib": 3000, "wanted_mib": 2048, "need_mib": 2000}, "disk", ("warning", 0)),
        ({"lacking": {"other": ("train.py: no such file",)}}, "trainer other", ("problem", 4)),
    ],
)
def test_what_a_batch_lacks_is_told(changes: dict[str, object], check: str, state: tuple[str, int]) -> None:
    job = MachineNeeds(Path("/out"), free_mib=9000)
    assert {one.state for one in of_job(job)} == {"ok"}
    (finding,) = (one for one in of_job(replace(job, **changes)) if one.state != "ok")  # type: ignore[arg-type]
    assert (finding.check, summary(finding), bool(finding.remedy)) == (check, state, True)


def test_an_extra_that_the_yaml_asks_for_is_missed_others_are_optional() -> None:
    found = extras({"gsply": "0.4"}, frozenset({"apprise", "obstore"}))
    assert [one.check for one in found if one.state == "warning"] == ["extra notify", "extra stores"]


@pytest.mark.parametrize(
    ("sections", "package"),
    [
        ({"scene": {"patches": "patches", "crs": "EPSG:32632"}}, "pyproj"),
        ({"tracking": {"mlflow": "sqlite:///mlflow.db"}}, "mlflow-skinny"),
        ({"executor": {"store": "ssh://host/store"}}, "asyncssh"),
        ({"executor": {"store": "s3://bucket/store"}}, "obstore"),
        ({"evaluation": {"tensorboard": True}}, "tensorboard"),
        ({"publish": {"formats": ["ply", "compressed"]}}, "gsply"),
        ({"executor": {"store": "/mnt/store"}}, ""),
    ],
)
def test_each_extra_that_the_yaml_needs_is_known(sections: dict[str, object], package: str, tmp_path: Path) -> None:
    scene, output = {"patches": tmp_path}, {"folder": tmp_path / "output"}
    config = Config.model_validate({"scene": scene, "output": output, **sections})
    assert inventory.wanted_extras(config) == ({package} if package else set())


def test_a_million_gaussians_take_225_mib_on_disk_and_four_times_that_with_checkpoints() -> None:
    need = MemoryEstimate(0, 0, 1_000_000, "host", 0)
    plain, kept = (Recipe.model_validate({"training": {"checkpoint_every": every}}) for every in (0, 1000))
    assert [disk_mib({"p0": one}, {"p0": need}) for one in (plain, kept)] == [20 + 225, 20 + 900]


@pytest.mark.parametrize(
    ("text", "build"),
    [
        ("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n", TorchBuild("2.13.0+cpu", None)),
        ("__version__ = '2.11.0+cu130'\ncuda: str | None = '13.0'\n", TorchBuild("2.11.0+cu130", (13, 0))),
    ],
)
def test_the_build_of_torch_is_read_from_its_file(text: str, build: TorchBuild) -> None:
    assert checks.parse_build(text) == build
