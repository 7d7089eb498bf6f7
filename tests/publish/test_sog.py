"""SOG as we pack it: read back here by the words of its specification, and by splat-transform."""

from __future__ import annotations

import io
import json
import math
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from letters import letters
from PIL import Image
from splat_tool import tool_or_skip

from splatbatch.publish import sog
from splatbatch.publish.convert import ConversionJob, convert
from splatbatch.publish.formats import FORMATS
from splatbatch.publish.source import SourcePart
from splatbatch.publish.tiles.tree import along_curve, some
from splatbatch.splats import Gaussians, read_splat, write_splat


def many(num: int, degree: int = 3) -> Gaussians:
    """Return Gaussians anywhere; colours vary with direction in one of forty ways, and a little on their own."""
    random = np.random.default_rng(3)
    ways, width = random.normal(size=(40, (degree + 1) ** 2 - 1, 3)), random.integers(0, 40, num)
    values = {
        "means": random.normal(scale=100.0, size=(num, 3)),
        "scales": random.normal(-4.0, 1.0, (num, 3)),
        "quats": random.normal(size=(num, 4)) * 3,
        "opacities": random.normal(0.0, 3.0, num),
        "sh0": random.normal(size=(num, 3)),
        "shN": ways[width] * 0.2 + random.normal(scale=0.02, size=(num, *ways.shape[1:])),
    }
    return Gaussians(**{name: np.asarray(value, dtype=np.float32) for name, value in values.items()})


def read_sog(content: bytes) -> Gaussians:
    """Return what a .sog holds, by its specification, in the order of its pictures."""
    archive = zipfile.ZipFile(io.BytesIO(content))
    meta = json.loads(archive.read("meta.json"))
    num = meta["count"]

    def pixels(part: str, which: int = 0) -> np.ndarray:
        picture = Image.open(io.BytesIO(archive.read(meta[part]["files"][which]))).convert("RGBA")
        return np.asarray(picture).reshape(-1, 4)

    low, high = (pixels("means", which)[:num, :3].astype(float) for which in (0, 1))
    mins, maxs = (np.array(meta["means"][name]) for name in ("mins", "maxs"))
    logs = mins + (maxs - mins) * (low + 256 * high) / 65_535
    packed = pixels("quats")[:num].astype(int)
    smaller = (packed[:, :3] / 255 - 0.5) * math.sqrt(2)
    quats = np.zeros((num, 4))
    for row, largest in enumerate(packed[:, 3] - 252):
        quats[row, [one for one in range(4) if one != largest]] = smaller[row]
        quats[row, largest] = math.sqrt(max(0.0, 1 - (smaller[row] ** 2).sum()))
    colors = pixels("sh0")[:num]
    shown = np.clip(colors[:, 3] / 255, 1e-3, 1 - 1e-3)
    values = {
        "means": np.sign(logs) * np.expm1(np.abs(logs)),
        "scales": np.array(meta["scales"]["codebook"])[pixels("scales")[:num, :3]],
        "quats": quats,
        "opacities": np.log(shown / (1 - shown)),
        "sh0": np.array(meta["sh0"]["codebook"])[colors[:, :3]],
        "shN": np.zeros((num, 0, 3)),
    }
    if "shN" in meta:
        harmonics = (meta["shN"]["bands"] + 1) ** 2 - 1
        palette = np.array(meta["shN"]["codebook"])[pixels("shN")[:, :3]].reshape(-1, harmonics, 3)
        labels = pixels("shN", 1)[:num].astype(int)
        of_row = labels[:, 0] + 256 * labels[:, 1]
        assert of_row.max() < meta["shN"]["count"]
        values["shN"] = palette[of_row]
    return Gaussians(**{name: np.asarray(value, dtype=np.float32) for name, value in values.items()})


def alike(found: Gaussians, wanted: Gaussians) -> None:
    """Assert that numbers came back as exactly as they are packed."""
    ordered = some(wanted, along_curve(wanted.means))
    unit = ordered.quats / np.linalg.norm(ordered.quats, axis=1, keepdims=True)
    turned = found.quats / np.linalg.norm(found.quats, axis=1, keepdims=True)
    assert np.allclose(found.means, ordered.means, rtol=2e-4, atol=2e-4)
    assert np.abs((unit * turned).sum(axis=1)).min() > 0.9999
    assert np.sqrt(((found.scales - ordered.scales) ** 2).mean()) < 0.01
    assert np.sqrt(((found.sh0 - ordered.sh0) ** 2).mean()) < 0.01
    shown = [1 / (1 + np.exp(-one.opacities)) for one in (found, ordered)]
    assert np.abs(shown[0] - shown[1]).max() < 0.003
    if ordered.shN.size:
        assert np.sqrt(((found.shN - ordered.shN) ** 2).mean()) < 0.021


@pytest.mark.parametrize(("num", "degree"), [(1, 0), (2, 3), (1023, 1), (5000, 2), (3000, 3)])
def test_what_is_packed_comes_back_by_the_specification(tmp_path: Path, num: int, degree: int) -> None:
    sog.write_sog(tmp_path / "a.sog", many(num, degree))
    alike(read_sog((tmp_path / "a.sog").read_bytes()), many(num, degree))


@pytest.mark.all
@pytest.mark.parametrize("gaussians", [letters(), letters(3), many(5000)], ids=["flat", "letters", "many"])
def test_splat_transform_reads_the_same(tmp_path: Path, gaussians: Gaussians) -> None:
    write_splat(tmp_path / "a.ply", gaussians, 1)
    part = SourcePart("p0", tmp_path / "a.ply", 0, len(gaussians), "")
    (tmp_path / "work").mkdir()
    written = convert(ConversionJob(part, FORMATS["sog"], tmp_path / "work"), tool_or_skip())
    assert written.decoded is not None
    alike(read_splat(written.decoded), gaussians)


def test_the_same_splat_makes_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        sog.write_sog(tmp_path / name, many(2000))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_numbers_that_are_all_alike_are_packed(tmp_path: Path) -> None:
    one = many(1)
    same = Gaussians(**{name: np.repeat(values, 50, axis=0) for name, values in vars(one).items()})
    sog.write_sog(tmp_path / "a.sog", same)
    alike(read_sog((tmp_path / "a.sog").read_bytes()), same)


def test_rare_values_keep_a_value_of_their_own() -> None:
    values = np.concatenate([np.random.default_rng(0).normal(size=30_000), [40.0, -40.0]])[:, None]
    codebook, labels = sog.codebook_of(values)
    assert len(codebook) == sog.VALUES
    assert np.abs(np.array(codebook)[labels] - values).max() < 0.2


def test_a_palette_has_no_more_rows_than_its_labels_tell_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sog, "MOST_ROWS", sog.FEWEST_ROWS)
    random = np.random.default_rng(0)
    rows = np.repeat(100 * random.normal(size=(40, 9)), 250, axis=0) + 1e-3 * random.normal(size=(10_000, 9))
    palette, labels = sog.palette_of(rows.astype(np.float32))  # most clusters have next to no error
    assert labels.max() < len(palette) <= sog.FEWEST_ROWS


@pytest.mark.all
def test_a_palette_for_fifty_thousand_takes_seconds() -> None:
    began = time.process_time()
    palette, labels = sog.palette_of(many(53_629).shN.reshape(53_629, -1))
    assert time.process_time() - began < 30
    assert len(palette) <= 32_768 and labels.max() == len(palette) - 1
