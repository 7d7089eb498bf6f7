"""The stage "features": finds the features of one process's share of the photographs, and measures their sharpness."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Any

import numpy as np

from splatbatch.files import write_json
from splatbatch.outcome import Killed
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.records.record import TypedRecord
from splatbatch.reconstruction.stage import DATABASE, StageAttempt, open_database, with_device
from splatbatch.scene.photos.headers import opened_photograph, pixels_of
from splatbatch.scene.photos.pixels import undecodable

READING = "reading.json"
"""Name of the file in an attempt's folder that names the photographs being read.

After a crash of the process one of them may be the cause; the next attempt reads each alone.
"""
LOOKED_AT_PX = 640
"""Longest side, in pixels, of the reduced photograph on which sharpness and brightness are measured."""
CRASHES = frozenset({4, 6, 7, 8, 11})
"""Numbers of the signals that count as a crash: SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGSEGV."""


@dataclass(frozen=True)
class FeatureExtraction(TypedRecord):
    """Content of reading.json: names of photographs that are being read; the file is removed after the last batch."""

    names: tuple[str, ...] = ()


def make(work: StageAttempt) -> dict[str, Any]:
    """Find the features of a chunk of the photographs, the share of one process; write them to a COLMAP database.

    The database is in the folder of the attempt's product.

    Photographs that cannot be decoded are left out. If a retry says so (setting leave_out), so are photographs that
    crashed an earlier attempt while they were read alone.

    Returns:
        For metrics.json: "photographs" with the measurements of each by name, "left_out" with the reasons by name, and
        "features", the limit of features in a photograph. Photographs without a feature are in "left_out", too.

    Raises:
        SceneError: the plan cannot be read.
        LaterFormatError: a later version of splatbatch wrote the plan, or reading.json of an earlier attempt.
        OSError: a file cannot be read or written.
    """
    import pycolmap

    plan, changes = work.plan, work.told.changes
    chunk = plan.chunks()[work.told.number]
    suspects = suspects_of(work.folder)
    crashed = {names[0] for names in suspects if len(names) == 1} if changes.get("leave_out") else set()
    left_out = dict.fromkeys(sorted(crashed), "decoding this photograph crashed the process")
    alone = {name for names in suspects for name in names}
    wanted = [plan.photographs[place].name for place in chunk if plan.photographs[place].name not in crashed]
    options, device = with_device(pycolmap.FeatureExtractionOptions())
    options.num_threads = work.threads
    options.sift.max_num_features = int(changes.get("features", plan.wanted.features))
    work.product.mkdir(exist_ok=True)
    looks = dict[str, dict[str, float]]()
    numbers = dict(zip((one.name for one in plan.photographs), plan.numbers, strict=True))
    with work.scratch() as scratch:
        path, linked = scratch / DATABASE, work.linked(scratch)
        open_database(path, plan, chunk).close()
        for names in _batches(wanted, alone, 2 * work.threads):
            write_json(work.folder.path / READING, FeatureExtraction(tuple(names)).to_record())
            left_out |= damaged(work, names)
            whole = [name for name in names if name not in left_out]
            if whole:  # an empty list would mean all images to COLMAP
                asked = [numbers[name] for name in whole]
                pycolmap.extract_features(path, linked, asked, extraction_options=options, device=device)
            looks |= {name: look(work, name) for name in whole}
            work.tell("features", len(looks), len(wanted))
        (work.folder.path / READING).unlink(missing_ok=True)
        with pycolmap.Database.open(path) as database:
            for place in chunk:
                name = plan.photographs[place].name
                number = database.num_keypoints_for_image(place + 1)
                if name in looks:
                    looks[name]["features"] = number
                if not number:
                    left_out.setdefault(name, "no feature was found in this photograph")
        shutil.move(path, work.product / DATABASE)
    return {"photographs": looks, "left_out": left_out, "features": options.sift.max_num_features}


def suspects_of(folder: AttemptFolder) -> list[list[str]]:
    """Return the names of the photographs that each crashed earlier attempt was reading, one list per attempt.

    Empty if no attempt crashed; the lists are in no order. Crashed attempts without a readable reading.json are left
    out.

    Raises:
        LaterFormatError: a later version of splatbatch wrote reading.json.
    """
    found = []
    for one in folder.earlier():
        told = one.read_exit()
        reading = FeatureExtraction.read(one.path / READING)
        if reading and told and isinstance(told.end, Killed) and told.end.signal in CRASHES:
            found.append([*reading.names])
    return found


def damaged(work: StageAttempt, names: list[str]) -> dict[str, str]:
    """Return the reason for each photograph that cannot be decoded completely, by name; empty: all can.

    COLMAP would take grey for lost parts.

    Args:
        work: the attempt, for the folder of the photographs and the number of threads.
        names: names of the photographs to decode, relative to that folder.

    Raises:
        SceneError: the plan cannot be read.
        LaterFormatError: a later version of splatbatch wrote the plan.
    """
    paths = {str(work.images / name): name for name in names}
    again = "copy the photograph again; the original may be whole"
    faults = undecodable(paths, work.threads)
    return {paths[path]: f"cannot be read: {what}: {again}" for path, what in faults.items()}


def look(work: StageAttempt, name: str) -> dict[str, float]:
    """Return measurements of a photograph, reduced to LOOKED_AT_PX, for the reasons why it may not register.

    "sharpness" is the variance of the Laplacian per variance of the pixels. "brightness" is the mean, 0 to 255, and
    "clipped" the share, 0 to 1, of pixels that are black or white.

    Args:
        work: the attempt, for the folder of the photographs.
        name: name of the photograph, relative to that folder.

    Raises:
        OSError: the photograph cannot be read or decoded; damaged files may raise any other error of Pillow.
        SceneError: the plan cannot be read.
        LaterFormatError: a later version of splatbatch wrote the plan.
    """
    with opened_photograph(work.images / name) as image:
        image.draft("L", (LOOKED_AT_PX, LOOKED_AT_PX))
        grey = pixels_of(image, "L")
        grey.thumbnail((LOOKED_AT_PX, LOOKED_AT_PX))
        values = np.asarray(grey, np.float32)
    edges = 4 * values[1:-1, 1:-1] - values[:-2, 1:-1] - values[2:, 1:-1] - values[1:-1, :-2] - values[1:-1, 2:]
    clipped = float(((values <= 2) | (values >= 253)).mean())
    return {
        "sharpness": round(float(edges.var() / (values.var() + 1)), 4),
        "brightness": round(float(values.mean()), 1),
        "clipped": round(clipped, 3),
    }


def _batches(names: list[str], alone: set[str], size: int) -> list[list[str]]:
    """Return batches of photographs to read together; each suspect of an earlier crash is read first, and alone."""
    usual = [name for name in names if name not in alone]
    cut = [usual[start : start + size] for start in range(0, len(usual), size)]
    return [[name] for name in names if name in alone] + cut
