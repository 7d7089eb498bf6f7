"""Makes the commented configuration (YAML) that `splatbatch init` and imports write for a scene."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from splatbatch.config import NO_OFFSET, Offset
from splatbatch.config.yaml.source import quote
from splatbatch.scene.finder import SceneLayout
from splatbatch.scene.patches import list_names
from splatbatch.text import one_line

TEMPLATE = """\
# splatbatch: one Gaussian splat per patch. `splatbatch config schema` lists every key.
# Paths are relative to this file; ~ and $VARIABLES are expanded in them.

scene:
  # {found}
  patches: {patches}
{images}{source}{offset}
training:
  max_steps: 30000        # schedules are given for 30,000 steps and scale with this
  strategy: mcmc          # mcmc (at most cap_max Gaussians) or default (3DGS)
  cap_max: auto           # as many Gaussians as pixels and overlap ask for, a million at most
  device: {device}

evaluation:
{holdout}

executor:
  gpus: auto              # or [0, 1]; [] trains on the CPU

output:
  folder: {output}

# settings of single patches that differ from the rest:
# patches:
#   p5:
#     training: {{init_scale: 0.3}}
"""


DEVICES = {
    True: "cuda            # never the CPU, which is too slow for a night; cpu: train on the CPU all the same",
    False: "auto            # no NVIDIA GPU was seen here: the CPU, for an hour at most; cpu: the CPU without a limit",
}
"""Value of `training.device` with its comment, by whether this machine has an NVIDIA GPU, usable or not."""


_HOLDOUT_EVERY = "  holdout_every: 8        # every 8th photograph is held out and measured on; 0: none"
_HOLDOUT_LIST = "  holdout_list: {}  # the test and val photographs of the source"


@dataclass(frozen=True)
class ImportNotes:
    """Facts of an import from another program that a COLMAP model cannot hold, for the configuration."""

    offset: Offset = NO_OFFSET
    """Offset subtracted from all coordinates before training, in units of the model; three zeros: none."""
    crs: str = ""
    """Coordinate reference system, in words; written as a comment. Empty: unknown."""
    holdout: str = ""
    """List of the photographs that the other program holds out, a file with one name a line.

    Relative to the YAML. Empty: there is none, and every 8th photograph is held out.
    """


def config_for(found: SceneLayout, base: Path, *, has_gpu: bool, kept: ImportNotes | None = None) -> str:
    """Return the text of a configuration (YAML) for a scene; no file is written.

    Args:
        found: folders of the scene.
        base: folder that the YAML will lie in; paths in the YAML are relative to this folder.
        has_gpu: whether this machine has an NVIDIA GPU.
        kept: facts of an import; None: the scene was not imported.
    """
    names = [patch.name for patch in found.patches]
    photos, output = (found.images or base / "images").resolve(), "output"
    if base.is_relative_to(photos):  # image names begin with images/: among photographs nothing may be written
        output = _relative(photos.with_name(f"{photos.name}_splats"), base)
    return TEMPLATE.format(
        found=one_line(f"{len(names)} found: {list_names(names)}" if len(names) > 1 else f"one scene: {names[0]}"),
        patches=_relative(found.root, base),
        images=f"  images: {_relative(found.images, base)}\n" if found.images else "",
        device=DEVICES[has_gpu],
        offset=_offset(kept or ImportNotes()),
        holdout=_HOLDOUT_LIST.format(quote(kept.holdout)) if kept and kept.holdout else _HOLDOUT_EVERY,
        output=output,
        source=f"  source: {_relative(found.source, base)}\n" if found.source else "",
    )


def _offset(kept: ImportNotes) -> str:
    """Return the lines about coordinate system and offset; empty if there is neither."""
    crs = f"  # coordinate system: {one_line(kept.crs)[:100]}\n" if kept.crs else ""
    if kept.offset == NO_OFFSET:
        return crs
    numbers = ", ".join(f"{value:.15g}" for value in kept.offset)
    return f"{crs}  offset: [{numbers}]  # subtracted from all coordinates before training; see import.json\n"


def _relative(path: Path, base: Path) -> str:
    """Return a path relative to the YAML and quoted, so that a folder named 2024 or true stays a name."""
    return quote(os.path.relpath(path.resolve(), base))
