"""Secrets in what a program says: masked wherever its words are cut, and nothing else is."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splatbatch.output.records.attempt import WatchSettings
from splatbatch.supervisor.log import Secrets, shown_anyway

TOKEN, LONGER = "hf_abababab", "hf_abababab/cdcdcdcd"
WORDS = st.lists(st.sampled_from([TOKEN, LONGER, "hf_", "hf_abab", "abababab", "ab", "/cdcdcdcd", "x\r", "\n"]))


def masked(pieces: list[bytes], **env: str) -> str:
    secrets = Secrets(WatchSettings(env=env))
    return (b"".join(map(secrets.mask, pieces)) + secrets.rest()).decode()


@given(WORDS, st.lists(st.integers(0, 150)))
def test_wherever_its_words_are_cut_a_secret_is_masked(words: list[str], cuts: list[int]) -> None:
    text = "".join(words).encode() + b"."  # no secret is cut off at the end
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[start:end] for start, end in itertools.pairwise(places)]
    whole = text.decode().replace(LONGER, "[URL]").replace(TOKEN, "[TOKEN]")
    assert masked(pieces, TOKEN=TOKEN, URL=LONGER) == whole


@pytest.mark.parametrize("value", ["short", "12345678", "8.0;8.6;9.0", "1e-12345", "/usr/share:/usr/lib", "/tmp/cache"])
def test_short_words_numbers_and_paths_are_no_secrets(value: str) -> None:
    assert masked([f"it is {value}".encode()], NAME=value) == f"it is {value}"


def test_a_path_that_is_made_later_is_no_secret_and_one_of_nowhere_is_masked(tmp_path: Path) -> None:
    assert masked([f"{tmp_path}/new".encode()], CACHE=f"{tmp_path}/new") == f"{tmp_path}/new"
    assert masked([b"/kg9+Zq3lL0x"], KEY="/kg9+Zq3lL0x") == "[KEY]"


def test_a_value_that_is_a_setting_is_shown_as_that_is() -> None:
    values = {"MODE": "very_fast_mode", "PLACE": "/out/p0 at p0", "TOKEN": TOKEN}
    assert shown_anyway({**values, "PLACE": " at "}, values, ["very_fast_mode", 7]) == ("MODE", "PLACE")
    said = Secrets(WatchSettings(env=values, shown=("MODE",))).mask_text(f"very_fast_mode {TOKEN}")
    assert said == "very_fast_mode [TOKEN]"


@pytest.mark.parametrize("value", ["\ud800secret-of-ours", "\x00secret-of-ours", "tück\udcffsecret"])
def test_no_value_breaks_it(value: str) -> None:
    assert masked([b"nothing to see"], TOKEN=value) == "nothing to see"
    assert Secrets(WatchSettings(env={"TOKEN": value})).mask_text(f"{value}.") == "[TOKEN]."


def test_what_is_cut_off_at_the_end_is_masked_if_it_is_long_enough_to_tell() -> None:
    assert masked([b"token hf_ababa"], TOKEN=TOKEN) == "token [TOKEN]"
    assert masked([b"token hf_ab"], TOKEN=TOKEN) == "token hf_ab"
