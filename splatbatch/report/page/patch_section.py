"""A patch's section of the page: its curves, pictures, history, settings."""

from __future__ import annotations

from collections.abc import Iterator

from splatbatch.plain_text import assignments, moment
from splatbatch.report.charts.charts import draw
from splatbatch.report.charts.curves import charts_of
from splatbatch.report.facts import Attempt, Next, ReportedPatch
from splatbatch.report.page.attempts_section import attempts_section
from splatbatch.report.page.html import Html, tag
from splatbatch.report.page.pictures import Budget, error_legend, views_of
from splatbatch.report.page.quality.pictures import Pictures
from splatbatch.report.page.quality.section import quality_section
from splatbatch.report.page.side_by_side import attempts_side_by_side
from splatbatch.report.units import SIGNS, duration
from splatbatch.report.viewer.viewer import Previews
from splatbatch.store.records.quality import grade_in_words

MOST_EVIDENCE = 30


def patch_section(patch: ReportedPatch, link: str, budget: Budget, previews: Previews) -> Html:
    """Return what there is to see of a patch; folded in, unless something is odd about it."""
    state = patch.state
    heading = [
        tag("span", SIGNS[state], class_=f"sign {state}", aria_hidden="true"),
        tag("span", patch.patch, class_="name"),
        tag("span", " · ".join(_key_figures(patch)), class_="quiet"),
    ]
    charts = [draw(chart) for chart in charts_of(previews.output.patch(patch.patch).attempts())]
    views = list(views_of(previews.output, patch, budget))
    parts = [
        *(tag("p", mark, class_="mark") for mark in patch.outliers),
        *_trouble(patch),
        *quality_section(patch.quality, Pictures.of_quality(patch.quality, budget)),
        previews.of(patch),
        *attempts_section(patch),
        *attempts_side_by_side(previews.output, patch, budget),
        *([tag("div", *views, class_="views"), error_legend()] if views else []),
        tag("div", *charts, class_="curves"),
        _history(patch),
        *_made_with(patch),
    ]
    is_open = state in ("failed", "refused", "stale") or bool(patch.outliers)
    return tag("details", tag("summary", *heading), *parts, class_="patch", id=link, open=is_open)


def _key_figures(patch: ReportedPatch) -> list[str]:
    figures: list[str] = [patch.state]
    if patch.psnr is not None:
        trained_on = patch.training_psnr
        beside = f" ({trained_on:.2f} on training views)" if trained_on is not None else ""
        evened = f", {patch.psnr_even:.2f} evened" if patch.psnr_even is not None else ""
        figures.append(f"PSNR {patch.psnr:.2f} dB{evened}{beside}")
    if patch.quality:
        figures.append(grade_in_words(patch.quality.grade))
    if patch.num_gaussians:
        figures.append(f"{patch.num_gaussians:,} Gaussians")
    if patch.seconds is not None:
        figures.append(duration(patch.seconds))
    if patch.cause:
        figures.append(patch.cause)
    return figures


def _trouble(patch: ReportedPatch) -> Iterator[Html]:
    """Yield the last failure with its advice, and what was odd in the training."""
    if patch.cause or patch.advice:
        yield tag("p", tag("b", patch.cause), f" {patch.advice}", class_=f"trouble {patch.state}")
    if patch.changes:
        yield tag("p", f"Trained with changed settings: {assignments(patch.changes)}", class_="mark")
    for warning in patch.warnings:
        yield tag("p", warning, class_="mark")


def _history(patch: ReportedPatch) -> Html:
    items = [tag("li", *_attempt(attempt), class_=attempt.outcome or "running") for attempt in patch.attempts]
    return tag("ol", *items, class_="history") if items else tag("p", "No attempt was made.", class_="quiet")


def _attempt(attempt: Attempt) -> Iterator[Html]:
    outcome = attempt.outcome or "no end known"
    changed = f" with {assignments(attempt.changes)}" if attempt.changes else ""
    yield tag("b", f"Attempt {attempt.number}: {outcome}")
    node = f" of {attempt.node}" if attempt.node else ""
    yield tag("span", f" on {attempt.slot or 'an unknown slot'}{node}{changed} ")
    yield tag("span", " · ".join(filter(None, _circumstances(attempt))), class_="quiet")
    if attempt.cause:
        yield tag("p", tag("b", attempt.cause), f" {attempt.advice}")
    if attempt.evidence:
        yield tag("pre", "\n".join("\n".join(attempt.evidence).splitlines()[:MOST_EVIDENCE]))
    yield from (tag("p", warning, class_="mark") for warning in attempt.warnings)
    if attempt.next:
        yield tag("p", _next(attempt.next), class_="next")


def _circumstances(attempt: Attempt) -> list[str]:
    phase = f"phase {attempt.phase}, step {attempt.step or 0}" if attempt.phase not in ("", "done") else ""
    gate = f"waited {duration(attempt.gate_s)} at the gate: {attempt.gate}" if attempt.gate_s else ""
    adopted = "adopted by a later run" if attempt.adopted else ""
    return [moment(attempt.started_at), _length(attempt), gate, phase, _peaks(attempt), adopted]


def _peaks(attempt: Attempt) -> str:
    """Return the peaks of memory that are known: of the card, of the attempt on it, of torch in the attempt."""
    peaks = (
        (attempt.gpu_peak_mib, "on the GPU"),
        (attempt.own_gpu_peak_mib, "its own"),
        (attempt.torch_peak_mib, "torch's"),
    )
    known = [f"{peak:,.0f} MiB {name}" for peak, name in peaks if peak]
    return f"peak {', '.join(known)}" if known else ""


def _length(attempt: Attempt) -> str:
    start, end = attempt.started_at, attempt.ended_at
    return duration(end - start) if start is not None and end is not None and end >= start else ""


def _next(decision: Next) -> str:
    names = decision.trained_in_between
    witnesses = f" ({', '.join(names)} trained in between: the GPU is not to blame)" if names else ""
    if decision.decision == "gave_up":
        return f"■ Then given up: {decision.reason}{witnesses}"
    changes, wait = decision.changes, duration(decision.wait_s)
    changed = f"with {assignments(changes)}" if changes else "with the same settings"
    return f"↻ Then again{f' after {wait}' if wait else ''} {changed}{witnesses}"


def _made_with(patch: ReportedPatch) -> Iterator[Html]:
    facts = {**patch.versions, "splat": patch.splat} if patch.splat else patch.versions
    if facts:
        yield tag("p", " · ".join(f"{name} {value}" for name, value in facts.items()), class_="quiet files")
