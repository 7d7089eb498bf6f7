"""An external trainer whose every attempt does what `script.json` says; nothing of the package is known to it.

    scripted_trainer.py --steps=20 --output=…/patches/p0/attempt-01/output --cap=1000

The script lies in $NIGHT and maps a task to one line per attempt, of which the last one repeats. Verbs are those of
external_program.py, and three more: `await NAME`, `needs CAP WORDS`, `tell NAME`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "testing"))
import external_program

NIGHT = Path(os.environ["NIGHT"])


def await_file(output: Path, steps: int, name: str) -> int:
    """Say by the file NAME.reached, which holds the process id, that it is here; train once the file NAME is there."""
    aside = NIGHT / f".{name}"
    aside.write_text(str(os.getpid()))
    aside.replace(NIGHT / f"{name}.reached")
    while not (NIGHT / name).exists():
        time.sleep(0.01)
    external_program.train(output, steps)
    return 0


def tell(output: Path, steps: int, name: str) -> int:
    """Print a variable of the environment, and train."""
    print(f"{name} is {os.environ[name]}", flush=True)
    external_program.train(output, steps)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--cap", type=int, required=True)
    options = parser.parse_args()
    attempt = options.output.parent
    lines = json.loads((NIGHT / "script.json").read_text()).get(attempt.parent.name, ["train"])
    verb, _, rest = lines[min(int(attempt.name[-2:]), len(lines)) - 1].partition(" ")
    if verb == "needs":  # a cap that is low enough, else it says these words and fails
        most, _, words = rest.partition(" ")
        verb, rest = ("train", "") if options.cap <= int(most) else ("exit", f"1 {words}")
    behaviour = (external_program.BEHAVIOURS | {"await": await_file, "tell": tell})[verb]
    return int(behaviour(options.output, options.steps, rest))


if __name__ == "__main__":
    sys.exit(main())
