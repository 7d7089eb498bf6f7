"""`plan-capture` on the quarry with a hole in its coverage: what was taken out is suggested again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from command_line import Ended, invoke
from cut_quarry import QUARRY, lay_out, quarry_splat, thinned_quarry, trained_p0
from published_shapes import checked

from splatbatch.files import write_json
from splatbatch.output.records.quality import Inspection
from splatbatch.publish.tiles.geodesy import to_degrees
from splatbatch.run.capture import flight_of
from splatbatch.scene.colmap.copies import Subset
from splatbatch.scene.colmap.indexed_model import read_sightings
from splatbatch.scene.colmap.reconstruction import read_reconstruction
from splatbatch.scene.next_flight import FEW, CoverageSurvey, FlightCamera, placed_cameras
from splatbatch.tasks.batch import open_batch


def removed_shots(folder: Path) -> list[FlightCamera]:
    """Take half of the cameras out of p0, those on one side; return them."""
    sparse = folder / "patches/p0/sparse/0"
    model, known = read_reconstruction(sparse), read_sightings(sparse)
    east = {image.name: image.center()[0] for image in model.images}
    limit = np.median(list(east.values()))
    kept = np.array([east[image.name] < limit for image in known.images])
    for file in sparse.iterdir():
        file.unlink()
    Subset(known, kept, known.seen_by(kept)).write(sparse)
    return [*placed_cameras([one for one in model.images if east[one.name] >= limit], model.cameras).values()]


@pytest.fixture(scope="module")
def holed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[FlightCamera]]:
    """The quarry whose p0 lacks half of its photographs, inspected."""
    folder = tmp_path_factory.mktemp("flown") / "quarry"
    shutil.copytree(QUARRY, folder, ignore=shutil.ignore_patterns("output"))
    removed = removed_shots(folder)
    config = trained_p0(folder)
    assert invoke("inspect", "p0", "--config", str(config)).code == 0
    return folder, removed


def plan(folder: Path, *arguments: str) -> Ended:
    return invoke("plan-capture", *arguments, "--config", str(folder / "splat_config.yml"))


@pytest.mark.all
def test_the_suggested_views_fill_the_hole(holed: tuple[Path, list[FlightCamera]]) -> None:
    folder, removed = holed
    batch = open_batch(folder / "splat_config.yml", ["p0"])
    found = flight_of(batch)
    places = np.array([cell.place for cell in found.cells])
    once = np.stack([camera.sees(places) for camera in removed], axis=1).sum(axis=1)
    lost = (once > 0) & (np.array([cell.num_photos for cell in found.cells]) < FEW)
    views = [view.camera for view in found.suggested]
    now = CoverageSurvey(places, np.ones(len(places)), views, found.up).seen.sum(axis=1)
    have = np.array([cell.num_photos for cell in found.cells])
    print(f"{len(found.cells)} weak, {lost.sum()} lost, {len(views)} views, {len(found.left)} left")
    assert lost.sum() > 5
    assert ((now + have)[lost] >= FEW).mean() >= 0.95
    assert len(views) < len(found.cells)


@pytest.mark.all
def test_views_stand_clear_of_the_splat_and_above_what_they_look_at(holed: tuple[Path, list[FlightCamera]]) -> None:
    found = flight_of(open_batch(holed[0] / "splat_config.yml", ["p0"]))
    means = quarry_splat().means
    for view in found.suggested:
        assert np.linalg.norm(means - view.camera.center, axis=1).min() > 0.15 * found.distance
        assert (view.camera.center - view.target) @ found.up > 0.5 * found.distance


def test_of_a_scene_the_cells_are_those_of_its_own_inspection(tmp_path: Path) -> None:
    folder = tmp_path / "quarry"
    lay_out(folder)
    batch = open_batch(folder / "splat_config.yml")
    untrained = flight_of(batch, is_whole=True)
    assert {cell.patch for cell in untrained.cells} <= {"p0", "p1", ""}
    low, middle, high = np.percentile(quarry_splat().means, (1, 50, 99), axis=0)
    beside = middle + np.array([high[0] - low[0], 0.0, 0.0])  # no photograph sees it
    cells = tuple(dict(zip("xyz", place.tolist(), strict=True)) | {"size": 1.0} for place in (middle, beside))
    write_json(batch.output.scene.inspection, Inspection(grade="A", cells=cells).to_record())
    found = flight_of(batch, is_whole=True)
    assert found.cells and {cell.patch for cell in found.cells} == {"scene"}


@pytest.mark.all
def test_before_it_is_trained_a_patch_is_judged_by_its_points(tmp_path: Path) -> None:
    folder = thinned_quarry(tmp_path / "quarry", 3)
    found = flight_of(open_batch(folder / "splat_config.yml", ["p1"]))
    few = [cell for cell in found.cells if cell.why == "few photographs"]
    assert {cell.patch for cell in few} == {"p1"}
    few_of_all = [cell for cell in flight_of(open_batch(QUARRY, ["p1"])).cells if cell.why == "few photographs"]
    assert len(few) > 5 * max(1, len(few_of_all))
    assert len(found.suggested) >= 2
    assert plan(folder, "p1").code == 0
    (folder / "patches/p0/sparse/0/points3D.bin").write_bytes(bytes(8))  # none
    told = plan(folder)
    assert (told.code, "p0: not inspected, and the model has hardly any points" in told.err) == (3, True)


@pytest.mark.all
def test_programs_get_json(holed: tuple[Path, list[FlightCamera]]) -> None:
    told = checked("plan-capture", plan(holed[0], "p0", "--json").out)
    found = flight_of(open_batch(holed[0] / "splat_config.yml", ["p0"]))
    assert (len(told["views"]), told["weak_cells"]) == (len(found.suggested), len(found.cells)) > (0, 0)


@pytest.mark.all
def test_it_is_written_as_geojson_and_kml(holed: tuple[Path, list[FlightCamera]], tmp_path: Path) -> None:
    for name in ("a.geojson", "b.kml"):
        done = plan(holed[0], "p0", "--to", str(tmp_path / name))
        assert done.code == 0, done.err
        assert "weak part" in done.out
    assert "model's own axes" in json.loads((tmp_path / "a.geojson").read_text())["coordinates_are"]
    assert ElementTree.parse(tmp_path / "b.kml").getroot().tag.endswith("kml")


@pytest.mark.all
def test_bad_wishes_are_told(holed: tuple[Path, list[FlightCamera]], tmp_path: Path) -> None:
    assert "neither GeoJSON nor KML" in plan(holed[0], "p0", "--to", str(tmp_path / "a.txt")).err
    nowhere = plan(holed[0], "p0", "--to", str(tmp_path / "none" / "a.kml"))
    assert nowhere.code != 0
    assert "Traceback" not in nowhere.err


@pytest.mark.all
def test_a_crs_in_which_the_scene_cannot_lie_is_told(holed: tuple[Path, list[FlightCamera]]) -> None:
    pytest.importorskip("pyproj")
    config = holed[0] / "mapped.yml"
    config.write_text((holed[0] / "splat_config.yml").read_text().replace("scene:\n", "scene:\n  crs: EPSG:32632\n", 1))
    done = invoke("plan-capture", "p0", "--config", str(config))
    assert (done.code, "scene.crs: EPSG:32632" in done.err) == (2, True)


def test_a_crs_gives_degrees() -> None:
    pytest.importorskip("pyproj")
    place = np.array([[500_000.0, 5_000_000.0, 120.0]])
    # the middle of UTM zone 32; its meridian at 5,000,000 m: tabulated
    assert to_degrees("EPSG:32632", place[0])(place)[0] == pytest.approx([9.0, 45.1535, 120.0], abs=1e-3)
