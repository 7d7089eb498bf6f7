"""The engine Ray: workers are detached actors, which Ray queues, places, and starts again where a node is lost."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Mapping, Sequence
from typing import Any

from splatbatch.config import Executor
from splatbatch.engines.engine import Ended, Handle, Pending, Running, Seen, Unknown, Wanted
from splatbatch.engines.ray.connection import REFUSED, Connection, RayError
from splatbatch.engines.ray.job import Answer, code_of, job_of, needed, node_of, script_of, told
from splatbatch.errors import ExecutorError
from splatbatch.files import write_text
from splatbatch.plain_text import counted
from splatbatch.store.submissions import Submission

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


class Ray:
    """Workers as actors; a handle is <submission>/<index>, which is the actor's name."""

    def __init__(self, settings: Executor) -> None:
        self._settings = settings
        self._ray = Connection()
        self._next_try = 0.0
        self._why = ""
        self._most_gpus = 0.0
        """Of a node that we have seen: while a cluster comes back, its head is there before its nodes."""

    def check(self, wanted: Wanted) -> None:
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

    def num_turns(self, wanted: Wanted, seconds: float | None) -> int:
        """Return 1: Ray ends nobody for the time that he takes."""
        return 1

    def start(self, wanted: Wanted, submission: Submission) -> tuple[Handle, ...]:
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

    def look(self, known: Sequence[Submission]) -> Mapping[Handle, Seen]:
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
        return f"Ray: {counted(unheard, 'worker')} {were} not reached" if unheard else ""

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
        """See that the cluster refuses who has no token: else everybody who reaches it may run what he likes on it.

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


def _seen(submission: Submission, handle: Handle, answer: Answer) -> Seen:
    (node, number), code = node_of(submission, handle), code_of(submission, handle)
    if handle not in {one.partition("~")[0] for one in answer["names"]}:
        return Ended("without a word: Ray has it no more" if code is None else f"with exit code {code}", node, code)
    if number in {one["id"] for one in answer["nodes"]}:
        return Running(node)
    if node:
        return Pending(f"since its node {node} is lost")
    free = (f"{free:g} of {has:g} {kind}s" for kind, (free, has) in answer["free"].items())
    return Pending(f"for room: Ray has {' and '.join(free)} free")
