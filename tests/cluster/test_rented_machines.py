"""configs/engines/dstack.yml and skypilot.yml: short, and what they run is there.

Their schemas were checked with the packages of both (docs/benchmarks.md), which these tests do not install.
"""

from __future__ import annotations

import shlex
from typing import Any

import pytest
import yaml
from fake_batch import ROOT
from typer.main import get_command

from splatbatch import __version__
from splatbatch.cli.app import app
from splatbatch.config import Limits
from splatbatch.run.cluster_workers import AGAIN
from splatbatch.scheduler.work.time_left import MARGIN_S

NAMES = ("dstack", "skypilot")


def read(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / f"configs/engines/{name}.yml").read_text())
    return document


@pytest.mark.parametrize("name", NAMES)
def test_a_template_has_forty_lines_at_most(name: str) -> None:
    assert len((ROOT / f"configs/engines/{name}.yml").read_text().splitlines()) <= 40


@pytest.mark.parametrize("name", NAMES)
def test_a_worker_of_a_store_is_started_with_options_that_there_are(name: str) -> None:
    template = read(name)
    program, *words = shlex.split(template["run"] if "run" in template else template["commands"][0])
    assert program.endswith("splatbatch") and words[:2] == ["work", "s3://my-bucket/reef"]
    assert {one for one in words if one.startswith("-")} <= {
        option for one in get_command(app).commands["work"].params for option in one.opts
    }


@pytest.mark.parametrize("name", NAMES)
def test_credentials_are_not_written_into_a_template(name: str) -> None:
    template = read(name)
    given = template.get("secrets", dict.fromkeys(one for one in template.get("env", []) if "=" not in one))
    assert given == {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None}


def test_dstack_leaves_a_worker_the_time_to_send_its_checkpoint() -> None:
    minutes, unit = read("dstack")["stop_duration"][:-1], read("dstack")["stop_duration"][-1]
    assert unit == "m" and 60 * int(minutes) > Limits().grace_s + MARGIN_S
    assert read("dstack")["image"].endswith(f":{__version__}")


def test_skypilot_starts_a_worker_again_that_ends_with_75() -> None:
    assert read("skypilot")["resources"]["job_recovery"]["recover_on_exit_codes"] == [AGAIN]
