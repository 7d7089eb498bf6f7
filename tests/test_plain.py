"""What a log holds is text to a terminal: it is shown, and never obeyed."""

from __future__ import annotations

import ast
from itertools import chain

import pytest
from command_line import invoke
from fake_batch import ROOT, FakeBatch

from splatbatch.output.layout import OutputFolder
from splatbatch.text import plain_text, plural

EVIL = "\x1b]0;title\x07\x1b]52;c;aGk=\x1b\\\x1b[31mred\x1b[0m \x1b[2J\x07\x08\x00\x9b5Atab\tend\u202e\n"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (EVIL, "red tab\tend\n"),
        ("10%\r20%\r\n", "10%\n20%\n"),
        ("\x1b(Bnormal \x1bMup \x1b", "normal up "),
        ("\x1b]0;never closed\nnext", "\nnext"),
        ("Größe 5 m² 漢字 ✓\n", "Größe 5 m² 漢字 ✓\n"),
    ],
)
def test_nothing_that_a_terminal_would_obey_is_left(words: str, shown: str) -> None:
    assert plain_text(words) == shown


@pytest.mark.parametrize("command", [("explain", "p0", "--log"), ("explain", "p0"), ("report",)], ids=" ".join)
def test_logs_explain_and_report_print_text_alone(batch: FakeBatch, command: tuple[str, ...]) -> None:
    batch.make("p0").script(p0=["exit 1 CUDA error: out of memory"]).change(retry={"max_attempts": 1})
    batch.run("train")
    folder = OutputFolder(batch.output)
    log = folder.patch("p0").attempts()[0].log
    log.write_text(log.read_text() + EVIL)
    ledger = folder.ledger.read_text().replace("out of memory", "out of memory\\u001b[2J")
    folder.ledger.write_text(ledger)
    shown = batch.run(*command).stdout
    assert "out of memory" in shown
    assert not set(shown) & {"\x1b", "\x07", "\x9b", "\x00"}


NAMES = ("p\x1b[2J0", "p\x1b]0;t\x07\u202e1", "p<img src=x>2", "p\n## [x](y) 3")


def test_no_name_of_a_patch_is_obeyed_by_a_terminal_or_read_as_markdown(batch: FakeBatch) -> None:
    batch.make(*NAMES).script(**{NAMES[1]: ["exit 1 CUDA error: out of memory"]}).change(retry={"max_attempts": 1})
    commands = [
        "plan",
        "train --dry-run",
        "train",
        "status",
        "report",
        "publish --as ply",
        "verify-dims",
        "doctor --trainers",
    ]
    named = (["explain", name] for name in NAMES), (["accept", name, "--attempt", "1"] for name in NAMES)
    for command in [*(one.split() for one in commands), *chain(*named)]:
        ended = invoke(*command, batch=batch)
        assert ended.code in (0, 1, 2, 6), (command, ended.err)
        assert not set(ended.out + ended.err) & {"\x1b", "\x07", "\x9b", "\u202e"}, command
        assert "\n## [x]" not in ended.out + ended.err, command
    text = OutputFolder(batch.output).report("md").read_text()
    assert "<img" not in text and "[x](y)" not in text.replace("\\[x](y)", "")


def test_evidence_stays_a_block_whatever_stands_in_it(batch: FakeBatch) -> None:
    lines = "CUDA error: out of memory ``` <script> ````"
    batch.make("p0").script(p0=[f"exit 1 {lines}"]).change(retry={"max_attempts": 1})
    invoke("train", batch=batch)
    blocks = OutputFolder(batch.output).report("md").read_text().split("\n`````\n")
    assert len(blocks) == 3
    assert "<script>" in blocks[1] and "<script>" not in blocks[0] + blocks[2]


def test_one_thing_is_not_called_many() -> None:
    assert (plural(1, "patch", "es"), plural(1200, "patch", "es"), plural(0, "line")) == (
        "1 patch",
        "1,200 patches",
        "0 lines",
    )


def test_no_command_prints_a_name_as_it_is() -> None:
    """`print_line`, `print_text` and `plain` take out what a terminal obeys; composed texts go through one of them."""
    for path in (ROOT / "splatbatch/cli").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "typer.echo":
                assert ast.unparse(node.args[0]) == "__version__" or not isinstance(
                    node.args[0], ast.JoinedStr | ast.Name
                ), (path, node.lineno)


def test_cores_are_counted_in_one_place() -> None:
    """A Slurm job or `taskset` gives a part of the machine's cores: os.cpu_count() would start threads for all."""
    found = [path.name for path in sorted((ROOT / "splatbatch").rglob("*.py")) if "cpu_count" in path.read_text()]
    assert found == ["processes.py"]
