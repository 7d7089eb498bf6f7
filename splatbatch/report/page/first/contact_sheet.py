"""The contact sheet: a picture of every patch, what failed first, then the poorest, with PSNR and what has changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from splatbatch.report.facts import ReportedPatch
from splatbatch.report.page.html import Html, tag
from splatbatch.report.page.pictures import Budget, attempt_folder, small_render
from splatbatch.report.todo import cause_in_words
from splatbatch.report.units import SIGNS
from splatbatch.store.layout import OutputFolder

LEAST_GAIN_DB = 0.005
"""Less reads as nothing."""


def contact_sheet(
    output: OutputFolder, patches: Sequence[ReportedPatch], links: Mapping[str, str], budget: Budget
) -> Html:
    """Return the sheet; nothing where nobody has left a picture."""
    tiles = [_tile(output, patch, links[patch.patch], budget) for patch in worst_first(patches)]
    return tag("ol", *tiles, class_="sheet") if any("<img" in tile for tile in tiles) else Html("")


def worst_first(patches: Sequence[ReportedPatch]) -> list[ReportedPatch]:
    """Return the patches as one looks at them: what is not trained, then by PSNR."""
    return sorted(patches, key=lambda one: (one.state == "trained", one.psnr is not None, one.psnr or 0.0))


def _tile(output: OutputFolder, patch: ReportedPatch, link: str, budget: Budget) -> Html:
    folder = attempt_folder(output, patch)
    source = small_render(folder, budget) if folder else ""
    words = f"rendering of {patch.patch}"
    picture = (
        tag("img", src=source, alt=words, decoding="async") if source else tag("span", _instead(patch), class_="none")
    )
    return tag("li", tag("a", picture, tag("span", *_caption(patch), class_="caption"), href=f"#{link}"))


def _instead(patch: ReportedPatch) -> str:
    return "no picture" if patch.state in ("trained", "stale") else cause_in_words(patch.cause) or patch.state


def _caption(patch: ReportedPatch) -> Iterator[Html]:
    state, gain = patch.state, patch.gain_db
    yield tag("span", SIGNS[state], class_=f"sign {state}", aria_hidden="true")
    yield tag("b", patch.patch)
    if patch.psnr is not None:
        yield tag("span", f"{patch.psnr:.2f} dB")
    if gain is not None and abs(gain) >= LEAST_GAIN_DB:
        said = f"{gain:+.2f} dB".replace("-", "−")
        yield tag("span", said, class_="better" if gain > 0 else "worse", title="since the run before")
    if state != "trained":
        yield tag("span", state, class_=f"badge {state}")
