"""What the parent and the supervisor cost together where the program of somebody else takes no time."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from batch_bench.scheduler import cpu_s_of, make_scene, make_splat


def cpu_ms_per_patch(folder: Path, number: int = 21, looks: int = 3) -> float:
    """Return the CPU time, in ms, of each patch beyond the first, the program's own `cp` included; the best looks."""
    one, many = (min(_cpu_s(folder, num, look) for look in range(looks)) for num in (1, number))
    return 1e3 * (many - one) / (number - 1)


def _cpu_s(folder: Path, num: int, look: int) -> float:
    root = folder / f"external-{num}-{look}"
    root.mkdir(parents=True)
    config, splat = make_scene(root, num), make_splat(root)
    settings = json.loads(config.read_text())
    settings["training"] |= {"trainer": "instant"}
    artifact = {"ply": "splat.ply", "step": "", "trusted_after_crash": True}
    settings["trainers"] = {"instant": {"command": ["/bin/cp", str(splat), "{output}/splat.ply"], "artifact": artifact}}
    settings["trainers"]["instant"]["metrics"] = {"evaluate": False}  # that takes seconds of a process of its own
    settings["executor"] = {"cpu_slots": 1}
    config.write_text(json.dumps(settings))  # JSON is YAML
    return cpu_s_of([sys.executable, "-m", "splatbatch", "train", "--no-verify", "--config", str(config)])
