"""The site of Ray: a cluster of our own, of two nodes with two GPUs each."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from ray_cluster import RayCluster
from sites import wait_for, worker_pid

from splatbatch.cluster.ray.engine import Connection


class RaySite:
    """A head, and two nodes."""

    executor: dict[str, Any] = {"engine": "ray", "workers": 3, "gpus_per_worker": 1}

    def __init__(self) -> None:
        self.cluster = RayCluster()

    @property
    def environment(self) -> dict[str, str]:
        """Return what clients need."""
        return self.cluster.environment

    def __enter__(self) -> RaySite:
        self.cluster.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.cluster.__exit__(kind, error, at)

    def lose_node_of(self, job: str) -> None:
        """Pull the plug of its node."""
        self.cluster.power_off(self.cluster.node_of(worker_pid(job)))

    def mend(self) -> None:
        """Switch nodes on again, end what is left."""
        self.cluster.mend()
        connection = Connection(self.environment)
        names = connection.ask("look")["names"]
        if names:
            connection.ask("stop", names=[], waiting=[one.partition("~")[0] for one in names])
            wait_for(lambda: not connection.ask("look")["names"], 200)
        connection.close()

    def jobs(self) -> list[str]:
        """Return what waits or runs."""
        connection = Connection(self.environment)
        try:
            return list(connection.ask("look")["names"])
        finally:
            connection.close()
