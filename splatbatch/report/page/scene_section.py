"""The sections on the scene, every seam with its figures, and on the workers, where there was more than one."""

from __future__ import annotations

from collections.abc import Sequence

from splatbatch.report.facts import CutScene, Report, ReportedSeam, Worker
from splatbatch.report.page.html import Html, join, table, tag
from splatbatch.report.scene import SEAM_FIGURES, in_words, seam_figures
from splatbatch.report.units import duration
from splatbatch.report.workers import HEADINGS

GRADES = {"even": "even", "slight": "slight", "step": "a step", "unknown": ""}
WORDS = ("worker", "node", "job", "since", "is training")
MOST_WORKERS = 200
"""One that is killed and started anew is another one."""


def scene_section(report: Report) -> Html:
    """Return what there is to see of a scene that was cut into patches; nothing where none was."""
    scene = report.scene
    if not scene:
        return Html("")
    if scene.problem:
        return tag("p", scene.problem, class_="mark")
    parts = [tag("p", in_words(scene))]
    parts += [tag("p", note, class_="mark") for note in _lacking(scene)]
    if scene.seams:
        rows = [_row(seam) for seam in scene.seams]
        parts.append(table(("seam", "meets", *SEAM_FIGURES, "note"), rows, ("seam", "meets", "note"), name="Seams"))
    return join(parts)


def _lacking(scene: CutScene) -> list[str]:
    lacking = scene.evaluation.lacking if scene.evaluation else {}
    return [f"{name}: {why}: its seams were not measured" for name, why in lacking.items()]


def _row(seam: ReportedSeam) -> Html:
    figures = [tag("td", words, class_="number", data_value=words or None) for words in seam_figures(seam)]
    meets = tag("span", GRADES[seam.grade], class_=f"grade {seam.grade}")
    return tag("tr", tag("td", seam.name), tag("td", meets), *figures, tag("td", seam.problem))


def workers_section(workers: Sequence[Worker]) -> Html:
    """Return the workers as a table that sorts; nothing where one has done all."""
    if len(workers) < 2:
        return Html("")
    shown = sorted(workers, key=lambda one: (one.has_ended, -one.trained))[:MOST_WORKERS]
    rows = table(HEADINGS, [_worker_row(one) for one in workers if one in shown], WORDS, name="Workers")
    left = len(workers) - len(shown)
    return tag("div", rows, tag("p", f"{left:,} more are in report.json.", class_="quiet") if left else Html(""))


def _worker_row(one: Worker) -> Html:
    seconds = tag("td", duration(one.seconds), class_="number", data_value=one.seconds)
    figures = [tag("td", str(count), class_="number", data_value=count) for count in (one.attempts, one.trained)]
    words = [tag("td", word) for word in (one.worker, one.node, one.job, one.since)]
    now = "has ended" if one.has_ended else ", ".join(one.running)
    return tag("tr", *words, *figures, seconds, tag("td", now))
