"""Commands on quality: `evaluate` measures the scene, `inspect` each splat; `plan-capture` plans new photographs."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

from typer import Exit, Option

from splatbatch import terminal
from splatbatch.cli.app import app, open_folder, open_splats
from splatbatch.cli.options import BatchArgument, ConfigOption, JsonOption, PatchArguments, existing_file, named
from splatbatch.cli.stdout import print_facts, print_json, print_line, print_table
from splatbatch.errors import ConfigError
from splatbatch.text import plural

if TYPE_CHECKING:
    from splatbatch.output.records.evaluation import SceneEvaluation, SceneMeasurement, SeamMeasurement
    from splatbatch.output.records.quality import QualityFigure
    from splatbatch.publish.certificate import CertificateCheck
    from splatbatch.run.inspection import Found
    from splatbatch.scene.next_flight import FlightPlan

NOT_ALL = 1
"""Exit code if a patch is missing, a splat could not be inspected, or a certificate does not hold."""
FLIGHT_FORMATS = (".geojson", ".json", ".kml")
MOST_VIEWS = 60
MEASUREMENT_COLUMNS = ("photographs", "number", "covered dB", "PSNR dB", "SSIM", "LPIPS", "patches' own dB", "gain dB")
SEAM_COLUMNS = (
    "seam", "across", "covered dB", "PSNR dB", "views", "between dB", "colour /255", "depth step %", "density",
    "pixels %", "note",
)  # fmt: skip


@app.command()
def evaluate(
    folder: BatchArgument = None,
    config: ConfigOption = None,
    splat: Annotated[
        Optional[Path],
        Option(
            metavar="FILE", callback=existing_file, help="3DGS PLY in scene coordinates; default: the merged splat."
        ),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Measure the merged scene on held-out photographs and at the seams of patches."""
    from splatbatch.run import api

    terminal.never_block()
    found = api.evaluate(open_folder(config, folder), splat)
    print_facts(found, show_evaluation, as_json=json_)
    raise Exit(NOT_ALL if found.lacking else 0)


def show_evaluation(found: SceneEvaluation) -> None:
    """Print the measurements on photographs and at seams as tables; notes and patches that are missing go to stderr."""
    rows = {"all held-out": found.total, "across a seam": found.across, "all others": found.within, **found.patches}
    print_table(MEASUREMENT_COLUMNS, ("photographs",), starmap(_measurement_row, rows.items()))
    if found.seams:
        print_table(SEAM_COLUMNS, ("seam", "note"), map(_seam_row, found.seams))
    for name, why in found.lacking.items():
        print_line(f"{name}: {why}: its seams were not measured", err=True)
    for note in found.notes:
        print_line(note, err=True)


def _measurement_row(name: str, one: SceneMeasurement) -> tuple[str, ...]:
    quality = (figure(one.psnr_covered), figure(one.psnr), figure(one.ssim, ".3f"), figure(one.lpips, ".3f"))
    return (name, str(one.num_photos), *quality, figure(one.own_psnr), figure(one.gain_db, "+.2f"))


def _seam_row(seam: SeamMeasurement) -> tuple[str, ...]:
    across = (str(seam.across.num_photos), figure(seam.across.psnr_covered), figure(seam.across.psnr))
    between = (str(seam.num_views), figure(seam.psnr_between), figure(seam.color_offset))
    step, share = (None if one is None else 100 * one for one in (seam.depth_step, seam.share))
    figures = (figure(step, "+.2f"), figure(seam.density_ratio), figure(share, ".0f"))
    return (seam.name, *across, *between, *figures, seam.problem)


def figure(value: float | None, form: str = ".2f") -> str:
    """Return a figure as text in the format `form`; a dash if it is None, unknown."""
    return "-" if value is None else f"{value:{form}}"


@app.command()
def inspect(
    patches: Annotated[
        list[str],
        named(
            "PATCH|scene",
            "Only these patches, such as p5 p7; or scene for the merged splat; with --check also a certificate.json.",
        ),
    ] = [],
    config: ConfigOption = None,
    json_: JsonOption = False,
    check: Annotated[
        bool, Option("--check", help="Only check that certificates still match their splats, settings and files.")
    ] = False,
) -> None:
    """Measure quality beyond PSNR: haze, floaters, holes, photographs that hurt."""
    from splatbatch.publish.certificate import CertificateCheck, problems_of_batch, problems_of_file
    from splatbatch.run import api
    from splatbatch.run.inspection import InspectOptions
    from splatbatch.tasks.batch import named_batch
    from splatbatch.tasks.inspection import open_named

    config, names = named_batch(config, patches)
    if check:
        files = [name for name in names if name.endswith(".json") and Path(name).is_file()]
        problems = {name: problems_of_file(Path(name)) for name in files}
        others = [name for name in names if name not in files]
        if others or not files:
            problems |= problems_of_batch(config, others)
        checked = {name: CertificateCheck(tuple(why)) for name, why in problems.items()}
        print_facts(checked, show_certificates, as_json=json_)
        raise Exit(NOT_ALL if any(problems.values()) else 0)
    terminal.never_block()
    batch, is_of_scene = open_named(config, names)
    found, failed = api.inspect(batch, InspectOptions(is_of_scene))
    print_facts(dict(found), show_inspections, as_json=json_)
    for name, why in failed.items():
        print_line(f"{name}: {why}", err=True)
    raise Exit(NOT_ALL if failed else 0)


def show_certificates(checked: Mapping[str, CertificateCheck]) -> None:
    """Print the problems of each certificate, or that the certificate holds."""
    for name, one in checked.items():
        print_line(f"{name}: {'; '.join(one.problems) or 'the certificate holds'}")


def show_inspections(found: Found) -> None:
    """Print the figures of each splat that exceed their limits, or that none does, with grades and advice."""
    from splatbatch.output.records.quality import GRADES, QualityFigure, grade_in_words

    nothing = QualityFigure("all within limits")
    rows = [(name, one.grade, *_figure_row(each)) for name, one in found.items() for each in one.found or (nothing,)]
    if rows:
        headings = ("patch", "grade", "figure", "value", "limit", "what", "photographs")
        print_table(headings, ("patch", "grade", "figure", "what", "photographs"), rows)
    for letter in sorted({one.grade for one in found.values()} & GRADES.keys()):
        print_line(grade_in_words(letter))
    for name, advice in {each.name: each.advice for one in found.values() for each in one.found}.items():
        print_line(f"{name}: {advice}")


def _figure_row(figure: QualityFigure) -> tuple[str, ...]:
    from splatbatch.run.inspection import MOST_NAMED

    named = ", ".join(figure.subjects[:MOST_NAMED]) + (", …" if len(figure.subjects) > MOST_NAMED else "")
    value, limit = ("" if one is None else f"{one:.3g}" for one in (figure.value, figure.limit))
    return (figure.name, value, limit, f"{figure.unit} {figure.meaning}", named)


@app.command("plan-capture")
def plan_capture(
    patches: PatchArguments = [],
    config: ConfigOption = None,
    to: Annotated[
        Optional[Path], Option(metavar="FILE", help="Also write the views to this file: *.geojson or *.kml.")
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Plan photographs for weakly covered parts of the scene, before training or after `splatbatch inspect`."""
    from splatbatch.files import write_text
    from splatbatch.run.capture import flight_of
    from splatbatch.tasks.inspection import SCENE

    if to and to.suffix.lower() not in FLIGHT_FORMATS:
        raise ConfigError(f"--to {to}: neither GeoJSON nor KML", "Give a file name that ends in .geojson or .kml.")
    batch, names = open_splats(config, patches)
    if to:
        batch.check_apart("--to", to, to.parent)
    flight = flight_of(batch, is_whole=SCENE in names)
    if to:
        write_text(to, flight.to_kml() if to.suffix.lower() == ".kml" else flight.to_geojson())
    if json_:
        return print_json(flight.facts())
    show_flight(flight)
    if to:
        print_line(f"views written to {to}")


def show_flight(flight: FlightPlan) -> None:
    """Print the photographs that would help, and how many weakly covered parts of the scene (cells) they cover.

    Only the first `MOST_VIEWS` photographs are listed.
    """
    from splatbatch.scene.next_flight import WEAKNESS

    if not flight.cells:
        return print_line(
            "No more photographs are needed: every part of the scene is seen often enough, from different directions."
        )
    rows = []
    for view in flight.views()[:MOST_VIEWS]:
        position = ", ".join(f"{one:.10g}" for one in view.position)
        figures = (f"{one:g}" for one in (view.heading_deg, view.pitch_deg, view.above_target))
        rows.append((view.name, position, *figures, plural(len(view.covers), "part")))
    print_table(("view", "position", "heading", "pitch", "above target", "covers"), ("view", "position"), rows)
    kinds = [cell.why for cell in flight.cells]
    told = ", ".join(f"{kinds.count(why)} {WEAKNESS[why]}" for why in dict.fromkeys(kinds))
    covers = f"{plural(len(flight.suggested), 'photograph')} for {plural(len(flight.cells), 'weak part')} ({told})"
    print_line(
        f"{covers}, taken from a distance of {flight.distance:.4g}; headings are clockwise from the model's y axis"
    )
    if flight.left:
        print_line(
            f"{plural(len(flight.left), 'weak part')} cannot be covered: there is no free camera position nearby"
        )
