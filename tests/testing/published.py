"""The quarry cut in two, trained by the scripted trainer, with splats made of its sparse points, and merged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import yaml
from command_line import invoke
from cut_batch import accept
from cut_quarry import QUARRY, cut_quarry, part, quarry_splat
from fake_batch import FakeBatch

from splatbatch.splats import Gaussians, offset_comments, write_splat
from splatbatch.store.hashes import sha256_of


def quarry(folder: Path, **sections: dict[str, object]) -> FakeBatch:
    """Return the quarry as a batch whose patches are trained, and merged."""
    partition = cut_quarry(folder)
    settings = yaml.safe_load((QUARRY / "splat_config.yml").read_text())
    batch = FakeBatch(folder, settings)
    batch.change(training={"device": "cpu", "resolution": "1/4", "max_steps": 20}, output={"previews_mib": 0})
    batch.change(**sections)
    batch.script()
    ended = batch.run("train")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    whole = quarry_splat()
    for core in partition.cores:
        put(batch, core.name, part(whole, core.grown.holds(partition.in_axes(whole.means.astype(np.float64)))))
    put_backdrop(batch, part(whole, slice(0, None, 50)))
    merged = invoke("merge", batch=batch)
    assert merged.code == 0, merged.err
    return batch


def put(batch: FakeBatch, patch: str, gaussians: Gaussians, offset: tuple[float, ...] = ()) -> None:
    """Make a splat the accepted one of a patch, as a training would that ended now."""
    place = batch.output / "patches" / patch
    place.joinpath("splat.ply").unlink()
    write_splat(place / "splat.ply", gaussians, 20, comments=offset_comments(offset))
    accept(place)


def put_backdrop(batch: FakeBatch, gaussians: Gaussians) -> None:
    """Make a splat the backdrop that the patches were trained against."""
    put(batch, "backdrop", gaussians)
    for place in (batch.output / "patches").glob("p*"):
        accept(place, backdrop=sha256_of(batch.output / "patches/backdrop/splat.ply"))
