"""The process of one stage: `python -m splatbatch.reconstruction FOLDER`; settings.json in FOLDER names the stage."""

from __future__ import annotations

import hashlib
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from splatbatch.errors import SceneError, SplatbatchError
from splatbatch.files import write_json
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.reconstruction import features, mapping, matching, model
from splatbatch.reconstruction.plan import StageMetrics, StageSettings
from splatbatch.reconstruction.stage import StageAttempt

STAGES: Mapping[str, Callable[[StageAttempt], dict[str, Any]]] = {
    "features": features.make,
    "pairs": matching.choose,
    "matching": matching.make,
    "mapping": mapping.make,
    "model": model.make,
}


def main(folder: AttemptFolder) -> int:
    """Run the stage that settings.json in an attempt's folder names; return the exit code of the process.

    0: the product in the folder is complete, its files are synced, and metrics.json, written last, has their hashes.
    3: the stage failed; stderr has the reason. An earlier product in the folder is removed first.

    Raises:
        KeyError: settings.json is missing, cannot be read, or names no stage.
        LaterFormatError: a later version of splatbatch wrote settings.json.
        OSError: a file cannot be read or written.
    """
    import pycolmap

    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # pycolmap installs a handler that prints a stack trace
    pycolmap.logging.minloglevel = pycolmap.logging.Level.WARNING.value
    began, told = time.monotonic(), StageSettings.read(folder.settings) or StageSettings()
    work = StageAttempt(folder, told)
    shutil.rmtree(work.product, ignore_errors=True)
    try:
        facts = STAGES[told.what](work)
    except SplatbatchError as error:
        print(f"splatbatch: {error.message} {error.hint}", file=sys.stderr)  # noqa: T201 - the log of the attempt
        return SceneError.exit_code
    files = sorted(one for one in work.product.rglob("*") if one.is_file())
    parts = {one.relative_to(work.product).as_posix(): _sha256(one) for one in files}
    seconds = round(time.monotonic() - began, 2)
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s, peak_mib = round(used.ru_utime + used.ru_stime, 2), round(used.ru_maxrss / 1024)
    made = StageMetrics(told.inputs, parts, seconds, cpu_s, peak_mib, facts)
    write_json(folder.metrics, made.to_record())
    return 0


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
    return found


if __name__ == "__main__":
    sys.exit(main(AttemptFolder(Path(sys.argv[1]))))
