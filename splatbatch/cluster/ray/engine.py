"""The engine Ray: workers are detached actors, which Ray queues, places, and starts again where a node is lost."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import selectors
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from splatbatch.cluster.engine import JOB, Ended, Handle, JobState, Pending, Running, Unknown, WorkerRequest
from splatbatch.config import Executor
from splatbatch.errors import ExecutorError
from splatbatch.files import read_tail, write_text
from splatbatch.output.submissions import Submission
from splatbatch.text import one_line, plural

CONNECT_S = 60.0
"""Ray itself tries for two minutes, and says nothing more by that."""
ANSWER_S = 90.0
BETWEEN_LOOKS_S = 0.2
REFUSED = "InvalidAuthToken"
"""Ray's word for a wrong token, or none; it goes on trying for many seconds after it."""
Answer = Mapping[str, Any]
STOP_S = 20.0
"""Beside grace_s: then a worker that was told to stop is killed."""
OF_HERE = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "HOSTNAME")
SCRIPT = """\
#!/bin/bash
# A worker of splatbatch. It may be run again at any time: it takes up what is left.
{setup}
{exports}
exec {command}
"""
SETUP = """\
{{ {line}
}} || {{ echo "splatbatch: on node $(hostname) this line of executor.setup failed:" {quoted} >&2; exit 5; }}"""
LOOK_S = 10.0
"""Whoever looks has other things to do."""
AGAIN_S = 20.0
REMEDIES = {
    REFUSED: "Set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH to the file of the token that its nodes have.",
    "Version mismatch": "Install the cluster's version of Ray beside splatbatch: pip install ray==….",
    "Could not find any running Ray": "Run it on a node of the cluster, or set RAY_ADDRESS to its head: host:6379.",
}
"""By what Ray's words hold."""
UNREACHED = "Is the cluster up? `ray status` asks it; RAY_ADDRESS=host:6379 names its head. Run this on a node of it."


CLIENT = Path(__file__).with_name("client.py")


class RayError(Exception):
    """Ray cannot be asked, or refuses; its message is Ray's own words."""


class Connection:
    """A client of the cluster that Ray's own variables name (RAY_ADDRESS, RAY_AUTH_MODE, RAY_AUTH_TOKEN_PATH, …)."""

    def __init__(self, changes: Mapping[str, str] | None = None) -> None:
        self._environment = {"RAY_DEDUP_LOGS": "0", **os.environ, **(changes or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._words: IO[bytes] | None = None
        self._began, self._is_connected = 0.0, False

    def __del__(self) -> None:
        self.close()

    def ask(self, do: str, patience_s: float = ANSWER_S, **more: Any) -> dict[str, Any]:
        """Return Ray's answer.

        Raises:
            RayError: there is none.
        """
        process = self.connected(patience_s)
        assert process.stdin is not None  # noqa: S101  it is a pipe
        try:
            process.stdin.write(json.dumps({"do": do, **more}).encode() + b"\n")
            process.stdin.flush()
        except OSError as error:
            raise RayError(self._gone()) from error
        return self._answer(process, patience_s)

    def connected(self, patience_s: float = CONNECT_S) -> subprocess.Popen[bytes]:
        """Return the client, once it is connected; who asks again goes on waiting for the same.

        Raises:
            RayError: it cannot connect, or has not yet.
        """
        process = self._process
        if process is None or process.poll() is not None:
            process = self._begin()
        if not self._is_connected:
            age_s = time.monotonic() - self._began
            self._answer(process, min(patience_s, CONNECT_S), keeps=age_s + patience_s < CONNECT_S)
            self._is_connected = True
        return process

    def _begin(self) -> subprocess.Popen[bytes]:
        self.close()
        self._words = tempfile.TemporaryFile()  # noqa: SIM115  closed with the connection
        self._began = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(CLIENT)],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
        )
        return self._process

    def close(self) -> None:
        """Let go of the cluster; what it runs goes on."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(OSError):
                    if pipe is not None:
                        pipe.close()
        if self._words is not None:
            self._words.close()
        self._process = self._words = None
        self._is_connected = False

    def _answer(self, process: subprocess.Popen[bytes], patience_s: float, *, keeps: bool = False) -> dict[str, Any]:
        """Wait for a line; it is complete once it has begun, but for one of many."""
        assert process.stdout is not None  # noqa: S101  it is a pipe
        end, line = time.monotonic() + patience_s, b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if selector.select(BETWEEN_LOOKS_S):
                    some = os.read(process.stdout.fileno(), 1 << 16)
                    if not some:
                        raise RayError(self._gone())
                    line += some
                elif (said := self._said()) and REFUSED in said:
                    self.close()
                    raise RayError(one_line(said[said.index(REFUSED) :].partition("\n")[0]))
                elif time.monotonic() > end:
                    if not keeps:
                        self.close()
                    raise RayError(f"it has not answered for {patience_s:.0f} s{': ' + said if said else ''}")
        answer = json.loads(line)
        if "error" in answer:
            raise RayError(one_line(str(answer["error"])))
        return dict(answer)

    def _said(self) -> str:
        """Return the last line that Ray has printed; all where it refuses us."""
        if self._words is None:
            return ""
        said = os.pread(self._words.fileno(), 1 << 16, 0).decode(errors="replace")
        return said if REFUSED in said else one_line(said.strip().rpartition("\n")[2])

    def _gone(self) -> str:
        """Return how the client has ended."""
        said = self._said()
        self.close()
        return said or "its client has ended without a word: the head of the cluster is gone"


KEEPER = Path(__file__).with_name("keeper.py")


def script_of(wanted: WorkerRequest) -> str:
    """Return what runs on the node; it is replaced by the worker, so that signals reach that."""
    return SCRIPT.format(
        setup="\n".join(SETUP.format(line=line, quoted=shlex.quote(line)) for line in wanted.setup),
        exports="\n".join(f"export {name}={shlex.quote(value)}" for name, value in wanted.environment.items()),
        command=shlex.join(wanted.command),
    )


def needed(wanted: WorkerRequest) -> list[str]:
    """Return what a node has to see."""
    return [str(wanted.folder), wanted.command[0], str(KEEPER)]


def told(wanted: WorkerRequest) -> dict[str, str]:
    """Return the environment of workers: as with sbatch that of this shell, less what is Ray's or this machine's."""
    ours = {name: value for name, value in os.environ.items() if name not in OF_HERE and not name.startswith("RAY_")}
    return {**ours, **wanted.environment, "PWD": str(wanted.folder)}


def job_of(wanted: WorkerRequest, submission: Submission, index: int, cpus: int) -> dict[str, Any]:
    """Return one worker, as the client is asked for it."""
    path = submission.path / str(index)
    files = (submission.script, submission.log(index), f"{path}.code")
    keeper = (wanted.command[0], KEEPER, *files, wanted.grace_s + STOP_S)
    handle = f"{submission.name}/{index}"
    return {
        "handle": handle,
        "moves": 0,
        "path": str(path),
        "gpus": wanted.gpus,
        "cpus": cpus,
        "keeper": ["env", f"--chdir={wanted.folder}", f"{JOB}={handle}", *map(str, keeper)],
    }


def node_of(submission: Submission, handle: Handle) -> tuple[str, str]:
    """Return the name and the number of the node that a worker was started on last; empty: none yet."""
    name, _, number = (_read(_path(submission, handle, "starts")).split("\n")[:-1] or [""])[-1].partition(" ")
    return name, number


def code_of(submission: Submission, handle: Handle) -> int | None:
    """Return the exit code of a worker that has ended by itself, or was told to."""
    words = _read(_path(submission, handle, "code")).strip()
    return int(words) if words.removeprefix("-").isdecimal() else None


def _path(submission: Submission, handle: Handle, kind: str) -> Path:
    return submission.path / f"{handle.rpartition('/')[2]}.{kind}"


def _read(path: Path) -> str:
    return read_tail(path)


class RayEngine:
    """Workers as actors; a handle is <submission>/<index>, which is the actor's name."""

    def __init__(self, settings: Executor) -> None:
        self._settings = settings
        self._ray = Connection()
        self._next_try = 0.0
        self._why = ""
        self._most_gpus = 0.0
        """Of a node that we have seen: while a cluster comes back, its head is there before its nodes."""

    def check(self, wanted: WorkerRequest) -> None:
        """See that Ray is here, demands a token, has nodes that are large enough, and that these see our files.

        Raises:
            ExecutorError: one of that is not so.
        """
        if importlib.util.find_spec("ray") is None:
            raise ExecutorError(
                "executor.engine: ray: the package ray is not installed",
                "pip install 'splatbatch[ray]', in the cluster's version of Ray, or choose another executor.engine.",
            )
        nodes = {one["name"]: one["gpus"] for one in self._ask("nodes")["nodes"]}
        self._see_token()
        self._most_gpus = most = max(self._most_gpus, *nodes.values())
        if wanted.gpus > most:
            have = ", ".join(f"{name} has {gpus:g}" for name, gpus in nodes.items())
            raise ExecutorError(
                f"executor.gpus_per_worker: {wanted.gpus}: no node of this Ray cluster has so many: {have}",
                f"Set it to {most:g} or less, or start larger nodes." if most else "Start nodes with GPUs.",
            )
        for node, lacking in self._ask("lacking", gpus=wanted.gpus, paths=needed(wanted))["lacking"].items():
            if lacking:
                raise ExecutorError(
                    f"node {node} of the Ray cluster does not see {', '.join(lacking)}",
                    "Workers need the folder of the YAML, the output folder and splatbatch under the same paths.",
                )

    def num_turns(self, wanted: WorkerRequest, seconds: float | None) -> int:
        """Return 1: Ray ends nobody for the time that he takes."""
        return 1

    def start(self, wanted: WorkerRequest, submission: Submission) -> tuple[Handle, ...]:
        """Ask for one actor each.

        Raises:
            ExecutorError: Ray refuses.
        """
        write_text(submission.script, script_of(wanted))
        cpus = 1 if wanted.gpus else self._settings.cpu_slots  # or all workers without GPUs come to lie on one node
        jobs = [job_of(wanted, submission, index, cpus) for index in range(wanted.num_workers)]
        self._ask("start", jobs=jobs, told=told(wanted))
        return tuple(job["handle"] for job in jobs)

    def find(self, submission: Submission) -> tuple[Handle, ...] | None:
        """Return its actors by their names."""
        try:
            names = {one.partition("~")[0] for one in self._look()["names"]}
        except RayError:
            return None
        ours = [one for one in names if one.startswith(f"{submission.name}/")]
        return tuple(sorted(ours, key=lambda one: int(one.rpartition("/")[2])))

    def look(self, known: Sequence[Submission]) -> Mapping[Handle, JobState]:
        """Ask Ray once for the names of all its actors; what has become of each stands in the submission's folder."""
        try:
            answer = self._look() if known else {}
        except RayError as error:
            return {handle: Unknown(f"Ray: {error}") for one in known for handle in one.handles}
        return {handle: _seen(one, handle, answer) for one in known for handle in one.handles}

    def stop(self, known: Sequence[Submission]) -> str:
        """Tell those that run, and remove those that wait."""
        return self._stop(known, also_running=True) if known else ""

    def drop(self, submission: Submission) -> None:
        """Remove those that wait."""
        self._stop([submission], also_running=False)

    def _stop(self, known: Sequence[Submission], *, also_running: bool) -> str:
        seen = self.look(known)
        waiting = [handle for handle, one in seen.items() if isinstance(one, Pending)]
        try:
            answer = self._ray.ask("stop", names=list(seen) if also_running else waiting, waiting=waiting)
        except RayError as error:
            return f"Ray: {error}"
        unheard = answer["unheard"]
        were = "was" if unheard == 1 else "were"
        return f"Ray: {plural(unheard, 'worker')} {were} not reached" if unheard else ""

    def _look(self) -> Answer:
        """Ask for all; a Ray that has not answered is left alone for a while, for each question takes its time.

        Raises:
            RayError: there is no answer.
        """
        if time.monotonic() < self._next_try:
            raise RayError(self._why)
        try:
            answer = self._ray.ask("look", LOOK_S)
        except RayError as error:
            self._why, self._next_try = str(error), time.monotonic() + AGAIN_S
            raise
        self._most_gpus = max(self._most_gpus, *(one["gpus"] for one in answer["nodes"]))
        return answer

    def _see_token(self) -> None:
        """See that the cluster asks for a token. Without one, whoever reaches it may run any program on it.

        Raises:
            ExecutorError: it takes everybody.
        """
        anybody = Connection({"RAY_AUTH_MODE": "disabled"})
        try:
            anybody.connected()
        except RayError:
            return
        finally:
            anybody.close()
        raise ExecutorError(
            "this Ray cluster demands no token: whoever reaches one of its ports runs what he likes on all its nodes",
            "Start it, on every node, with RAY_AUTH_MODE=token and the same token (`ray get-auth-token --generate`).",
        )

    def _ask(self, do: str, **more: Any) -> Answer:
        """Return Ray's answer.

        Raises:
            ExecutorError: there is none, with Ray's own words.
        """
        try:
            return self._ray.ask(do, **more)
        except RayError as error:
            remedy = next((remedy for word, remedy in REMEDIES.items() if word in str(error)), UNREACHED)
            raise ExecutorError(f"Ray: {error}", remedy) from error


def _seen(submission: Submission, handle: Handle, answer: Answer) -> JobState:
    (node, number), code = node_of(submission, handle), code_of(submission, handle)
    if handle not in {one.partition("~")[0] for one in answer["names"]}:
        return Ended("without a word: Ray has it no more" if code is None else f"with exit code {code}", node, code)
    if number in {one["id"] for one in answer["nodes"]}:
        return Running(node)
    if node:
        return Pending(f"since its node {node} is lost")
    free = (f"{free:g} of {has:g} {kind}s" for kind, (free, has) in answer["free"].items())
    return Pending(f"for room: Ray has {' and '.join(free)} free")
