"""Who may import whom, and what the parent of a batch never loads."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fake_batch import FakeBatch

ROOT = Path(__file__).parents[1]
LINT_IMPORTS = Path(sys.executable).with_name("lint-imports")
HEAVY = {"torch", "gsplat", "pycolmap", "scipy"}
TELL = """
import atexit, json, os, sys
me = os.getpid()
def tell():
    if os.getpid() == me:
        open({told!r}, "w").write(json.dumps(sorted(sys.modules)))
atexit.register(tell)
sys.argv = [{fake!r}, *{arguments!r}]
sys.path.insert(0, {tests!r})
import runpy
runpy.run_path({fake!r}, run_name="__main__")
"""


def modules_of(batch: FakeBatch, arguments: list[str]) -> set[str]:
    """Run a command in a process of its own; return what it had imported at its end."""
    tests, told = ROOT / "tests" / "testing", batch.folder / "modules.json"
    facts = {"told": str(told), "fake": str(tests / "fake_trainer.py"), "arguments": arguments, "tests": str(tests)}
    command = [sys.executable, "-c", TELL.format(**facts)]
    subprocess.run(command, env=batch.environment(), capture_output=True, timeout=60, check=False)
    return set(json.loads(told.read_text()))


@pytest.mark.contract
@pytest.mark.skipif(not LINT_IMPORTS.exists(), reason="import-linter is not installed")
def test_the_import_contracts_hold() -> None:
    ended = subprocess.run([LINT_IMPORTS, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-2000:]


@pytest.mark.contract
def test_train_loads_what_follows_or_travels_only_where_it_is_asked_for(batch: FakeBatch) -> None:
    loaded = modules_of(batch.make("p0").script(p0=["train"]), ["train"])
    assert "splatbatch.run.train" in loaded
    rooms = {name.split(".")[1] for name in loaded if name.startswith("splatbatch.")}
    assert rooms & {"report", "publish", "transfer", "cluster", "reconstruction"} == set()


@pytest.mark.contract
@pytest.mark.all(but="train")
@pytest.mark.parametrize(
    "arguments",
    [["train"], ["train", "--dry-run"], ["retry", "--failed"], ["verify-dims"], ["status"], ["report"]],
    ids=" ".join,
)
def test_the_parent_never_loads_torch_gsplat_or_pycolmap(batch: FakeBatch, arguments: list[str]) -> None:
    batch.make("p0").script(p0=["exit 1 CUDA error: out of memory", "train"])
    loaded = modules_of(batch, arguments)
    assert "splatbatch.cli" in loaded
    assert {name.partition(".")[0] for name in loaded} & HEAVY == set()


@pytest.mark.contract
def test_the_status_loads_neither_the_audit_nor_the_trainers() -> None:
    code = "import sys; import splatbatch.cli.status, splatbatch.run.status; print(sorted(sys.modules))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    unneeded = {"numpy", "pynvml", "splatbatch.scene.audit.audit", "splatbatch.trainers", "splatbatch.scheduler.loop"}
    assert not unneeded & set(eval(said))


@pytest.mark.contract
def test_help_loads_next_to_nothing(batch: FakeBatch) -> None:
    loaded = modules_of(batch.make("p0"), ["--help"])
    # the fake trainer itself needs numpy and pydantic, the command line does not
    assert not {"splatbatch.run.train", "splatbatch.run.plan", "splatbatch.scheduler.loop", "pynvml"} & loaded
    code = "import sys; from splatbatch import cli; print(sorted({name.partition('.')[0] for name in sys.modules}))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"numpy", "pydantic", "yaml", "PIL", *HEAVY} & set(eval(said))


@pytest.mark.contract
def test_the_supervisor_loads_neither_numpy_nor_torch_nor_what_reads_a_config() -> None:
    code = "import sys; import splatbatch.supervisor.watch; print(set(sys.modules))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded: set[str] = eval(said)
    assert not {"numpy", "pydantic", "yaml", *HEAVY} & {name.partition(".")[0] for name in loaded}
    assert not {f"splatbatch.{room}" for room in ("config", "scene", "splats", "tasks", "output.layout")} & loaded


READS_JSON = re.compile(r"\b(read_json|read_lines|last_line|json\.loads?)\(")
OF_OTHERS = {
    "files.py": "defines them",
    "scene/photos/headers.py": "sizes of photographs, a cache of its own",
    "scene/partition/files.py": "partition.json, which lies beside the patches",
    "scene/partition/plan.py": "boxes drawn by hand",
    "publish/tiles/glb.py": "tilesets and binary glTFs, as they lie in a folder to hand over",
    "publish/tool.py": "package.json of a package of npm",
    "publish/tiles/write.py": "a tileset that it wrote, in a folder to hand over",
    "scene/imports/colmap_export.py": "where on Earth OpenSfM says that a model lies",
    "supervisor/apprise_urls.py": "a message on its stdin",
    "monitor/mlflow_runs.py": "its order, on stdin",
    "supervisor/preload.py": "what a process that waits is told to run, by its socket",
    "training/checkpoint.py": "a checkpoint",
}


def test_no_json_of_the_output_folder_is_opened_outside_output() -> None:
    package = ROOT / "splatbatch"
    readers = {path.relative_to(package) for path in package.rglob("*.py") if READS_JSON.search(path.read_text())}
    assert {str(path) for path in readers if path.parts[0] != "output"} == OF_OTHERS.keys()


def test_fields_of_records_are_parsed_in_output_alone() -> None:
    package = ROOT / "splatbatch"
    parsers = {
        path.relative_to(package) for path in package.rglob("*.py") if "splatbatch.fields import" in path.read_text()
    }
    others = {"outcome.py", "scene/photos/headers.py", "tasks/status.py"}
    # what stands there is no record: a YAML as it was read, and the answer of a program of ours
    others |= {"config/sweep/sweep.py", "config/trainers/program_checks.py", "doctor/examination.py"}
    others |= {"run/explain.py"}  # settings.json holds a tree of settings, as any version had them
    others |= {"scene/imports/transforms.py"}  # other programs' files
    others |= {"transfer/bundle.py"}  # sections of a YAML that a store brings
    assert {str(path) for path in parsers if path.parts[0] != "output"} == others
