"""The same held-out view as several splats show it: of the attempts at a patch, or of it under each variant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from splatbatch.report.facts import ReportedPatch
from splatbatch.report.page.html import Html, tag
from splatbatch.report.page.pictures import Budget, attempt_folder, small_picture
from splatbatch.store.attempt_folder import ATTEMPT_PREFIX, AttemptFolder
from splatbatch.store.layout import OutputFolder

MOST_SHOWN = 12
Shown = tuple[str, AttemptFolder]
"""What is said of a splat, and the attempt that has left pictures of it."""


def attempts_side_by_side(output: OutputFolder, patch: ReportedPatch, budget: Budget) -> Iterator[Html]:
    """Yield the same view of each attempt at a patch that has left pictures; nothing of fewer than two."""
    shown = [
        (f"attempt {one.number}{', kept' if one.is_kept else ''}", _folder(output, patch, one.number))
        for one in patch.attempts
        if one.is_pictured
    ]
    yield from side_by_side(shown, budget, "The same view of each attempt")


def variants_side_by_side(output: OutputFolder, patches: Sequence[ReportedPatch], budget: Budget) -> Iterator[Html]:
    """Yield for each patch of a sweep the same view under each variant."""
    for name in dict.fromkeys(one.of_patch for one in patches):
        of_patch = [one for one in patches if one.of_patch == name and one.variant]
        found = [(one.variant, attempt_folder(output, one)) for one in of_patch]
        yield from side_by_side(
            [(words, folder) for words, folder in found if folder], budget, f"The same view of {name}"
        )


def side_by_side(shown: Sequence[Shown], budget: Budget, heading: str) -> Iterator[Html]:
    """Yield one view as all of these show it, with its photograph and the PSNR of each, as far as the budget goes."""
    views = [(words, folder, dict(_views(folder))) for words, folder in shown[-MOST_SHOWN:]]
    names = Counter(name for _, _, known in views for name in known)
    if not names or names.most_common(1)[0][1] < 2:
        return
    most = names.most_common(1)[0][1]
    name = next(one for one, number in names.items() if number == most)
    having = [(words, folder, known[name]) for words, folder, known in views if name in known]
    photo = small_picture(having[-1][1], name, "photo", budget)
    figures = [_figure(photo, f"photograph {name}", "photograph")] if photo else []
    for words, folder, psnr in having:
        said = f"{words}: {psnr:.2f} dB" if psnr is not None else words
        if source := small_picture(folder, name, "render", budget):
            figures.append(_figure(source, f"{name} as {words} renders it", said))
    if len(figures) > 2:
        yield tag("h3", heading)
        yield tag("div", *figures, class_="beside")


def _figure(source: str, alt: str, words: str) -> Html:
    return tag("figure", tag("img", src=source, alt=alt, loading="lazy"), tag("figcaption", words))


def _views(folder: AttemptFolder) -> Iterator[tuple[str, float | None]]:
    for _, view in folder.read_views().ranked():
        yield view.name, view.psnr


def _folder(output: OutputFolder, patch: ReportedPatch, number: int) -> AttemptFolder:
    return AttemptFolder(output.patch(patch.patch).path / f"{ATTEMPT_PREFIX}{number:02d}")
