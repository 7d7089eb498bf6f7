"""report.html: a single file that loads nothing and runs no scripts but its own."""

from __future__ import annotations

import base64
import math
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from splatbatch.failures.causes import title
from splatbatch.files import MIB
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.metrics import deciding, spell_figures
from splatbatch.output.records.quality import grade_in_words
from splatbatch.report.curves import Chart, charts_of
from splatbatch.report.facts import Report, ReportedPatch
from splatbatch.report.html import GRADES, asset, policy, render
from splatbatch.report.inspection import pictures_of
from splatbatch.report.maps import camera_map, draw_map
from splatbatch.report.pictures import (
    Beside,
    PictureBudget,
    PicturedView,
    attempt_folder,
    attempts_side_by_side,
    small_render,
    variants_side_by_side,
    views_of,
)
from splatbatch.report.scene import in_words
from splatbatch.report.strip import MOST_S, Folders, color_strip
from splatbatch.report.timeline import timelines
from splatbatch.report.todo import verdict
from splatbatch.report.units import duration
from splatbatch.report.viewer.viewer import SplatStage, stage, stage_of, viewer_gz, viewer_script, what_is_missing
from splatbatch.report.workers import nodes_of
from splatbatch.tasks.counts import counted_tasks, how_many, words_for
from splatbatch.tasks.status import MADE, noun_of

PICTURE_BYTES = 16 << 20
"""Most bytes, in base64, of pictures in the sections of patches and of the scene."""
SMALL_BYTES = 3 << 20
"""Most bytes, in base64, of the small pictures of all patches and of variants side by side."""
STRIP_BYTES = 1 << 20
"""Most bytes, in base64, of photographs before and after colour correction."""
MOST_PATCHES = 500
"""Most patches with a section in the page; report.json has all patches."""
URGENT = ("failed", "refused", "stopped", "stale", "running", "waiting", *MADE)
"""States of a patch, in the order in which the page lists the patches."""


@dataclass(frozen=True)
class PatchSection:
    """A patch's section of the page: its facts with pictures, charts and 3D preview.

    `link` is its id in the page; `stage` and `beside` are None if there is no preview or nothing to compare.
    `inspected` has the pictures of the inspection, each as data URL and caption.
    """

    patch: ReportedPatch
    link: str
    stage: SplatStage | None
    views: tuple[PicturedView, ...]
    inspected: list[tuple[str, str]]
    beside: Beside | None
    charts: tuple[Chart, ...]

    @property
    def figures(self) -> Iterator[str]:
        """Yield as text what the collapsed section shows: state, then key figures, grade and cause where known."""
        patch = self.patch
        yield patch.state
        if patch.psnr is not None:
            share = patch.covered_share if patch.psnr_covered is not None else None
            covered = "" if share is None else f" ({100 * share:.0f} % of pixels covered)"
            evened = "" if patch.psnr_even is None else f", {patch.psnr_even:.2f} with corrected colours"
            beside = "" if patch.training_psnr is None else f" ({patch.training_psnr:.2f} on training photographs)"
            yield f"PSNR {spell_figures(patch)}{covered}{evened}{beside}"
        if patch.quality:
            yield grade_in_words(patch.quality.grade)
        if patch.num_gaussians:
            yield f"{patch.num_gaussians:,} Gaussians"
        if patch.seconds is not None:
            yield duration(patch.seconds)
        if patch.cause:
            yield title(patch.cause)

    @property
    def made_with(self) -> list[str]:
        """Return texts "name value": the versions of the programs that trained the patch, then the path of its splat.

        Empty if neither is known.
        """
        facts = {**self.patch.versions, "splat": self.patch.splat} if self.patch.splat else self.patch.versions
        return [f"{name} {value}" for name, value in facts.items()]


def to_live_html(report: Report, output: OutputFolder, version: str) -> str:
    """Return the HTML of the page that `serve` shows, which follows the batch while it is open.

    The page has no 3D previews and no pictures of colour correction.

    Args:
        report: the facts.
        output: the output folder, for curves and pictures.
        version: version of the report, by which the page notices that a newer report exists.
    """
    return to_html(report, output, 0, lambda _: (), version)


def to_html(
    report: Report, output: OutputFolder, previews_mib: int, folders: Folders, version: str | None = None
) -> str:
    """Return the HTML of report.html, or with a version that of the page that `serve` shows.

    Args:
        report: the facts.
        output: the output folder, for curves and pictures; missing or outdated previews of splats are written there.
        previews_mib: most MiB of splats that open in 3D; 0: none.
        folders: returns the folders of a scene's photographs, for pictures of colour correction.
        version: version of the report, which the page of `serve` follows; None: the page is a file.
    """
    patches, scene = most_telling(report.patches), report.scene
    sizes = (PICTURE_BYTES, SMALL_BYTES, STRIP_BYTES, previews_mib * MIB)
    budget, small, strip, previews = map(PictureBudget, sizes)
    links = {patch.patch: f"patch-{index}" for index, patch in enumerate(patches)}
    # the patch with the lowest PSNR gets its pictures first
    shown = {
        one.patch: PatchSection(
            one,
            links[one.patch],
            views=tuple(views_of(attempt_folder(output, one), budget)),
            stage=stage_of(output, one, previews),
            inspected=pictures_of(one.quality, budget),
            beside=attempts_side_by_side(output, one, budget),
            charts=charts_of(output.patch(one.patch).attempts()),
        )
        for one in sorted(patches, key=_psnr)
    }
    evaluating = output.scene.evaluating.attempts() if scene and scene.splat and not scene.is_stale else []
    evaluated = next((one for one in reversed(evaluating) if one.read_views()), None)
    worst_first = sorted(alone(patches), key=lambda one: (one.is_made, deciding(one) is not None, deciding(one) or 0.0))
    seams = Counter(GRADES[one.grade] or "not measured" for one in (scene.seams if scene else ()))
    ends_at = time.monotonic() + MOST_S
    style, script = asset("page.css"), asset("page.js") + (asset("live.js") if version is not None else "")
    facts = {
        "report": report,
        "verdict": verdict(report),
        "fine": _fine(report.patches),
        "totals": list(_totals(report)),
        "shown": {name: shown[name] for name in links},
        "scene_words": in_words(scene) if scene else "",
        "scene_stage": stage("scene", output.scene.splat, evaluated, previews) if scene and scene.splat else None,
        "scene_views": list(views_of(evaluated, budget)),
        "seam_counts": ", ".join(f"{number} {words}" for words, number in seams.items()),
        "map": draw_map(report.map or scene, report.patches, links),
        "cameras": camera_map(report.reconstruction) if report.reconstruction else None,
        "worst_first": worst_first,
        "thumbnails": {one.patch: small_render(attempt_folder(output, one), small) for one in worst_first},
        "failures_first": sorted(alone(patches), key=lambda one: URGENT.index(one.state)),
        "nodes": nodes_of(patches),
        "lack": what_is_missing() if previews.size and any(one.splat for one in report.patches) else "",
        "runs": timelines(report, links),
        "scene_inspected": pictures_of(scene.quality if scene else None, budget),
        "variants": list(variants_side_by_side(output, patches, report.sweep, small)) if report.sweep else [],
        "strips": [(one, color_strip(one, folders(one.scene), strip, ends_at)) for one in report.colors],
    }
    scripts = [script, *([viewer_script()] if previews.is_used else [])]
    packed = {
        "style": style,
        "script": script,
        "viewer": base64.b64encode(viewer_gz()).decode() if previews.is_used else "",
        "policy": policy(style, scripts, follows=version is not None),
    }
    return render("page.html.j2", **facts, **packed, version=version)


def most_telling(patches: Sequence[ReportedPatch]) -> list[ReportedPatch]:
    """Return at most MOST_PATCHES of the patches, in their order.

    Patches without an up-to-date splat and outliers are chosen first, then those of lowest PSNR.
    """
    ranked = sorted(patches, key=lambda patch: (patch.is_made and not patch.outliers, _psnr(patch)))
    chosen = {patch.patch for patch in ranked[:MOST_PATCHES]}
    return [patch for patch in patches if patch.patch in chosen]


def _psnr(patch: ReportedPatch) -> float:
    psnr = deciding(patch)
    return math.inf if psnr is None else psnr


def alone(patches: Sequence[ReportedPatch]) -> list[ReportedPatch]:
    """Return the patches without the backdrop, which is not counted as a patch; if there is nothing else, with it."""
    named = set(counted_tasks([patch.patch for patch in patches]))
    return [patch for patch in patches if patch.patch in named]


def _fine(patches: Sequence[ReportedPatch]) -> str:
    """Return the sentence for a report without anything to do."""
    noun, left = noun_of(patches), [patch.patch for patch in patches if not patch.is_made]
    words = words_for((patch.patch for patch in patches), noun)
    state = f"{how_many(left, noun)} to {words.verb}" if left else f"All {words.one}{words.plural} {words.done}"
    return f"{state}. No warnings."


def _totals(report: Report) -> Iterator[tuple[str, str]]:
    patches = alone(report.patches)
    if covered := [patch.psnr_covered for patch in patches if patch.psnr_covered is not None]:
        yield "dB mean PSNR on covered pixels", f"{statistics.fmean(covered):.2f}"
        yield "dB PSNR in the worst patch", f"{min(covered):.2f}"
    if known := [patch.psnr for patch in patches if patch.psnr is not None]:
        yield f"dB mean PSNR on {'all pixels' if covered else 'held-out photographs'}", f"{statistics.fmean(known):.2f}"
        if not covered:
            yield "dB PSNR in the worst patch", f"{min(known):.2f}"
    if gaussians := sum(patch.num_gaussians or 0 for patch in patches):
        yield "Gaussians", f"{gaussians:,}"
    attempts = [attempt for patch in patches for attempt in patch.attempts]
    yield "attempt" if len(attempts) == 1 else "attempts", str(len(attempts))
    spent = sum(attempt.seconds or 0 for attempt in attempts)
    yield f"spent in {'processes' if report.reconstruction else 'training processes'}", duration(spent)
