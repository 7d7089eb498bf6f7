"""Forty-two typical mistakes: each is told with its place and cause, and what the remedy says mends it when pasted."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from command_line import invoke
from scenes import MadeScene

COMMAND = re.compile(r"`?splatbatch ((?:[\w-]+)(?: (?!hint:)[^`\s,;]+)+)")
OFFERED = (
    re.compile(r"Did you mean '?([\w./-]+?)'?[?,]"),
    re.compile(r"This key belongs to the section \w+: ([\w.]+)\."),
    re.compile(r"Known: ([\w]+)"),
    re.compile(r"nearest: ([\d.]+)"),
    re.compile(r"(?:, as|or a list, as|For example --set) (\S+)"),
    re.compile(r"should be '(\w+)'"),
    re.compile(r"should be (?:at most|above) (\d+)"),
    re.compile(r"the latest is (\S+)"),
    re.compile(r"there are (\w+),"),
    re.compile(r"is not one of '(\w+)'"),
)
QUARRY = Path(__file__).parents[2] / "examples/quarry"
REEF = "scene: {patches: reef}\n"
MISTAKES = [
    # what is typed wrongly, the command with it, the YAML with it (none: there is none)
    ("reff", "init reff", None),
    ("reff", "import reff new", None),
    ("quary", "split --source quary/sparse/0 --out new --dry-run", None),
    ("2", "split --source quarry/sparse/0 --out new --dry-run --grid 2", None),
    ("15", "split --source quarry/sparse/0 --out new --dry-run --overlap 15", None),
    ("splat_confg.yml", "status --config splat_confg.yml", REEF),
    ("trian", "trian --dry-run", REEF),
    ("verify_dims", "verify_dims", REEF),
    ("explian", "explian reef", REEF),
    ("", "status reef", None),
    ("", "plan reef/sparse/0", None),
    ("", "verify-dims reef/images", None),
    ("", "init c.yml", None),
    ("", "plan", None),
    ("", "status", None),
    ("", "init empty", None),
    ("max_step", "plan", REEF + "training: {max_step: 100}"),
    ("max_steps", "plan", REEF + "max_steps: 100"),
    ("sh_degre", "plan", REEF + "training: {sh_degre: 1}"),
    ("evalution", "plan", REEF + "evalution: {holdout_every: 8}"),
    ("ouput", "plan", REEF + "ouput: {folder: out}"),
    ("image", "plan", "scene: {patches: reef, image: reef/images}"),
    ("source", "plan", REEF + "source: reef"),
    ("reff", "plan", "scene: {patches: reff}"),
    ("p9", "plan", REEF + "patches: {p9: {}}"),
    ("mcmcm", "plan", REEF + "training: {strategy: mcmcm}"),
    ("gpu", "plan", REEF + "training: {device: gpu}"),
    ("4", "plan", REEF + "training: {sh_degree: 4}"),
    ("gsplt", "plan", REEF + "training: {trainer: gsplt}"),
    ("25:00", "plan", REEF + "deadline: '25:00'"),
    ("soog", "plan", REEF + "publish: {formats: [soog]}"),
    ("ref", "plan ref", REEF),
    ("p7", "explain p7", REEF),
    ("max_steps", "train --dry-run --set max_steps=5", REEF),
    ("training.max_stepz", "train --dry-run --set training.max_stepz=5", REEF),
    ("init_scale", "train --dry-run --set init_scale", REEF),
    ("spzz", "publish --as spzz", REEF),
    ("trainning.max_steps", "train --dry-run --set trainning.max_steps=3", REEF),
    ("", "plan-capture", REEF),
    ("c.yaml", "status --config c.yaml", REEF),
    ("shrink", "verify-dims --fix shrink --out new", REEF),
]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPLATBATCH_CONFIG", raising=False)
    MadeScene(Path("reef")).write()
    Path("empty").mkdir()
    Path("c.yml").write_text(REEF)
    Path("quarry").symlink_to(QUARRY)
    return tmp_path


def offered(said: str) -> str:
    """Return what a message offers in place of what was typed."""
    return next((found[1] for pattern in OFFERED if (found := pattern.search(said))), "")


@pytest.mark.parametrize(("wrong", "command", "yaml"), MISTAKES, ids=lambda value: str(value)[:40])
def test_what_a_mistake_is_told_mends_it(place: Path, wrong: str, command: str, yaml: str | None) -> None:
    if yaml is not None:
        Path("splat_config.yml").write_text(yaml)
    ended = invoke(*command.split())
    said = " ".join(ended.err.split())
    assert ended.code not in (0, 1), ended
    assert wrong in said, "the place is not named"
    if wrong and (right := offered(said)):
        mended = re.sub(rf"(?<![\w.]){re.escape(wrong)}\b", right, command)
        if yaml and wrong in yaml:
            Path("splat_config.yml").write_text(retyped(yaml, wrong, right))
        again = invoke(*mended.split())
    else:
        pasted = COMMAND.search(said.replace(" DIR", " reef").replace(" NEW", " new"))
        assert pasted, said
        again = invoke(*shlex.split(pasted[1].rstrip(".")), *(["--no-train"] if pasted[1].startswith("demo") else []))
    assert again.code in (0, 1, 4, 6), (said, again)


def retyped(yaml: str, wrong: str, right: str) -> str:
    """Return a YAML with a word exchanged; a key of another section goes there."""
    section, _, key = right.partition(".")
    if not key or section not in ("training", "scene"):
        return yaml.replace(wrong, right)
    line = next(one for one in yaml.splitlines() if one.startswith(wrong))
    rest = yaml.replace(line, "")
    value = line.partition(": ")[2]
    if section == "scene":
        return rest.replace("scene: {", f"scene: {{{key}: {value}, ")
    return f"{rest}\n{section}: {{{key}: {value}}}"
