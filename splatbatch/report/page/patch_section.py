"""A patch's section of the page: curves, pictures, its attempts compared and side by side, history, settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from splatbatch.failures.causes import title
from splatbatch.output.attempt_folder import ATTEMPT_PREFIX, AttemptFolder
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.metrics import spell_figures
from splatbatch.output.records.quality import grade_in_words
from splatbatch.report.charts.curves import charts_of, draw
from splatbatch.report.facts import NextStep, ReportedAttempt, ReportedPatch
from splatbatch.report.page.html import Html, number, table, tag
from splatbatch.report.page.inspection import quality_section
from splatbatch.report.page.pictures import PictureBudget, attempt_folder, error_legend, small_picture, views_of
from splatbatch.report.units import SIGNS, duration
from splatbatch.report.viewer.viewer import Previews
from splatbatch.text import assignments, moment

HEADINGS = ("attempt", "outcome", "what was changed", "covered dB", "PSNR dB", "SSIM", "Gaussians", "time", "splat")
WORDS = ("outcome", "what was changed", "splat")
MOST_SHOWN = 12
Shown = tuple[str, AttemptFolder]
"""What is said of a splat, and the attempt that has left pictures of it."""
MOST_EVIDENCE = 30


def attempts_section(patch: ReportedPatch) -> Iterator[Html]:
    """Yield the comparison; nothing where there is nothing to compare."""
    if len(patch.attempts) < 2:
        return
    yield tag("h3", "Attempts")
    rows = [_row(attempt) for attempt in patch.attempts]
    yield table(HEADINGS, rows, WORDS, "table attempts", name=f"Attempts at {patch.patch}")
    chosen = next((one.choice for one in reversed(patch.attempts) if one.choice), "")
    if chosen:
        yield tag("p", f"The latest choice: {chosen}.", class_="quiet")


def _row(attempt: ReportedAttempt) -> Html:
    outcome = attempt.outcome or "running"
    said = f" {outcome}: {title(attempt.cause)}" if attempt.cause else f" {outcome}"
    changed = assignments(attempt.changes) or "nothing"
    cells = [
        number(attempt.number, "d"),
        tag("td", tag("span", SIGNS.get(outcome, "…"), class_=f"sign {outcome}", aria_hidden="true"), said),
        tag("td", changed, class_=None if attempt.changes else "quiet"),
        number(attempt.psnr_covered, ".2f"),
        number(attempt.psnr, ".2f"),
        number(attempt.ssim, ".4f"),
        number(attempt.num_gaussians, ",d"),
        tag("td", duration(attempt.seconds), class_="number", data_value=attempt.seconds),
        tag("td", _splat(attempt)),
    ]
    return tag("tr", *cells, class_="kept" if attempt.is_kept else None)


def _splat(attempt: ReportedAttempt) -> str:
    if attempt.is_kept:
        return "kept: it is the product"
    if attempt.has_splat:
        return "there still"
    return "removed" if attempt.outcome == "trained" else ""


def attempts_side_by_side(output: OutputFolder, patch: ReportedPatch, budget: PictureBudget) -> Iterator[Html]:
    """Yield the same view of each attempt at a patch that has left pictures; nothing of fewer than two."""
    shown = [
        (f"attempt {one.number}{', kept' if one.is_kept else ''}", _folder(output, patch, one.number))
        for one in patch.attempts
        if one.is_pictured
    ]
    yield from side_by_side(shown, budget, "The same view of each attempt")


def variants_side_by_side(
    output: OutputFolder, patches: Sequence[ReportedPatch], budget: PictureBudget
) -> Iterator[Html]:
    """Yield for each patch of a sweep the same view under each variant."""
    for name in dict.fromkeys(one.of_patch for one in patches):
        of_patch = [one for one in patches if one.of_patch == name and one.variant]
        found = [(one.variant, attempt_folder(output, one)) for one in of_patch]
        yield from side_by_side(
            [(words, folder) for words, folder in found if folder], budget, f"The same view of {name}"
        )


def side_by_side(shown: Sequence[Shown], budget: PictureBudget, heading: str) -> Iterator[Html]:
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


def patch_section(patch: ReportedPatch, link: str, budget: PictureBudget, previews: Previews) -> Html:
    """Return what there is to see of a patch; folded in, unless something is odd about it."""
    state = patch.state
    heading = [
        tag("span", SIGNS[state], class_=f"sign {state}", aria_hidden="true"),
        tag("span", patch.patch, class_="name"),
        tag("span", " · ".join(_key_figures(patch)), class_="quiet"),
    ]
    charts = [draw(chart) for chart in charts_of(previews.output.patch(patch.patch).attempts())]
    views = list(views_of(attempt_folder(previews.output, patch), budget))
    parts = [
        previews.of(patch),
        *(tag("p", mark, class_="mark") for mark in patch.outliers),
        *_trouble(patch),
        *(tag("p", f"{words[0].upper()}{words[1:]}.", class_="quiet") for words in patch.ended_early),
        *quality_section(patch.quality, budget),
        *attempts_section(patch),
        *attempts_side_by_side(previews.output, patch, budget),
        *([tag("div", *views, class_="views", id=f"{link}-views"), error_legend()] if views else []),
        tag("div", *charts, class_="curves"),
        _history(patch),
        *_made_with(patch),
    ]
    is_open = state in ("failed", "refused", "stale") or bool(patch.outliers)
    return tag("details", tag("summary", *heading), *parts, class_="patch", id=link, open=is_open)


def _share(patch: ReportedPatch) -> str:
    """Return which share of the held-out pixels is covered."""
    if patch.psnr_covered is None or patch.covered_share is None:
        return ""
    return f" ({100 * patch.covered_share:.0f} % covered)"


def _key_figures(patch: ReportedPatch) -> list[str]:
    figures: list[str] = [patch.state]
    if patch.psnr is not None:
        trained_on = patch.training_psnr
        beside = f" ({trained_on:.2f} on training views)" if trained_on is not None else ""
        evened = f", {patch.psnr_even:.2f} evened" if patch.psnr_even is not None else ""
        figures.append(f"PSNR {spell_figures(patch)}{_share(patch)}{evened}{beside}")
    if patch.quality:
        figures.append(grade_in_words(patch.quality.grade))
    if patch.num_gaussians:
        figures.append(f"{patch.num_gaussians:,} Gaussians")
    if patch.seconds is not None:
        figures.append(duration(patch.seconds))
    if patch.cause:
        figures.append(title(patch.cause))
    return figures


def _trouble(patch: ReportedPatch) -> Iterator[Html]:
    """Yield the last failure with its advice, and what was odd in the training."""
    if patch.cause or patch.advice:
        yield tag("p", tag("b", title(patch.cause)), f" {patch.advice}", class_=f"trouble {patch.state}")
    if patch.changes:
        yield tag("p", f"Trained with changed settings: {assignments(patch.changes)}", class_="mark")
    for warning in patch.warnings:
        yield tag("p", warning, class_="mark")


def _history(patch: ReportedPatch) -> Html:
    items = [tag("li", *_attempt(attempt), class_=attempt.outcome or "running") for attempt in patch.attempts]
    return tag("ol", *items, class_="history") if items else tag("p", "No attempt was made.", class_="quiet")


def _attempt(attempt: ReportedAttempt) -> Iterator[Html]:
    outcome = attempt.outcome or "no end known"
    changed = f" with {assignments(attempt.changes)}" if attempt.changes else ""
    yield tag("b", f"Attempt {attempt.number}: {outcome}")
    node = f" of {attempt.node}" if attempt.node else ""
    yield tag("span", f" on {attempt.slot or 'an unknown slot'}{node}{changed} ")
    yield tag("span", " · ".join(filter(None, _circumstances(attempt))), class_="quiet")
    if attempt.cause:
        yield tag("p", tag("b", title(attempt.cause)), f" {attempt.advice}")
    if attempt.evidence:
        yield tag("pre", "\n".join("\n".join(attempt.evidence).splitlines()[:MOST_EVIDENCE]))
    yield from (tag("p", warning, class_="mark") for warning in attempt.warnings)
    if attempt.next:
        yield tag("p", _next(attempt.next), class_="next")


def _circumstances(attempt: ReportedAttempt) -> list[str]:
    phase = f"phase {attempt.phase}, step {attempt.step or 0}" if attempt.phase not in ("", "done") else ""
    gate = f"waited {duration(attempt.gate_s)} at the gate: {attempt.gate}" if attempt.gate_s else ""
    adopted = "adopted by a later run" if attempt.adopted else ""
    return [moment(attempt.started_at), _length(attempt), gate, phase, _peaks(attempt), adopted]


def _peaks(attempt: ReportedAttempt) -> str:
    """Return the peaks of memory that are known: of the card, of the attempt on it, of torch in the attempt."""
    peaks = (
        (attempt.gpu_peak_mib, "on the GPU"),
        (attempt.own_gpu_peak_mib, "its own"),
        (attempt.torch_peak_mib, "torch's"),
    )
    known = [f"{peak:,.0f} MiB {name}" for peak, name in peaks if peak]
    return f"peak {', '.join(known)}" if known else ""


def _length(attempt: ReportedAttempt) -> str:
    start, end = attempt.started_at, attempt.ended_at
    return duration(end - start) if start is not None and end is not None and end >= start else ""


def _next(decision: NextStep) -> str:
    names = decision.trained_in_between
    witnesses = f" ({', '.join(names)} trained in between: the GPU is not to blame)" if names else ""
    if decision.decision == "gave_up":
        return f"■ Then {decision.reason}{witnesses}"
    changes, wait = decision.changes, duration(decision.wait_s)
    changed = f"with {assignments(changes)}" if changes else "with the same settings"
    return f"↻ Then again{f' after {wait}' if wait else ''} {changed}{witnesses}"


def _made_with(patch: ReportedPatch) -> Iterator[Html]:
    facts = {**patch.versions, "splat": patch.splat} if patch.splat else patch.versions
    if facts:
        yield tag("p", " · ".join(f"{name} {value}" for name, value in facts.items()), class_="quiet files")
