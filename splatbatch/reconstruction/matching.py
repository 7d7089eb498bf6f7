"""The stages "pairs" and "matching": chooses pairs of photographs; matches a chunk of the pairs, with verification."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from splatbatch.reconstruction.pairs import Pair, pairs_of
from splatbatch.reconstruction.stage import DATABASE, StageAttempt, open_database, with_device

if TYPE_CHECKING:
    import pycolmap

PAIRS = "pairs.npy"
AT_ONCE = 64
"""Most pairs that are matched in one call of COLMAP, after which progress is written."""


def choose(work: StageAttempt) -> dict[str, Any]:
    """Choose the pairs to match and write pairs.npy, [n, 2], to the folder of the product.

    The numbers in the file are indices into the plan's photographs. Photographs without features are left out.

    Returns:
        For metrics.json: "pairs", the number of pairs, and "photographs", the number of those with features.

    Raises:
        SceneError: the plan cannot be read.
        LaterFormatError: a later version of splatbatch wrote the plan or the metrics of a stage.
        OSError: a product of the stage "features" cannot be read, or pairs.npy cannot be written.
    """
    plan = work.plan
    found = pairs_of(plan, descriptors(work))
    lacking = {name for _, made in work.made("features") for name in made.facts.get("left_out", {})}
    usable = [one.name not in lacking for one in plan.photographs]
    pairs = [(a, b) for a, b in found if usable[a] and usable[b]]
    work.product.mkdir(exist_ok=True)
    np.save(work.product / PAIRS, np.array(pairs, np.int32).reshape(-1, 2))
    return {"pairs": len(pairs), "photographs": sum(usable)}


def make(work: StageAttempt) -> dict[str, Any]:
    """Match a chunk of the pairs, the share of one process; write a COLMAP database with their geometries.

    The database is in the folder of the attempt's product.

    Returns:
        For metrics.json: "pairs", the number of matched pairs, and "verified", that of pairs with inlier matches.

    Raises:
        SceneError: the plan cannot be read.
        LaterFormatError: a later version of splatbatch wrote the plan or the metrics of a stage.
        OSError: a product of an earlier stage cannot be read, or the database cannot be written.
    """
    import pycolmap

    plan = work.plan
    every, number, of = np.load(work.of("pairs") / PAIRS), work.told.number, plan.num_matchings
    pairs = [(int(a), int(b)) for a, b in every[len(every) * number // of : len(every) * (number + 1) // of]]
    options, device = with_device(pycolmap.FeatureMatchingOptions())
    options.num_threads = work.threads
    verification = pycolmap.TwoViewGeometryOptions()
    verification.ransac.random_seed = plan.wanted.seed
    pairing = pycolmap.ImportedPairingOptions()
    work.product.mkdir(exist_ok=True)
    with work.scratch() as scratch:
        path, listed = scratch / DATABASE, scratch / "pairs.txt"
        copy_features(work, path, sorted({place for pair in pairs for place in pair}))
        pairing.match_list_path = listed
        for start in range(0, len(pairs), AT_ONCE):
            block = pairs[start : start + AT_ONCE]
            listed.write_text("".join(f"{plan.numbers[a]} {plan.numbers[b]}\n" for a, b in block))
            pycolmap.match_image_pairs(path, options, pairing, verification, device)
            work.tell("matching", start + len(block), len(pairs))
        with pycolmap.Database.open(path) as database:
            verified = len([*two_views(database)])
            database.clear_descriptors()
            database.clear_keypoints()
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("VACUUM")  # frees the space of the cleared tables
        shutil.move(path, work.product / DATABASE)
    return {"pairs": len(pairs), "verified": verified}


def copy_features(work: StageAttempt, path: Path, places: list[int], *, with_descriptors: bool = True) -> None:
    """Write a COLMAP database with the features of some photographs; an existing file is replaced.

    Args:
        work: the attempt, for the plan and the products of the stage "features".
        path: path of the database; copies of other databases are written beside it.
        places: indices into the plan's photographs. Those without features get no keypoints.
        with_descriptors: whether descriptors are written, too, which only matching needs.

    Raises:
        SceneError: the plan cannot be read.
        LaterFormatError: a later version of splatbatch wrote the plan or the metrics of a stage.
        OSError: a product of the stage "features" cannot be copied, or an existing database cannot be removed.
    """
    import pycolmap

    wanted, plan = set(places), work.plan
    with open_database(path, plan, places) as database, pycolmap.DatabaseTransaction(database):
        for (name, _), chunk in zip(work.made("features"), plan.chunks(), strict=True):
            if not wanted.intersection(chunk):
                continue
            with readable(work.of(name) / DATABASE, path.parent) as source:
                for place in wanted.intersection(chunk):
                    if source.num_keypoints_for_image(place + 1):
                        database.write_keypoints(place + 1, source.read_keypoints(place + 1))
                        if with_descriptors:
                            database.write_descriptors(place + 1, source.read_descriptors(place + 1))


def readable(path: Path, scratch: Path) -> Any:
    """Return an open `pycolmap.Database`: a copy of a database in the folder `scratch`.

    The original is not opened, since SQLite writes files beside a database that it reads. The next copy replaces this
    one, so that only one may be open at a time.

    Raises:
        OSError: the database cannot be copied.
    """
    import pycolmap

    copy = scratch / "read.db"
    shutil.copyfile(path, copy)
    return pycolmap.Database.open(copy)


def descriptors(work: StageAttempt) -> Iterator[NDArray[np.float32]]:
    """Yield the descriptors of each photograph, [n, 128], divided by 512, in the order of the plan.

    n is 0 for a photograph without features.

    Raises:
        SceneError: the plan cannot be read.
        LaterFormatError: a later version of splatbatch wrote the plan or the metrics of a stage.
        OSError: a product of the stage "features" cannot be copied to the scratch folder.
    """
    with work.scratch() as scratch:
        for (name, _), chunk in zip(work.made("features"), work.plan.chunks(), strict=True):
            with readable(work.of(name) / DATABASE, scratch) as source:
                for place in chunk:
                    found = source.num_descriptors_for_image(place + 1)
                    data = np.asarray(source.read_descriptors(place + 1).data, np.float32) if found else None
                    yield np.zeros((0, 128), np.float32) if data is None else data.reshape(-1, 128) / np.float32(512)


def two_views(database: pycolmap.Database) -> Iterator[tuple[Pair, int]]:
    """Yield the verified pairs of a COLMAP database, each with its number of inlier matches, above 0.

    A pair is two indices into the plan's photographs.
    """
    import pycolmap

    for pair_id, number in zip(*database.read_two_view_geometry_num_inliers(), strict=True):
        a, b = pycolmap.pair_id_to_image_pair(pair_id)
        if number:
            yield (a - 1, b - 1), number
