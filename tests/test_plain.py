"""What a log holds is text to a terminal: it is shown, and never obeyed."""

from __future__ import annotations

import pytest
from fake_batch import FakeBatch

from splatbatch.batch.folder import OutputFolder
from splatbatch.commands.output import plain
from splatbatch.commands.watching import _whole_lines

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
    assert plain(words) == shown


def test_a_sequence_that_arrives_in_two_halves_is_waited_for() -> None:
    assert _whole_lines("a\nb\x1b[3") == ("a\n", "b\x1b[3")
    assert _whole_lines("10%\r20%\r") == ("10%\r", "20%\r")


@pytest.mark.parametrize(
    "command", [("logs", "p0"), ("logs", "p0", "-f"), ("explain", "p0"), ("report",)], ids=" ".join
)
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
