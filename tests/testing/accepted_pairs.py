"""A reader that looks at accepted splats and their manifests all the time: `accepted_pairs.py OUTPUT STOP_FILE`."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from pathlib import Path

from splatbatch.files import read_json
from splatbatch.outcome import Splat
from splatbatch.splats import check_splat

STEPS = 20


def fault_of_pair(patch: Path) -> str:
    """Say what is wrong with an accepted splat and its manifest; empty if all is well, or if there is no manifest."""
    result = read_json(patch / "result.json")
    if result is None:
        return "no manifest"
    splat = check_splat(patch / "splat.ply", STEPS)
    if not isinstance(splat, Splat):
        return f"splat.ply {splat.reason}"
    if hashlib.sha256((patch / "splat.ply").read_bytes()).hexdigest() != result["splat"]["sha256"]:
        return "splat.ply is not the file whose sha256 the manifest has"
    # the number of Gaussians tells the attempt a splat came from
    facts = (splat.num_gaussians, (patch / "splat.ply").stat().st_size, 10 + int(result["attempt"][-2:]))
    wanted = (result["num_gaussians"], result["bytes"], result["num_gaussians"])
    return "" if facts == wanted else f"the manifest says {wanted}, the splat {facts}"


def read_all_the_time(output: Path, stop: Path) -> None:
    """Look at every accepted pair until told to stop; a pair that changed while it was read is read again."""
    reads, faults = 0, []
    while not stop.exists():
        for patch in output.glob("patches/*"):
            before = read_json(patch / "result.json")
            if before is None:
                continue
            reads += 1
            fault = fault_of_pair(patch)
            if fault and read_json(patch / "result.json") == before:
                fault = fault_of_pair(patch)
                faults += [f"reader: {patch.name}: {fault}"] if fault else []
        time.sleep(0.001)
    print(json.dumps({"reads": reads, "faults": faults}))


if __name__ == "__main__":
    read_all_the_time(Path(sys.argv[1]), Path(sys.argv[2]))
