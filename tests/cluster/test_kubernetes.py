"""configs/engines/kubernetes.yml: valid, and right about what a worker's exit codes mean."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest
import yaml
from fake_batch import ROOT
from typer.main import get_command

from splatbatch.cli.app import app
from splatbatch.config import Limits
from splatbatch.run.cluster_workers import AGAIN
from splatbatch.run.worker import CANCELLED
from splatbatch.scheduler.work.time_left import MARGIN_S

DOCUMENTS = [one for one in yaml.safe_load_all((ROOT / "configs/engines/kubernetes.yml").read_text()) if one]
CLAIM, JOB = DOCUMENTS
[OF_STORE] = yaml.safe_load_all((ROOT / "configs/engines/kubernetes_s3.yml").read_text())
POD = JOB["spec"]["template"]["spec"]
[WORKER] = POD["containers"]


@pytest.mark.parametrize("version", ["1.31", "1.34"])
@pytest.mark.parametrize("document", [*DOCUMENTS, OF_STORE], ids=lambda one: one["kind"])
def test_kubernetes_takes_every_document(document: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(document, version, strict=True)


def test_a_mistake_in_a_document_is_found() -> None:
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**JOB, "spec": {**JOB["spec"], "paralelism": 8}}, "1.31", strict=True)


def test_every_exit_code_of_a_worker_leads_where_it_should() -> None:
    rules = JOB["spec"]["podFailurePolicy"]["rules"]
    leads = {code: one["action"] for one in rules for code in one.get("onExitCodes", {}).get("values", ())}
    assert leads == {AGAIN: "Ignore", CANCELLED: "FailJob", 1: "FailIndex"} | dict.fromkeys(range(2, 7), "FailJob")
    assert {one["onExitCodes"]["containerName"] for one in rules if "onExitCodes" in one} == {WORKER["name"]}
    assert POD["restartPolicy"] == "Never"  # or Kubernetes refuses the policy


def test_a_worker_has_the_time_to_write_everything_down() -> None:
    assert POD["terminationGracePeriodSeconds"] > Limits().grace_s + MARGIN_S


def test_what_a_pod_runs_is_there() -> None:
    verb, option, config = WORKER["args"]
    assert verb in get_command(app).commands
    assert option == "--config"
    mounts = {one["name"]: one["mountPath"] for one in WORKER["volumeMounts"]}
    assert config.startswith(mounts["batch"] + "/")
    assert {one["name"] for one in POD["volumes"]} == set(mounts)
    assert POD["volumes"][0]["persistentVolumeClaim"]["claimName"] == CLAIM["metadata"]["name"]
    assert "ReadWriteMany" in CLAIM["spec"]["accessModes"]


def test_pods_of_a_store_have_its_url_a_scratch_folder_and_credentials_from_a_secret_alone() -> None:
    pod = OF_STORE["spec"]["template"]["spec"]
    [worker] = pod["containers"]
    mounts = {one["mountPath"] for one in worker["volumeMounts"]}
    assert worker["args"][:2] == ["work", "s3://my-bucket/reef"]
    assert worker["args"][worker["args"].index("--scratch") + 1] in mounts
    assert worker["envFrom"] == [{"secretRef": {"name": "reef-s3"}}]
    assert not any("emptyDir" not in one for one in pod["volumes"])
    rules = OF_STORE["spec"]["podFailurePolicy"]["rules"]
    assert [one["action"] for one in rules] == ["Ignore", "Ignore", "FailJob", "FailIndex"]
