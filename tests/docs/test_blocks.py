"""Every shell block of the documents is run, in the order of the pages; one that cannot be says why."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import fake_trainer
import pytest
from docs_blocks import DOCS, PATH, ROOT, Block, blocks_of, every_page, run, told

FAILS_AT_NIGHT = ["train", "exit 1 zero gradients: all gradients are exactly zero", "exit 1 zero gradients", "train"]
OTHERS = [path for path in every_page() if path.name not in PATH]
ALL = [block for path in every_page() for block in blocks_of(path)]


def home_with_programs(folder: Path) -> tuple[Path, Path]:
    """Make a home, and a splatbatch whose trainings take no time; p1 of ~/reef fails when it is trained anew."""
    home, programs = folder / "home", folder / "bin"
    home.mkdir()
    programs.mkdir()
    (home / "sound.json").write_text("{}")
    (home / "bad.json").write_text(json.dumps({"p1": FAILS_AT_NIGHT}))
    python, program = shlex.quote(sys.executable), shlex.quote(fake_trainer.__file__)
    lines = [
        "#!/bin/sh",
        'script=sound.json; case "$PWD" in */reef) script=bad.json ;; esac',
        f"export FAKE_TRAINER_SCRIPT={shlex.quote(str(home))}/$script OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1",
        f'exec {python} {program} "$@"',
    ]
    (programs / "splatbatch").write_text("\n".join(lines) + "\n")
    (programs / "splatbatch").chmod(0o755)
    return home, programs


def run_all(blocks: list[Block], home: Path, programs: Path) -> None:
    for block in blocks:
        if not block.not_run:
            ended = run(block, home, programs)
            assert ended.returncode in block.codes, told(block, ended)
            assert "Traceback" not in ended.stderr, told(block, ended)


@pytest.fixture(scope="module")
def after_the_path(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The home of somebody who has followed the first pages."""
    home, programs = home_with_programs(tmp_path_factory.mktemp("docs"))
    run_all([block for name in PATH for block in blocks_of(DOCS / name)], home, programs)
    return home, programs


@pytest.mark.all
def test_who_follows_the_first_pages_gets_where_they_lead(after_the_path: tuple[Path, Path]) -> None:
    home, _ = after_the_path
    for patch in ("quarry/output/patches/p0", "reef/output/patches/p0", "reef/output/patches/p1"):
        assert (home / patch / "splat.ply").stat().st_size > 0  # first splats, own folder
    assert "2 of 2 patches trained" in (home / "reef/night.log").read_text()  # cron at night
    result = json.loads((home / "reef/output/patches/p1/result.json").read_text())
    assert result["attempt"] == "attempt-01"  # failed, tried again, and the one that was chosen is kept
    assert len(list((home / "reef/output/patches/p1").glob("attempt-*"))) == 4


@pytest.mark.all
@pytest.mark.parametrize("page", OTHERS, ids=lambda path: path.name)
def test_the_blocks_of_every_other_page_end_as_they_say(page: Path, after_the_path: tuple[Path, Path]) -> None:
    run_all(list(blocks_of(page)), *after_the_path)


def test_what_is_not_run_says_why(record_property: pytest.RecordProperty) -> None:
    left_out = [block for block in ALL if block.not_run]
    record_property("figure", f"{len(ALL)} shell blocks, {len(left_out)} not run, each with its reason")
    print(*(f"{block.page}:{block.line}: not run: {block.not_run}" for block in left_out), sep="\n")
    assert all(len(block.not_run) > 15 for block in left_out)
    assert len(left_out) < len(ALL) / 2


def test_no_shell_hides_in_a_block_that_is_not_marked_as_one() -> None:
    commands = ("splatbatch ", "pip ", "scripts/", "nohup ", "podman ", "$ ")
    lines = [
        f"{path.name}:{number}: {line}"
        for path in every_page()
        for number, line in enumerate(path.read_text().split("\n"), 1)
        if line.startswith("    ") and line.strip().startswith(commands)
    ]
    assert [line for line in lines if "architecture.md" not in line] == []


def test_the_front_page_names_the_path_in_its_order() -> None:
    text = (ROOT / "docs/index.md").read_text()
    places = [text.index(f"]({name})") for name in PATH]
    assert places == sorted(places)
