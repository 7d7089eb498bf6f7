"""`python client.py`: the only process of ours that is a client of Ray; requests and answers are lines of JSON.

Where the head of the cluster dies, Ray ends its client from C++, without an exception: nobody else must be that client.
Stands alone: it imports nothing of splatbatch; what it sends to nodes (`RayWorker`, `_lacking`) needs only ray there.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import ray
from ray.util import list_named_actors
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

NAMESPACE = "splatbatch"
MOST_RESTARTS = 20
"""Of one worker whose node, or whose process of Ray, has died."""
LOSSES = 2
"""A node that has lost so many workers of a submission gets no more of them."""
ANSWER_S = 5.0
CHECK_S = 60.0
AGAIN = "~"
"""Stands behind a worker's name once it was moved away from a node."""


class RayWorker:
    """One worker on its node: an actor that starts it, and ends with it.

    All that it needs is in its constructor's arguments: a call would be lost with the client that has sent it, while
    the actor waits for a GPU.
    """

    def __init__(self, job: Mapping[str, Any], told: Mapping[str, str]) -> None:
        import subprocess  # only on the node
        import threading

        self.job, self.told = job, told
        self.keeper: Any = None
        self.is_told = False
        self.node = ray.get_runtime_context().get_node_id()
        if self._moves():
            end = self._leave
        else:
            with open(f"{job['path']}.starts", "a", encoding="utf-8") as starts:  # noqa: PTH123
                starts.write(f"{_name_of(self.node)} {self.node}\n")
            given = {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "")} if job["gpus"] else {}
            self.keeper = subprocess.Popen(list(job["keeper"]), env={**told, **given}, start_new_session=True)
            end = self._follow
        threading.Thread(target=end, daemon=True).start()

    def stop(self) -> bool:
        """Tell the worker to stop; it has its grace."""
        self.is_told = True
        if self.keeper is not None and self.keeper.poll() is None:
            self.keeper.terminate()
        return True

    def _follow(self) -> None:
        """End with the worker; where it was killed without a word, let Ray start it again."""
        if self.keeper.wait() < 0 and not self.is_told:
            os._exit(1)
        self._leave()

    def _leave(self) -> None:
        ray.kill(ray.get_runtime_context().current_actor, no_restart=True)

    def _moves(self) -> bool:
        """Hand over to an actor elsewhere, if this node has lost workers and another may take us."""
        nodes = [one for one in ray.nodes() if one["Alive"]]
        lost = _losses(os.path.dirname(self.job["path"]), {one["NodeID"] for one in nodes}, self.job["path"])  # noqa: PTH120
        bad = {name for name, count in lost.items() if count >= LOSSES}
        good = [one for one in nodes if one["NodeName"] not in bad and _has(one, self.job["gpus"])]
        if _name_of(self.node) not in bad or not good:
            return False
        job = {**self.job, "moves": self.job["moves"] + 1}
        avoided = [one["NodeID"] for one in nodes if one["NodeName"] in bad]
        _start(job, self.told, {"label_selector": {"ray.io/node-id": f"!in({','.join(avoided)})"}})
        return True


def _start(job: Mapping[str, Any], told: Mapping[str, str], more: Mapping[str, Any]) -> None:
    """Ask Ray for one worker; one of that name is left as it is."""
    actor: Any = ray.remote(RayWorker)
    options = {
        "name": job["handle"] + (f"{AGAIN}{job['moves']}" if job["moves"] else ""),
        "namespace": NAMESPACE,
        "lifetime": "detached",
        "max_restarts": MOST_RESTARTS,
        "max_concurrency": 2,  # `stop` is heard
        "num_gpus": job["gpus"],
        "num_cpus": job["cpus"],
        "scheduling_strategy": "SPREAD",
        **more,
    }
    try:
        actor.options(**options).remote(job, told)
    except ValueError as error:
        if "already taken" not in str(error) and "already exists" not in str(error):
            raise


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            return file.read().split("\n")[:-1]
    except OSError:
        return []


def _losses(folder: str, alive: set[str], ours: str) -> Counter[str]:
    """Return how many workers of a submission each node has lost.

    Lost are all starts that were followed by another, as our own latest one is by this; and those that have not ended
    where there is no such node any more: one that comes back has another number.
    """
    lost: Counter[str] = Counter()
    for file in [f"{folder}/{one}" for one in os.listdir(folder) if one.endswith(".starts")]:  # noqa: PTH208
        path, starts = file.removesuffix(".starts"), [line.split() for line in _lines(file)]
        has_ended = _lines(f"{path}.code") != []
        for number, (name, node) in enumerate(starts):
            is_last = number + 1 == len(starts) and path != ours
            lost[name] += not is_last or (node not in alive and not has_ended)
    return lost


def _name_of(node: str) -> str:
    return next((one["NodeName"] for one in ray.nodes() if one["NodeID"] == node), node)


def _has(node: Mapping[str, Any], gpus: float) -> bool:
    return bool(node["Resources"].get("GPU", 0) >= gpus)


def _lacking(paths: list[str]) -> list[str]:
    """Return what is not to be seen on a node."""
    return [one for one in paths if not os.path.exists(one)]  # noqa: PTH110


def nodes(_: Mapping[str, Any]) -> dict[str, Any]:
    """Return the nodes of the cluster that live, and what each has."""
    alive = [one for one in ray.nodes() if one["Alive"]]
    return {
        "nodes": [
            {"name": one["NodeName"], "id": one["NodeID"], "gpus": one["Resources"].get("GPU", 0)} for one in alive
        ]
    }


def lacking(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what each node does not see of some paths, of those that a worker may be placed on."""
    task: Any = ray.remote(_lacking)
    on = {one["NodeName"]: one["NodeID"] for one in ray.nodes() if one["Alive"] and _has(one, asked["gpus"])}
    refs = {
        name: task.options(
            num_cpus=0, max_retries=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)
        ).remote(asked["paths"])
        for name, node in on.items()
    }
    done, _ = ray.wait(list(refs.values()), num_returns=len(refs), timeout=CHECK_S)
    return {"lacking": {name: ray.get(ref) for name, ref in refs.items() if ref in done}}


def start(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Ask for workers."""
    for job in asked["jobs"]:
        _start(job, asked["told"], {})
    return {}


def look(_: Mapping[str, Any]) -> dict[str, Any]:
    """Return who is there or waits, the nodes, and what is free."""
    free, has = ray.available_resources(), ray.cluster_resources()
    return {
        "names": list_named_actors(),
        "free": {kind: (free.get(kind, 0), has.get(kind, 0)) for kind in ("GPU", "CPU")},
        **nodes({}),
    }


def stop(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Tell workers that run to stop, and remove those that wait."""
    there = [one for one in list_named_actors() if one.partition(AGAIN)[0] in {*asked["names"], *asked["waiting"]}]
    actors = {name: ray.get_actor(name, namespace=NAMESPACE) for name in there}
    for name in [one for one in there if one.partition(AGAIN)[0] in asked["waiting"]]:
        ray.kill(actors.pop(name), no_restart=True)
    told: list[Any] = [actor.stop.remote() for actor in actors.values()]
    done, left = ray.wait(told, num_returns=len(told), timeout=ANSWER_S) if told else ([], [])
    return {"told": len(done), "unheard": len(left)}


DO: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "nodes": nodes, "lacking": lacking, "start": start, "look": look, "stop": stop,
}  # fmt: skip


def _answer(line: str) -> dict[str, Any]:
    try:
        asked = json.loads(line)
        return DO[asked["do"]](asked)
    except Exception as error:  # noqa: BLE001  whatever Ray says is told
        return {"error": f"{type(error).__name__}: {error}"}


def main() -> None:
    """Connect, and answer until nobody asks any more."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: connecting may take minutes
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what Ray prints is no answer
    try:
        ray.init(address="auto", namespace=NAMESPACE, logging_level="ERROR", log_to_driver=False)
        first: dict[str, Any] = {"ray": ray.__version__}
    except Exception as error:  # noqa: BLE001
        first = {"error": f"{type(error).__name__}: {error}"}
    out.write(json.dumps(first) + "\n")
    out.flush()
    for line in sys.stdin if "ray" in first else ():
        out.write(json.dumps(_answer(line)) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
