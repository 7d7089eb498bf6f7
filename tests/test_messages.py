"""scripts/messages finds what people read in the code, and nothing that only programs read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_batch import ROOT
from loaded_script import load_script

Found = list[tuple[str, str, tuple[str, ...]]]


@pytest.fixture(scope="module")
def script() -> Any:
    return load_script("messages")


@pytest.fixture(scope="module")
def of_the_product(script: Any) -> list[Any]:
    return list(script.messages_of(ROOT / "splatbatch"))


@pytest.fixture
def found_in(script: Any, tmp_path: Path) -> Callable[[str], Found]:
    def found_in(code: str) -> Found:
        (tmp_path / "reef.py").write_text(code)
        return [(one.kind, one.text, one.values) for one in script.messages_of(tmp_path)]

    return found_in


@pytest.mark.parametrize(
    ("code", "text", "values"),
    [
        ('said = f"{name}: {len(rows):,} rows are lost"', "{value}: {value} rows are lost", ("name", "len(rows)")),
        ('said = (f"patch {name} " "is trained")', "patch {value} is trained", ("name",)),
        ('said = "patch " + name + " is trained"', "patch {value} is trained", ("name",)),
        ('said = "{:.1f} of {} GiB".format(used, total)', "{value} of {value} GiB", ("used", "total")),
        (
            "said = f\"trained{' and kept' if kept else ''} here\"",
            "trained{value} here",
            ("' and kept' if kept else ''",),
        ),
    ],
)
def test_a_text_is_one_with_all_its_values(
    found_in: Callable[[str], Found], code: str, text: str, values: tuple[str, ...]
) -> None:
    assert found_in(code) == [("text", text, values)]


ERRORS = """
class SplatbatchError(Exception):
    def __init__(self, message, hint=""): ...
class SceneError(SplatbatchError): ...
class ModelError(SceneError):
    def __init__(self, path, what, hint): ...
def unproved(what: str, remedy: str) -> SceneError: ...
"""


@pytest.mark.parametrize(
    "raised",
    [
        'SceneError(f"{name} is gone", "Copy it again.")',
        'SceneError(f"{name} is gone", hint="Copy it again.")',
        'ModelError(path, f"{name} is gone", "Copy it again.")',
        'unproved(f"{name} is gone", "Copy it again.")',
    ],
)
def test_an_error_has_its_message_and_its_hint(found_in: Callable[[str], Found], raised: str) -> None:
    found = found_in(f"{ERRORS}\ndef see(): raise {raised}")
    assert found == [("error", "{value} is gone", ("name",)), ("hint", "Copy it again.", ())]


def test_a_variable_that_an_error_is_made_of_is_its_message(found_in: Callable[[str], Found]) -> None:
    code = f'{ERRORS}\ndef see():\n    told = "it is gone"\n    raise SceneError(told)'
    assert found_in(code) == [("error", "it is gone", ())]


def test_help_of_an_option_and_of_a_command_is_listed(found_in: Callable[[str], Found]) -> None:
    code = """
@app.command("train", epilog="Ends by itself.")
def train(patch: Annotated[str, typer.Option("--patch", metavar="NAME", help="Which patch.")] = ""):
    '''Train what is missing.'''
"""
    assert found_in(code) == [
        ("help", "Ends by itself.", ()),
        ("help", "Which patch.", ()),
        ("help", "Train what is missing.", ()),
    ]


def test_one_word_counts_where_people_see_it(found_in: Callable[[str], Found]) -> None:
    code = 'print_line("done")\nState(reason="lost", key="lost")\ndef in_words(): return "trained"'
    assert [text for _, text, _ in found_in(code)] == ["done", "lost", "trained"]


@pytest.mark.parametrize(
    "code",
    [
        '"""What a module holds."""',
        'def train():\n    """Train all patches."""',
        'class Patch:\n    name: str\n    """As the folder is called."""',
        'state: "dict[str, list[int]] | None" = None',
        'state: Literal["not yet", "long ago"]',
        'pattern = re.compile("out of (GPU|host) memory")',
        'PATTERNS = Words(r"killed by signal|out of memory")',
        'if line == "out of memory" or line.startswith("ran out"): pass',
        '__all__ = ["patch names"]',
        'names = {"p0": "splat.ply", f"{a}-{b}": 1}',
        'written = f"{first} {second}"',
        'file.write("element vertex 3")',
    ],
)
def test_what_programs_read_is_left_out(found_in: Callable[[str], Found], code: str) -> None:
    assert found_in(code) == []


def test_a_place_is_file_line_function_and_package(script: Any, tmp_path: Path) -> None:
    folder = tmp_path / "reefs/deep/corals"
    folder.mkdir(parents=True)
    (folder / "fans.py").write_text('class Fan:\n    def wave(self):\n        say("it waves")\n')
    (one,) = script.messages_of(tmp_path / "reefs")
    assert (one.file, one.line, one.function, one.package) == (
        "reefs/deep/corals/fans.py",
        3,
        "Fan.wave",
        "deep.corals",
    )
    assert [script.is_in(one.package, [name]) for name in ("deep", "deep.corals", "corals", "dee")] == [
        True,
        True,
        False,
        False,
    ]


def test_the_same_seed_draws_the_same_texts(script: Any, of_the_product: list[Any]) -> None:
    once = script.drawn(of_the_product, 50, "6b0faa48")
    assert len(once) == 50 and once == script.drawn(list(reversed(of_the_product)), 50, "6b0faa48")
    assert once != script.drawn(of_the_product, 50, "233f515c")
    assert set(script.drawn(of_the_product, 20, "6b0faa48")) < set(once)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("error", "{value}: the batch is already given by --config {value}"),
        ("error", "{value}: written by a later version of splatbatch (format {value}; this version reads {value})"),
        ("hint", "Add --force to train again."),
        ("hint", "Choose another output.folder, or fix its permissions."),
        ("help", "Only list the trainers and what each is missing on this machine."),
        ("help", "Show the state and progress of every patch, also while a batch runs."),
        ("text", "{value}: checkpoint of other settings or photographs: training starts at step 0"),
        ("text", "GPU memory ran out"),
        ("text", "the camera looks backward (x and z axes flipped)"),
    ],
)
def test_texts_of_the_product_are_found(of_the_product: list[Any], kind: str, text: str) -> None:
    assert (kind, text) in {(one.kind, one.text) for one in of_the_product}


def test_a_text_stands_in_the_line_that_is_told(of_the_product: list[Any]) -> None:
    for one in of_the_product[::100]:
        lines = (ROOT / one.file).read_text().splitlines()[one.line - 1 :]
        first = one.text.partition("{value}")[0].splitlines() or [""]
        assert first[0][:20] in "\n".join(lines[:2]).replace("\\'", "'").replace('\\"', '"'), one
