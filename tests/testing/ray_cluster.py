"""A real Ray on this machine: a head without GPUs, and nodes that each have a name and processes of their own.

Needs root and the extra `ray`. Every port demands the token; whatever was started ends with the `with` block.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from splatbatch import processes

PATIENCE_S = 300.0
SPACES = ("--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
QUICK = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "5",  # so soon nodes end when the head has gone
    "RAY_raylet_start_wait_time_s": "250",  # by default 30: too short on a machine with other work
    "RAY_enable_worker_prestart": "0",  # or each node starts a process for each of its cores
    "RAY_prestart_worker_first_driver": "0",
}


def lack() -> str:
    """Return what is missing for such a cluster; empty if nothing is."""
    if importlib.util.find_spec("ray") is None:
        return "Ray is not installed: pip install -c constraints.txt -e '.[ray]'"
    if os.geteuid() != 0:
        return "nodes of Ray with processes of their own need root"
    may = subprocess.run(["unshare", *SPACES, "hostname", "n1"], capture_output=True, check=False)
    return "" if may.returncode == 0 else f"no namespaces: {may.stderr.decode().strip()}"


class RayCluster:
    """A head, and nodes n1, n2, … with GPUs that are none; a context manager."""

    def __init__(self, num_nodes: int = 2, gpus: int = 2, *, demands_token: bool = True) -> None:
        self.gpus = gpus
        self.names = [f"n{number}" for number in range(1, num_nodes + 1)]
        self._mode = "token" if demands_token else "disabled"
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}
        self._address = ""
        with socket.socket() as free:
            free.bind(("", 0))
            self._port = free.getsockname()[1]
        self._stack = ExitStack()

    def __enter__(self) -> RayCluster:
        with ExitStack() as stack:
            self.place = Path(tempfile.mkdtemp(prefix="ray."))  # short: paths of sockets end at 107 characters
            stack.callback(shutil.rmtree, self.place, ignore_errors=True)
            self.token = self.place / "token"
            self.token.touch(0o600)
            self.token.write_text(secrets.token_hex(32))
            self.blind = self.place / "blind"
            """What lies here is to be seen everywhere but on the nodes."""
            self.blind.mkdir()
            stack.callback(self._power_all_off)
            self.start_head()
            for name in self.names:  # one after the other: on two cores nodes that start at once time out
                self.power_on(name)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables by which a client finds it."""
        where = {"RAY_ADDRESS": self._address} if self._address else {}
        return {**QUICK, **where, "RAY_AUTH_MODE": self._mode, "RAY_AUTH_TOKEN_PATH": str(self.token)}

    def start_head(self) -> None:
        """Start a head, and with it a new cluster."""
        self._address = ""
        options = ("--head", f"--port={self._port}", "--num-gpus=0", "--num-cpus=1", "--include-dashboard=false")
        self._nodes["head"] = self._start("head", (*options, f"--temp-dir={self.place}"), ())
        [self._address] = set(re.findall(r"--address='([\d.:]+)'", (self.place / "head.log").read_text()))

    def stop_head(self) -> None:
        """Kill it."""
        self.power_off("head")

    def node_of(self, pid: int) -> str:
        """Return the node that a process runs on."""
        return next(name for name, node in self._nodes.items() if pid in processes.descendants(node.pid))

    def mend(self) -> None:
        """Switch on what was switched off."""
        if "head" not in self._nodes:
            for name in list(self._nodes):
                self.power_off(name)
            self.start_head()
        for name in self.names:
            if name not in self._nodes:
                self.power_on(name)

    def power_on(self, name: str) -> None:
        """Start a node."""
        script = 'hostname "$0" && mount -t tmpfs none "$1" && shift && "$@"'
        # where Ray ends, the node and what runs on it go on
        inside = ("unshare", *SPACES, "sh", "-c", f"{script} & wait; exec sleep infinity", name, str(self.blind))
        options = (f"--address={self._address}", f"--num-gpus={self.gpus}", "--num-cpus=8")
        self._nodes[name] = self._start(name, options, inside)

    def power_off(self, name: str) -> None:
        """Pull a node's plug: all that runs on it is gone, and nobody is told."""
        node = self._nodes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(node.pid, signal.SIGKILL)  # the first process of its space is among them: all others go with it
        node.wait()

    def _start(self, name: str, options: tuple[str, ...], inside: tuple[str, ...]) -> subprocess.Popen[bytes]:
        ray = (sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats")
        command = [*inside, *ray, *options, f"--node-name={name}", "--object-store-memory=80000000"]
        log = self.place / f"{name}.log"
        with log.open("wb") as words:
            streams = {"stdin": subprocess.DEVNULL, "stdout": words, "stderr": subprocess.STDOUT}
            environment = {**os.environ, **self.environment}
            node = subprocess.Popen(command, env=environment, start_new_session=True, **streams)
        end = time.monotonic() + PATIENCE_S
        while "Ray runtime started" not in log.read_text():
            if node.poll() is not None or time.monotonic() > end:
                node.kill()
                raise TimeoutError(f"{name} has not come up: {log.read_text()[-2000:]}")
            time.sleep(0.1)
        return node

    def _power_all_off(self) -> None:
        for name in reversed(list(self._nodes)):
            self.power_off(name)
