"""Plays a night by commands, YAML and files alone, and writes down what it printed and left.

Nothing here imports the package: what is recorded outlives any change of its inner names.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import may_differ
import yaml

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/testing"))
from flat_scene import write_model, write_photos  # noqa: E402 - found by the line above also where pytest is not

PATIENCE_S = 240.0
"""For any command, or file that is waited for: a busy machine is slow, a night that hangs is a fault."""
SETTLED_S = 6.0
"""A file that is younger may be written again within the same tick of its clock: five seconds, and one for ours."""
PHOTOS = tuple(f"img{number}.bmp" for number in range(9))
"""Bitmaps: their bytes depend on no library's compression."""
SCRIPTED: Mapping[str, Any] = {
    "command": ["scripted-trainer", "--steps={steps}", "--output={output}", "--cap={setting.cap}"],
    "settings": {"cap": 1000},
    "progress": {"step": r"step (\d+)/", "loss": r"loss ([\d.]+)", "num_gaussians": r"gaussians ([\d,]+)"},
    "artifact": {"ply": "point_cloud_*.ply"},
    "metrics": {"evaluate": False, "log": {"psnr": r"PSNR ([\d.]+)"}},
    "ladders": {"gpu_memory": [{"setting.cap": "x0.5"}]},
}
NOT_RECORDED = (
    *("report.json", "result.json"),  # they have a file of their own
    *(
        "settings.json",
        "watch.json",
        "heartbeat.json",
        "start.json",
        "covered.json",
    ),  # only our own processes read them
)
"""Records of the output folder that records.json leaves out."""


@dataclass(frozen=True)
class Started:
    """A command that runs beside the others."""

    words: tuple[str, ...]
    process: subprocess.Popen[str]


@dataclass
class Player:
    """A folder in which a night is played, and what has been written down of it: texts by the name of their file."""

    folder: Path
    is_trained: bool = False
    """Something is really trained: figures and splats depend on the machine."""
    recorded: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def output(self) -> Path:
        return self.folder / "output"

    @property
    def environment(self) -> dict[str, str]:
        """Of the shell only what programs need: no variable of the user decides what is recorded."""
        given = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "TMPDIR") if name in os.environ}
        one_thread = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
        return {
            **given,
            **one_thread,
            "PATH": f"{self.folder}/bin{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "LOGNAME": "night",
            "HOME": str(self.folder / "home"),
            "NIGHT": str(self.folder),
            "SPLATBATCH_CACHE": str(self.folder / "cache"),
            "CUDA_VISIBLE_DEVICES": "",
            "COLUMNS": "120",
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
        }

    # what a step of a night is

    def scene(self, *patches: str, **sections: Any) -> None:
        """Make a scene of patches that share their photographs, and a YAML under which the scripted trainer trains."""
        write_photos(self.folder / "images", list(PHOTOS))
        for patch in patches:
            write_model(self.folder / "patches" / patch / "sparse/0", list(PHOTOS))
        program = Path(__file__).with_name("scripted_trainer.py")
        self.write(
            "bin/scripted-trainer", f'#!/bin/sh\nexec {shlex.join([sys.executable, str(program)])} "$@"\n', 0o755
        )
        self.script()
        self.settings = {
            "scene": {"images": "images"},
            "training": {"trainer": "scripted", "max_steps": 20, "device": "cpu"},
            "limits": {"grace_s": 0.5, "free_disk_mib": 0},
            "output": {"previews_mib": 0},
            "trainers": {"scripted": dict(SCRIPTED)},
        }
        self.change(**sections)

    def copy(self, source: Path, name: str) -> None:
        """Copy a folder into the night's, so that no path leads out of it."""
        shutil.copytree(source, self.folder / name)

    def change(self, **sections: Any) -> None:
        """Change sections of the YAML."""
        for name, section in sections.items():
            known = self.settings.get(name)
            self.settings[name] = known | section if isinstance(known, dict) and isinstance(section, dict) else section
        self.write("splat_config.yml", yaml.safe_dump(self.settings, sort_keys=False))

    def drop(self, section: str) -> None:
        """Leave a section of the YAML out."""
        del self.settings[section]
        self.change()

    def script(self, **lines: list[str]) -> None:
        """Say what each attempt of the scripted trainer does."""
        self.write("script.json", json.dumps(lines))

    def write(self, name: str, text: str, mode: int = 0o644) -> Path:
        """Write a file of the night's folder, whole or not at all."""
        path, aside = self.folder / name, self.folder / f"{name}.part"
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(text)
        aside.chmod(mode)
        aside.replace(path)
        return path

    def flip(self, name: str, at: int = -2) -> None:
        """Flip a bit of a file, and leave its size and time as they were: a disk does that."""
        path = self.folder / name
        stat, data = path.stat(), bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    def settle(self, name: str) -> None:
        """Wait until a change of a file is so old that what was read of it is remembered: a clock alone tells that."""
        changed = (self.folder / name).stat().st_ctime
        time.sleep(max(0.0, changed + SETTLED_S - time.time()))

    def await_file(self, name: str) -> Path:
        """Wait for a file: steps follow each other by files, not by the time that they take."""
        path, end = self.folder / name, time.monotonic() + PATIENCE_S
        while not path.exists():
            if time.monotonic() > end:
                raise TimeoutError(f"{name} has not come within {PATIENCE_S:.0f} s\n{self.recorded.get('printed.txt')}")
            time.sleep(0.01)
        return path

    def run(self, *words: str, **environment: str) -> None:
        """Run a command to its end."""
        self.finish(self.start(*words, **environment))

    def start(self, *words: str, **environment: str) -> Started:
        """Start a command, and go on."""
        (self.folder / "home").mkdir(exist_ok=True)
        argv = [sys.executable, "-m", "splatbatch", *words]
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        environment = self.environment | environment
        process = subprocess.Popen(argv, text=True, cwd=self.folder, env=environment, **streams)
        self.processes.append(process)
        return Started(words, process)

    def finish(self, started: Started, by: signal.Signals | None = None) -> None:
        """Wait for the end of a command, after a signal if one is given, and write down what it printed."""
        if by:
            started.process.send_signal(by)
        out, err = started.process.communicate(timeout=PATIENCE_S)
        mask = self._mask()
        if "--json" in started.words and out:
            name = self._new_name("-".join(word for word in started.words[:2] if re.fullmatch(r"\w[\w@-]*", word)))
            self.recorded[name] = may_differ.pretty(mask.json(json.loads(out))) + "\n"
            out = f"(see {name})\n"
        err = may_differ.lines_by_task(may_differ.without_progress(mask.text(err)))
        said = "".join(
            f"{sign} {line}\n" for sign, text in (("|", mask.text(out)), ("!", err)) for line in text.splitlines()
        )
        words = mask.text(shlex.join(started.words))
        self._print(f"$ splatbatch {words}\n{said}= {started.process.returncode}\n\n")

    def kill(self, *pids: int) -> None:
        """Kill processes of this night, as an end of the machine does, and wait until they are gone."""
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for pid in pids:
            end = time.monotonic() + PATIENCE_S
            while Path(f"/proc/{pid}/stat").exists() and _state(pid) != "Z" and time.monotonic() < end:
                time.sleep(0.01)

    def supervisor(self, patch: str) -> int:
        """Return the process id of the supervisor of a patch's newest attempt."""
        starts = sorted(self.output.glob(f"patches/{patch}/attempt-*/start.json"))
        return int(json.loads(starts[-1].read_text())["pid"])

    def note(self, words: str) -> None:
        """Say between the commands what happens there."""
        self._print(f"# {words}\n\n")

    def keep(self, *names: str) -> None:
        """Write down text files of the output folder, too."""
        for name in names:
            self.recorded[Path(name).name] = self._mask().text((self.output / name).read_text())

    def close(self) -> None:
        """End commands that still run: something has gone wrong. What they have started ends with them."""
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            try:
                process.wait(PATIENCE_S / 30)
            except subprocess.TimeoutExpired:
                process.kill()

    # what is written down at the end

    def look(self, *patches: str) -> None:
        """Look at all as programs do: status, plan, report, and the history of patches."""
        for command in ("status", "plan", "report"):
            self.run(command, "--json")
        for patch in patches:
            self.run("explain", patch, "--json")

    def collect(self) -> dict[str, str]:
        """Write down what lies in the output folder; return all that was recorded."""
        mask = self._mask()
        paths = (path for path in self.output.rglob("*") if path.is_file())
        names = {str(path.relative_to(self.output)): path for path in paths}
        names = {name: names[name] for name in sorted(names, key=mask.text)}
        # what may differ is hidden first: two attempts that took the same time would else be told apart by chance
        found = {name: mask.json(_json(path)) for name, path in names.items() if path.suffix == ".json"}
        results = {name: record for name, record in found.items() if names[name].match("patches/*/result.json")}
        records = {
            name: _unlike(record, results.get(f"{name.partition('/accepted/')[0]}/result.json"))
            for name, record in found.items()
            if names[name].name not in NOT_RECORDED
        }
        self.recorded["files.txt"] = "".join(f"{mask.text(name)}\n" for name in names)
        self.recorded["results.json"] = may_differ.pretty(mask.json(results)) + "\n"
        self.recorded["records.json"] = may_differ.pretty(mask.json(records)) + "\n"
        self.recorded["ledger.jsonl"] = self._ledger()
        return self.recorded

    def _ledger(self) -> str:
        lines, mask = [], self._mask()
        for path in sorted(self.output.glob("ledger/*.jsonl"), key=lambda path: mask.text(path.stem)):
            events = may_differ.by("patch", [json.loads(line) for line in path.read_text().splitlines()])
            lines += [
                json.dumps(mask.json({"ledger": path.stem, **event}), ensure_ascii=False) + "\n" for event in events
            ]
        return "".join(lines)

    def _new_name(self, stem: str) -> str:
        names = (f"{stem}.json", *(f"{stem}-{number}.json" for number in range(2, 100)))
        return next(name for name in names if name not in self.recorded)

    def _print(self, text: str) -> None:
        self.recorded["printed.txt"] = self.recorded.get("printed.txt", "") + text

    def _mask(self) -> may_differ.Mask:
        """Return what hides what may differ; workers are numbered as they began."""
        first = {path.stem: path.read_text().partition("\n")[0] for path in self.output.glob("ledger/*.jsonl")}
        began = {name: json.loads(line)["t"] for name, line in first.items() if name != "local" and line}
        workers = tuple(sorted(began, key=lambda name: began[name]))
        return may_differ.Mask(self.folder, ROOT, self.is_trained, workers)


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except ValueError:
        return "no JSON"


def _unlike(record: Any, result: Any) -> Any:
    """Return what an accepted record says otherwise than the result.json beside it; all of any other record."""
    if not isinstance(record, dict) or not isinstance(result, dict):
        return record
    return {key: value for key, value in record.items() if key not in result or result[key] != value}


def _state(pid: int) -> str:
    """Return the state of a process, as R, S or Z; Z if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"
