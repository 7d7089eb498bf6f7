"""`plan-capture`: what to photograph next, as a list, GeoJSON or KML."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from splatbatch.cli.commands.output import open_console, open_table, print_json, print_line
from splatbatch.errors import ConfigError, OutputError
from splatbatch.files import write_text
from splatbatch.run.capture import flight_of
from splatbatch.scene.next_flight import Flight
from splatbatch.tasks.batch import open_batch
from splatbatch.text import plural

SCENE = "scene"
"""Names all patches together."""
FORMATS = (".geojson", ".json", ".kml")
MOST_SHOWN = 60
COLUMNS = ("view", "position", "heading", "pitch", "above target", "covers")


def plan_capture(config: Path | None, names: Sequence[str], to: Path | None, *, as_json: bool) -> None:
    """Say which photographs would help the weak cells of some patches; exit with 0, also where none are needed.

    Raises:
        ConfigError: the file is neither GeoJSON nor KML.
        SceneError: nothing of it is inspected.
        OutputError: the file cannot be written.
    """
    if to and to.suffix.lower() not in FORMATS:
        raise ConfigError(f"--to {to}: neither GeoJSON nor KML", "Give a file name that ends in .geojson or .kml.")
    batch = open_batch(config, [name for name in names if name != SCENE])
    if to:
        batch.check_apart("--to", to, to.parent)
    flight = flight_of(batch, is_whole=SCENE in names)
    if to:
        _write(flight, to)
    if as_json:
        print_json(flight.facts())
        return
    _show(flight)
    if to:
        print_line(f"views written to {to}")


def _write(flight: Flight, to: Path) -> None:
    try:
        write_text(to, flight.to_kml() if to.suffix.lower() == ".kml" else flight.to_geojson())
    except OSError as error:
        raise OutputError(
            f"--to {to}: cannot be written ({error.strerror})", "Give a file in a writable folder."
        ) from error


def _show(flight: Flight) -> None:
    plan = flight.plan
    if not plan.cells:
        print_line("No more photographs are needed: every cell is seen often enough and from different directions.")
        return
    table = open_table(COLUMNS, ("view", "position"))
    for view in flight.views()[:MOST_SHOWN]:
        place = ", ".join(f"{one:.10g}" for one in view.position)
        figures = (f"{one:g}" for one in (view.heading_deg, view.pitch_deg, view.above_target))
        table.add_row(view.name, place, *figures, plural(len(view.covers), "cell"))
    open_console().print(table)
    kinds = [cell.why for cell in plan.cells]
    told = ", ".join(f"{kinds.count(why)} {why}" for why in dict.fromkeys(kinds))
    covers = f"{plural(len(plan.views), 'photograph')} for {plural(len(plan.cells), 'weak cell')} ({told})"
    print_line(
        f"{covers}, taken from a distance of {plan.distance:.4g}; headings are clockwise from the model's y axis"
    )
    if plan.left:
        print_line(f"{plural(len(plan.left), 'cell')} cannot be covered: there is no free camera position nearby")
