"""The scene's section of the page: what was measured, every seam with its figures; its map is on the first screen."""

from __future__ import annotations

from splatbatch.report.facts import CutScene, Report, ReportedSeam
from splatbatch.report.page.html import Html, join, table, tag
from splatbatch.report.scene.merged import SEAM_FIGURES, in_words, seam_figures

GRADES = {"even": "even", "slight": "slight", "step": "a step", "unknown": ""}


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
