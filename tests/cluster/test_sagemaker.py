"""configs/engines/sagemaker: a training job, run in folders laid out as in SageMaker's container."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from fake_batch import ROOT, FakeBatch
from process_family import left_of, wait_until
from programs import put_programs

SETTINGS = ROOT / "configs/engines/sagemaker"
QUICK = {"training": {"colors": "as_is"}, "limits": {"grace_s": 0.5, "free_disk_mib": 0}}

BESIDE = ["publish.json", "report.html", "report.json", "report.md"]
"""What a model holds beside its splats."""


@dataclass
class Host:
    """One host of a job: its /opt/ml."""

    batch: FakeBatch
    root: Path

    def lay_out(
        self, parameters: Mapping[str, str] = {}, hosts: tuple[str, ...] = ("algo-1",), me: str = "algo-1"
    ) -> Host:
        (self.root / "input/config").mkdir(parents=True)
        (self.root / "input/config/hyperparameters.json").write_text(json.dumps(dict(parameters)))
        resources = {"current_host": me, "hosts": list(hosts)}
        (self.root / "input/config/resourceconfig.json").write_text(json.dumps(resources))
        scene = self.root / "input/data/scene"
        shutil.copytree(self.batch.folder / "patches", scene / "patches")
        shutil.copytree(self.batch.folder / "images", scene / "images")
        shutil.copy(self.batch.config, scene)
        return self

    def start(self) -> subprocess.Popen[str]:
        environment = put_programs(self.batch, self.root.parent / "bin") | {"SPLATBATCH_ML_ROOT": str(self.root)}
        command = [sys.executable, str(SETTINGS / "entry.py")]
        return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self) -> tuple[int, str]:
        job = self.start()
        _, err = job.communicate(timeout=120)
        return job.returncode, err

    @property
    def failure(self) -> str:
        return (self.root / "output/failure").read_text()

    def models(self) -> list[str]:
        return sorted(path.name for path in (self.root / "model").iterdir())


@pytest.fixture
def host(batch: FakeBatch, tmp_path: Path) -> Host:
    return Host(batch, tmp_path / "opt/ml")


@pytest.mark.all
def test_a_job_trains_its_channel_and_leaves_splats_and_report_as_its_model(batch: FakeBatch, host: Host) -> None:
    batch.make("p0", "p1", **QUICK)
    code, err = host.lay_out({"config": '"splat_config.yml"', "sagemaker_program": '"x"', "for": '"1h"'}).run()
    assert (code, host.models()) == (
        0,
        ["p0.ply", "p1.ply", *BESIDE],
    ), err
    assert (host.root / "checkpoints/patches/p0/result.json").is_file()
    assert not (host.root / "output/failure").exists()


@pytest.mark.all
def test_a_job_that_is_interrupted_ends_in_time_with_what_it_has_and_another_goes_on(
    batch: FakeBatch, host: Host, tmp_path: Path
) -> None:
    batch.make("p0", "p1", **QUICK).script(p0=["train"], p1=["train 600", "train"])
    job = host.lay_out().start()
    wait_until(lambda: list(host.root.glob("checkpoints/patches/p0/result.json")))
    wait_until(lambda: list(host.root.glob("checkpoints/patches/p1/attempt-01/start.json")))
    began = time.monotonic()
    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=60)
    assert (job.returncode, host.models()) == (
        75,
        ["p0.ply", *BESIDE],
    )
    assert time.monotonic() - began < 30
    assert left_of(batch) == []
    later = Host(batch, tmp_path / "later/ml").lay_out()
    shutil.copytree(host.root / "checkpoints", later.root / "checkpoints")  # as S3 brings it back: copies, new times
    assert later.run()[0] == 0
    assert later.models()[:2] == ["p0.ply", "p1.ply"]
    accepted = [len(list(later.root.glob(f"checkpoints/patches/{name}/attempt-*"))) for name in ("p0", "p1")]
    assert accepted == [1, 2]


@pytest.mark.all
def test_hosts_that_share_a_file_system_share_the_batch(batch: FakeBatch, tmp_path: Path) -> None:
    names = [f"p{number}" for number in range(6)]
    batch.make(*names, **QUICK)
    hosts = [
        Host(batch, tmp_path / name / "ml").lay_out(hosts=("algo-1", "algo-2"), me=name)
        for name in ("algo-1", "algo-2")
    ]
    (tmp_path / "fsx").mkdir()
    for one in hosts:
        (one.root / "input/data/output").symlink_to(tmp_path / "fsx")
    jobs = [one.start() for one in hosts]
    assert [job.communicate(timeout=120) and job.returncode for job in jobs] == [0, 0]
    assert len(list((tmp_path / "fsx/ledger").glob("*.jsonl"))) == 2
    assert hosts[0].models()[:6] == [f"{name}.ply" for name in names]
    assert not (hosts[1].root / "model").exists()


@pytest.mark.all
def test_hosts_of_a_store_share_nothing_and_send_what_they_train(batch: FakeBatch, tmp_path: Path) -> None:
    url = f"file://{tmp_path / 'store'}"
    batch.make("p0", "p1", **QUICK).run_apart("pack", "--to", url)
    names = ("algo-1", "algo-2")
    hosts = [Host(batch, tmp_path / name / "ml").lay_out({"store": url, "for": "1h"}, names, name) for name in names]
    jobs = [one.start() for one in hosts]
    assert [job.communicate(timeout=120) and job.returncode for job in jobs] == [0, 0]
    assert len(list((tmp_path / "store/results").glob("*.trained.*"))) >= 2
    assert not (hosts[0].root / "model").exists()


@pytest.mark.contract
def test_hosts_that_share_nothing_are_refused_where_the_console_shows_it(batch: FakeBatch, host: Host) -> None:
    batch.make("p0", **QUICK)
    assert host.lay_out(hosts=("algo-1", "algo-2")).run()[0] == 5
    assert "2 instances share no folder" in host.failure
    assert "FSx" in host.failure


@pytest.mark.all
def test_a_hyperparameter_nobody_knows_and_a_yaml_that_is_not_there_are_named(
    batch: FakeBatch, host: Host, tmp_path: Path
) -> None:
    batch.make("p0", **QUICK)
    assert host.lay_out({"steps": "7"}).run()[0] == 2
    assert "hyperparameter steps: unknown" in host.failure
    other = Host(batch, tmp_path / "other/ml").lay_out({"config": "night.yml"})
    assert other.run()[0] == 2
    assert "night.yml: no such file" in other.failure


@pytest.mark.all
def test_why_patches_have_no_splat_is_the_jobs_failure(batch: FakeBatch, host: Host) -> None:
    batch.make("p0", "p1", **QUICK, retry={"max_attempts": 1}).script(p0=["exit 1 odd"])
    code, _ = host.lay_out().run()
    assert (code, host.models()[0]) == (1, "p1.ply")
    assert "exit code 1" in host.failure
    assert len(host.failure.encode()) <= 1024


def test_sagemaker_takes_the_request() -> None:
    session = pytest.importorskip("botocore.session").get_session()
    from botocore.validate import ParamValidator

    request = json.loads((SETTINGS / "training_job.json").read_text())
    shape = session.get_service_model("sagemaker").operation_model("CreateTrainingJob").input_shape
    assert ParamValidator().validate(request, shape).generate_report() == ""
    entry = request["AlgorithmSpecification"]["ContainerEntrypoint"][-1]
    assert (ROOT / "configs" / entry.removeprefix("/opt/splatbatch/share/splatbatch/")).is_file()
    channels = {one["ChannelName"] for one in request["InputDataConfig"]}
    assert channels <= {"scene", "output"}
