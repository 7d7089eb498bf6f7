"""Names of classes, fields and modules may change; what they become on disk, in hashes and in JSON may not.

tests/samples/names.json holds it; this file, run as a program, writes it anew, which is a commit of its own.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import pkgutil
import re
import shutil
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import splatbatch
from splatbatch.cli import schema
from splatbatch.config import Recipe, Training
from splatbatch.output.events import KINDS, NOTICES, Notice
from splatbatch.output.records.record import TypedRecord
from splatbatch.scene.memory_estimate import MemoryEstimate
from splatbatch.scene.partition.record import json_schema as partition_schema
from splatbatch.tasks.estimates import Forecast
from splatbatch.tasks.fingerprint import recipe_hash

ROOT = Path(__file__).resolve().parents[1]
RECORDED = ROOT / "tests/samples/names.json"
SAMPLE = ROOT / "tests/samples/trained-0.2.0"
PRINTED = (
    ("plan",),
    ("status",),
    ("explain", "p0"),
    ("report",),
    ("verify-dims",),
    ("clean", "--dry-run"),
    ("config", "show"),
)
"""What is printed with --json of an output folder that version 0.2.0 wrote."""


NOT_HERE = "splatbatch.training"
"""It loads torch, and has no records of its own."""


def keys_of_records() -> list[str]:
    """Return the fields of all classes that are read or written as JSON or YAML; a class is no more than these."""
    for module in pkgutil.walk_packages(splatbatch.__path__, "splatbatch."):
        if not module.name.startswith(NOT_HERE) and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    every = subclasses(TypedRecord, BaseModel) - {Notice}
    found = {" ".join([*names_of(one), *getattr(one, "told", ())]) for one in every}
    partition = partition_schema()  # of plain dataclasses, whose fields have other names in the file
    found |= {" ".join(one["properties"]) for one in (partition, *partition["$defs"].values())}
    return sorted(found | {" ".join(names_of_event(name)) for name in NOTICES})


def subclasses(*kinds: type) -> set[type]:
    found = {one for kind in kinds for one in kind.__subclasses__()}
    ours = {one for one in found if one.__module__.startswith("splatbatch.")}
    return ours | subclasses(*found) if found else set()


def names_of(kind: Any) -> list[str]:
    return [one.name for one in fields(kind)] if is_dataclass(kind) else list(kind.model_fields)


def names_of_event(name: str) -> list[str]:
    """Return what stands in the ledger of an event: of a notice, what its sentence names, or what is kept of it."""
    if name not in NOTICES:
        return names_of(KINDS[name])
    kept = {"expected": ["patch", *names_of(MemoryEstimate)], "forecast": [*names_of(Forecast), "text"]}
    key, sentence = NOTICES[name]
    return ["t", "generation", *kept.get(name, re.findall(r"{(\w+)}", sentence.replace("{words}", f"{{{key}}}")))]


def shape_of(found: Any, known: dict[str, Any], inside: tuple[str, ...] = ()) -> Any:
    """Return a schema without names of classes and without words."""
    if isinstance(found, list):
        return [shape_of(one, known, inside) for one in found]
    if not isinstance(found, dict):
        return found
    if name := found.get("$ref", "").rpartition("/")[2]:
        return "itself" if name in inside else shape_of(known[name], known, (*inside, name))
    if "properties" in found:
        shapes = {name: shape_of(one, known, inside) for name, one in found["properties"].items()}
        return {"properties": shapes, "required": found.get("required")}
    left_out = ("title", "description", "default", "$defs", "discriminator")
    return {key: shape_of(one, known, inside) for key, one in found.items() if key not in left_out}


def shapes_printed() -> dict[str, str]:
    """Return hashes of what each command prints with --json, by its schema."""
    found = {command: schema.schema_of(command) for command in (*schema.printed(), "config show")}
    return {command: short(shape_of(one, one.get("$defs", {}))) for command, one in found.items()}


def short(found: object) -> str:
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16]


def hashes_of_recipes() -> dict[str, str]:
    """Return hashes of settings."""
    made = {
        "usual": Recipe(),
        "mcmc": Recipe(training=Training(strategy="mcmc", max_steps=100, sh_degree=1, device="cpu")),
        "colors": Recipe(training=Training(colors="as_is", border="none", coarse_to_fine=False)),
    }
    return {name: recipe_hash(recipe) for name, recipe in made.items()}


def identity_of_checkpoint() -> str:
    """Return what tells whether a run may go on from a checkpoint, of a made-up patch with a border and a backdrop."""
    import torch

    from splatbatch.training import checkpoint
    from splatbatch.training.border import Boundary, PatchBorder
    from splatbatch.training.frame import LocalFrame
    from splatbatch.training.photos.dataset import TrainingImages
    from splatbatch.training.photos.posed_image import PosedImage
    from splatbatch.training.rendering.view import RenderCamera

    def numbers(*shape: int, start: int = 0) -> torch.Tensor:
        return torch.arange(start, start + torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)

    view, flags = RenderCamera(numbers(4, 4), numbers(3, 3), 8, 8), numbers(8, 8) > 9
    pixels = numbers(8, 8, 3).to(torch.uint8)
    photos = [
        PosedImage(f"img{number}.png", view, pixels, mask, tone, mask)
        for number, (mask, tone) in enumerate(((None, None), (flags, numbers(3))))
    ]
    bounds = Boundary(numbers(3, 3), numbers(2, 3, start=1), numbers(2, 3, start=2), 0.5)
    behind = {"means": numbers(2, 3), "scales": numbers(2, 3, start=3)}
    around = PatchBorder(bounds, behind, {"means": numbers(1, 3, start=5)})
    frame = LocalFrame(numbers(3).numpy(), 1.0, 1.0)
    views = TrainingImages(tuple(photos), tuple(photos[:1]), frame, (), {}, around)
    return checkpoint.identity(Recipe(), views, {"means": numbers(4, 3), "quats": numbers(4, 4)})


def names_on_disk() -> dict[str, Any]:
    return {
        "records": keys_of_records(),
        "events": {name: names_of_event(name) for name in sorted(KINDS)},
        "shapes": shapes_printed(),
        "recipes": hashes_of_recipes(),
        "checkpoint": identity_of_checkpoint(),
    }


def printed_of_sample(folder: Path) -> dict[str, Any]:
    """Return what the commands print of the sample."""
    from command_line import invoke

    sys.path.insert(0, str(ROOT / "tests/nights"))
    mask_of = importlib.import_module("may_differ").Mask
    reef, found = Path(shutil.copytree(SAMPLE, folder / "reef")), {}
    for command in PRINTED:
        arguments = (
            *command,
            *(("--json",) if command[0] != "config" else ()),
            "--config",
            str(reef / "splat_config.yml"),
        )
        ended = invoke(*arguments)
        assert ended.out, ended.err
        printed = json.loads(ended.out) if "--json" in arguments else ended.out
        mask = mask_of(reef, ROOT)
        found[" ".join(command)] = [ended.code, mask.text(printed) if isinstance(printed, str) else mask.json(printed)]
    return found


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RECORDED.read_text())
    return found


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(keys_of_records, id="records", marks=pytest.mark.all),  # asyncssh starts processes when imported
        pytest.param(shapes_printed, id="shapes"),
        pytest.param(hashes_of_recipes, id="recipes"),
        pytest.param(identity_of_checkpoint, id="checkpoint"),
    ],
)
def test_names_on_disk_and_hashes_stay(found: Any, recorded: dict[str, Any], request: pytest.FixtureRequest) -> None:
    assert found() == recorded[request.node.callspec.id]


def test_names_of_events_stay(recorded: dict[str, Any]) -> None:
    assert {name: names_of_event(name) for name in sorted(KINDS)} == recorded["events"]


def test_what_is_printed_of_an_output_folder_stays(recorded: dict[str, Any], tmp_path: Path) -> None:
    assert printed_of_sample(tmp_path) == recorded["printed"]


if __name__ == "__main__":
    import tempfile

    sys.path.insert(0, str(ROOT / "tests/testing"))
    with tempfile.TemporaryDirectory() as made:
        everything = names_on_disk() | {"printed": printed_of_sample(Path(made))}
    RECORDED.write_text(json.dumps(everything, indent=1, ensure_ascii=False) + "\n")
