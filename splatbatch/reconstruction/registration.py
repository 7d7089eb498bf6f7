"""Builds the record of a reconstruction: which photographs registered, how well, why others did not, and advice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from splatbatch.reconstruction.facts import MOST_NAMED, GpsFit, OtherComponent, ReconstructionRecord, RegisteredImage
from splatbatch.reconstruction.mapping import names_in
from splatbatch.reconstruction.matching import readable, two_views
from splatbatch.reconstruction.stage import DATABASE, StageAttempt
from splatbatch.scene.colmap.types import triple
from splatbatch.text import list_some

if TYPE_CHECKING:
    import pycolmap

    from splatbatch.reconstruction.georeference import Georeference

BLURRED = 0.4
"""Share of its camera's median sharpness below which a photograph counts as blurred."""
DARK, BRIGHT, CLIPPED = 30.0, 225.0, 0.5
"""Limits of good exposure: least and largest mean brightness (0 to 255), largest share of black or white pixels."""
FEW_FEATURES = 200
FEW_MATCHES = 30
"""Least number of matches with a registered photograph that fixes a pose (COLMAP: abs_pose_min_num_inliers)."""
HIGH_PX = 1.5
"""Mean reprojection error in pixels above which advice is given."""


def facts_of(
    work: StageAttempt, scratch: Path, models: Sequence[pycolmap.Reconstruction], found: Georeference | None
) -> ReconstructionRecord:
    """Return the record of a reconstruction, for reconstruction.json: figures, missing photographs, advice.

    Args:
        work: the attempt of the stage "model".
        scratch: folder on a local disk for copies of databases.
        models: models of the components (photographs mapped together), the largest first; at least one.
        found: georeference of the largest model; None if GPS does not fix one.

    Raises:
        SceneError: the plan cannot be read.
        LaterFormatError: a later version of splatbatch wrote the plan or the metrics of a stage.
        OSError: a product of the stage "matching" cannot be copied.
    """
    plan, best = work.plan, models[0]
    registered = names_in(best)
    names = [one.name for one in plan.photographs]
    looks: dict[str, dict[str, float]] = {}
    left_out = dict(plan.left_out)
    for _, made in work.made("features"):
        looks |= made.facts.get("photographs", {})
        left_out |= made.facts.get("left_out", {})
    matches = matches_of(work, scratch)
    components = [sorted(names_in(one)) for one in models]

    def usual(camera: int) -> float:
        """Return the median sharpness of a camera's photographs; 0 if none was measured."""
        known = [looks.get(one.name, {}).get("sharpness") for one in plan.photographs if one.camera == camera]
        return median([one for one in known if one is not None] or [0.0])

    elsewhere = {
        name: f"belongs to another group, of {len(one)} photographs, that could not be joined to the model"
        for one in components[1:]
        for name in one
    }
    missing = {
        one.name: elsewhere.get(one.name)
        or left_out.get(one.name)
        or why_missing(looks.get(one.name, {}), usual(one.camera), matches.get(one.name, Counter()), registered)
        for one in plan.photographs
        if one.name not in registered
    }
    return ReconstructionRecord(
        given=len(names) + len(plan.left_out),
        registered=len(registered),
        components=tuple(len(one) for one in components),
        others=tuple(nearest(one, registered, matches) for one in components[1:]),
        points=best.num_points3D(),
        reprojection_px=round(float(best.compute_mean_reprojection_error()), 4),
        track_length=round(float(best.compute_mean_track_length()), 3),
        observations=round(float(best.compute_mean_observations_per_reg_image()), 1),
        cameras=tuple(one.what for one in plan.cameras),
        mapper=plan.mapper,
        why_mapper=plan.why_mapper,
        pairing=plan.pairing,
        why_pairing=plan.why_pairing,
        pairs=sum(made.facts.get("pairs", 0) for _, made in work.made("matching")),
        notes=plan.notes,
        gps=_gps(found),
        rig_baselines=tuple(_baselines(best)),
        placed=tuple(_placed(work, best, found)),
        missing=missing | plan.left_out,
        advice=tuple(advice(missing, components, float(best.compute_mean_reprojection_error()))),
        key=plan.key,
    )


Matches = Mapping[str, Counter[str]]
"""Number of inlier matches of each verified pair, by photograph and then by the other photograph."""


def matches_of(work: StageAttempt, scratch: Path) -> Matches:
    """Return the number of inlier matches of every verified pair, by photograph and then by the other photograph.

    Photographs without matches are absent. The numbers explain why photographs did not register.

    Args:
        work: the attempt, for the products of the stage "matching".
        scratch: folder on a local disk for copies of databases.

    Raises:
        SceneError: the plan cannot be read.
        LaterFormatError: a later version of splatbatch wrote the plan or the metrics of a stage.
        OSError: a product of the stage "matching" cannot be copied.
    """
    names, found = [one.name for one in work.plan.photographs], dict[str, Counter[str]]()
    for stage, _ in work.made("matching"):
        with readable(work.of(stage) / DATABASE, scratch) as database:
            for (a, b), number in two_views(database):
                found.setdefault(names[a], Counter())[names[b]] = number
                found.setdefault(names[b], Counter())[names[a]] = number
    return found


def why_missing(seen: Mapping[str, float], usual: float, matches: Counter[str], registered: set[str]) -> str:
    """Return the likely reasons why a photograph did not register, by its pixels and its matches; never empty.

    Args:
        seen: measurements of the photograph: "sharpness", "brightness" (0 to 255), "clipped" (share of black or white
            pixels), "features" (their number). Those that were not measured are absent and count as good.
        usual: median sharpness of all photographs of its camera; 0: unknown.
        matches: number of the photograph's matches with each other photograph.
        registered: names of the photographs of the model.
    """
    reasons = []
    if seen.get("clipped", 0) > CLIPPED or not DARK <= seen.get("brightness", 128) <= BRIGHT:
        clipped = 100 * seen.get("clipped", 0)
        reasons.append(
            f"exposure: mean brightness {seen.get('brightness', 0):.0f} of 255,"
            f" {clipped:.0f} % of pixels black or white"
        )
    if seen.get("sharpness", usual) < BLURRED * usual:
        reasons.append(f"blur: {seen['sharpness'] / usual:.0%} of the sharpness that is usual for this camera")
    if seen.get("features", FEW_FEATURES) < FEW_FEATURES:
        reasons.append(f"few features: {seen.get('features', 0):.0f} found")
    joined = max((number for other, number in matches.items() if other in registered), default=0)
    if joined < FEW_MATCHES:
        others = max(matches.values(), default=0)
        fits = f", {others} with photographs that are not registered" if others else ""
        reasons.append(f"no overlap: at most {joined} matches with registered photographs{fits}")
    return (
        "; ".join(reasons)
        or f"no pose was found, despite {joined} matches with a registered photograph: does the scene repeat there?"
    )


def nearest(component: Sequence[str], registered: set[str], matches: Matches) -> OtherComponent:
    """Return the record of a smaller component, with its strongest link to the model.

    The link is the pair of a photograph of the component and one of the model that has the most matches.
    Without any, the first photograph of the component is named, with an empty name for the other and 0 matches.

    Args:
        component: names of the component's photographs, at least one.
        registered: names of the model's photographs.
        matches: number of matches of each pair.
    """
    known = ((one, other, number) for one in component for other, number in matches.get(one, {}).items())
    found = [(number, one, other) for one, other, number in known if other in registered]
    number, one, other = max(found, default=(0, component[0], ""))
    return OtherComponent(tuple(component), one, other, number)


def advice(missing: Mapping[str, str], components: Sequence[Sequence[str]], error_px: float) -> list[str]:
    """Return sentences that tell the user what to change; empty if there is nothing to advise.

    Of a photograph that did not register, only the first reason counts.

    Args:
        missing: reason why a photograph did not register, by its name, as `why_missing` returns it.
        components: names of the photographs of each component, those of the model first.
        error_px: mean reprojection error of the model in pixels.
    """
    said = [
        f"{len(one)} photographs, {one[0]} to {one[-1]}, fit together, but not to the model: take photographs between"
        " these and the others, each showing two thirds of what the next shows."
        for one in components[1 : 1 + MOST_NAMED]
    ]
    causes = Counter(why.partition(":")[0] for why in missing.values())
    if causes["blur"]:
        said.append("Blurred photographs: move the camera slower, or use a shorter exposure.")
    if causes["exposure"]:
        said.append("Badly exposed photographs: use the same exposure for the whole scene.")
    if causes["no overlap"]:
        named = list_some((name for name, why in missing.items() if why.startswith("no overlap")), MOST_NAMED)
        said.append(
            f"No overlap: take photographs around {named} of which each shows two thirds of what the next shows."
        )
    if error_px > HIGH_PX:
        said.append(
            "The reprojection error is high: name the camera model with --camera, or reconstruct photographs of other"
            " cameras apart."
        )
    return said


def _placed(work: StageAttempt, best: pycolmap.Reconstruction, found: Georeference | None) -> Iterator[RegisteredImage]:
    """Yield each registered photograph with its position and errors, in order of name."""
    placed = {one.name for one in work.plan.photographs if one.place is not None}
    images = sorted((best.image(one) for one in best.reg_image_ids()), key=lambda one: str(one.name))
    errors = {point_id: float(point.error) for point_id, point in best.points3D.items()}
    residuals = iter(found.residuals if found else ())
    for one in images:
        seen = [errors[each.point3D_id] for each in one.points2D if each.has_point3D()]
        place = triple(round(float(each), 3) for each in one.projection_center())
        away = next(residuals) if found and one.name in placed else None
        gps_m = None if away is None else round(float(np.hypot(*away[:2])), 2)
        yield RegisteredImage(one.name, place, round(float(np.mean(seen)), 3) if seen else None, gps_m)


def _gps(found: Georeference | None) -> GpsFit | None:
    if found is None:
        return None
    away = np.hypot(*found.residuals[:, :2].T)
    mean, median_m, most = (round(float(one), 2) for one in (away.mean(), np.median(away), away.max()))
    height = round(float(np.abs(found.residuals[:, 2]).mean()), 2)
    return GpsFit(len(away), mean, median_m, most, height, found.similarity.scale, found.origin, found.upright_by)


def _baselines(best: pycolmap.Reconstruction) -> list[float]:
    """Return the distance of each camera of a rig from the reference camera, in units of the model."""
    found = []
    for _, rig in sorted(best.rigs.items()):
        for sensor, pose in rig.non_ref_sensors.items():
            if pose is not None and not rig.is_ref_sensor(sensor):
                found.append(round(float(np.linalg.norm(pose.translation)), 5))
    return found
