"""Hosts on this machine: each has a name, a network and mounts of its own; one cable each leads to a common switch.

The switch has the files on its disk and serves them by sftp, each host mounts them over the network (sshfs): one whose
cable is pulled sees the files no more than anybody sees what it writes, until the cable is put back.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

SFTP_SERVER = Path("/usr/lib/openssh/sftp-server")
SERVER, PORT = "10.77.0.254", 2222
PATIENCE_S = 20.0
SPACES = ("--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
PATIENT = (
    "cd /proc/sys/net/ipv4 && echo 255 > tcp_retries2 && { [ ! -e tcp_rto_max_ms ] || echo 1000 > tcp_rto_max_ms; }"
)
"""No connection is given up; since Linux 6.15 it is also tried once a second, else a host hears late of its cable."""


def lack(*, shares: bool = True) -> str:
    """Return what is missing for such hosts; empty if nothing is. `shares`: they mount a folder of the switch."""
    if os.geteuid() != 0:
        return "hosts of their own need root"
    programs = ("ip", "unshare", "nsenter", "hostname", *(("sshfs",) if shares else ()))
    if missing := [name for name in programs if not shutil.which(name)]:
        return f"hosts of their own need {', '.join(missing)}"
    if not SFTP_SERVER.exists():
        return f"hosts of their own need {SFTP_SERVER}"
    if shares and not Path("/dev/fuse").exists():
        return "hosts of their own need /dev/fuse"
    may = subprocess.run(
        ["unshare", *SPACES, "ip", "link", "add", "br0", "type", "bridge"], capture_output=True, check=False
    )
    return "" if may.returncode == 0 else f"no host of its own: {may.stderr.decode().strip()}"


class Host:
    """A host, as long as its first process lives."""

    def __init__(self, name: str) -> None:
        script = f'hostname "$0" && ip link set lo up && {PATIENT} && exec sleep infinity'
        self.name = name
        self._outside = subprocess.Popen(["unshare", *SPACES, "sh", "-c", script, name], stdin=subprocess.DEVNULL)
        end = time.monotonic() + PATIENCE_S
        while (pid := self._first()) is None:
            if self._outside.poll() is not None or time.monotonic() > end:
                raise TimeoutError(f"{name} has not come up")
            time.sleep(0.01)
        self.pid = pid

    def _first(self) -> int | None:
        """Return its process number 1, as it is called outside, once all is set up."""
        children = Path(f"/proc/{self._outside.pid}/task/{self._outside.pid}/children").read_text().split()
        is_up = children and Path(f"/proc/{children[0]}/comm").read_text().strip() == "sleep"
        return int(children[0]) if is_up else None

    def within(self, *command: str) -> list[str]:
        """Return a command as it runs on this host, in the folder that its mounts show there."""
        return ["nsenter", "-t", str(self.pid), "-n", "-u", "-m", "-p", "--wdns=/", *command]

    def do(self, *command: str) -> str:
        """Run a command to its end."""
        return subprocess.run(self.within(*command), check=True, capture_output=True, text=True).stdout

    def end(self) -> None:
        """Kill all that runs on it; its network and mounts go with the last."""
        os.kill(self.pid, signal.SIGKILL)
        self._outside.wait()


class Hosts:
    """Some hosts that share a folder of this machine; a context manager."""

    def __init__(self, folder: Path, number: int, *, lag_s: int = 1, shares: bool = True) -> None:
        """Prepare them.

        Args:
            folder: that they share, under the same name on each.
            number: of hosts.
            lag_s: for so long a host may see a folder as it was.
            shares: they mount the folder; else they share nothing but the network.
        """
        self._shares = shares
        self.folder, self._number, self._lag_s = folder, number, lag_s
        self._stack = ExitStack()
        self.hosts: list[Host] = []

    def __enter__(self) -> Hosts:
        with ExitStack() as stack:
            self._switch = self._up("switch", stack)
            self._switch.do("ip", "link", "add", "br0", "address", card(0), "type", "bridge")
            self._switch.do("ip", "addr", "add", f"{SERVER}/24", "dev", "br0")
            self._switch.do("ip", "link", "set", "br0", "up")
            if self._shares:
                self._serve(stack)
            for number in range(1, self._number + 1):
                self.hosts.append(self._up(f"h{number}", stack))
                self._plug_in(number)
                if self._shares:
                    self._mount(self.hosts[-1], stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def cut(self, number: int) -> None:
        """Pull the cable of a host: what is sent vanishes, and nobody is told."""
        self._switch.do("ip", "link", "set", f"p{number}", "down")

    def heal(self, number: int) -> None:
        """Put it back."""
        self._switch.do("ip", "link", "set", f"p{number}", "up")

    def limit(self, number: int, megabits: int) -> None:
        """Let no more million bits per second through to a host, and as many back."""
        for host, device in ((self._switch, f"p{number}"), (self.hosts[number - 1], "eth0")):
            limits = ("rate", f"{megabits}mbit", "burst", "1mb", "latency", "50ms")
            host.do("tc", "qdisc", "add", "dev", device, "root", "tbf", *limits)

    def within_switch(self) -> list[str]:
        """Return what begins a command that runs on the switch, which every host reaches as SERVER."""
        return self._switch.within()

    def start(self, number: int, command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
        """Start a command on a host."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
        return subprocess.Popen(self.hosts[number - 1].within(*command), env=dict(environment), text=True, **pipes)

    def _up(self, name: str, stack: ExitStack) -> Host:
        host = Host(name)
        stack.callback(host.end)
        return host

    def _plug_in(self, number: int) -> None:
        host, port, address = self.hosts[-1], f"p{number}", f"10.77.0.{number}"
        cable = ("type", "veth", "peer", "name", port, "netns", str(self._switch.pid))
        subprocess.run(["ip", "link", "add", "eth0", "netns", str(host.pid), *cable], check=True)
        self._switch.do("ip", "link", "set", port, "master", "br0", "up")
        host.do("ip", "addr", "add", f"{address}/24", "dev", "eth0")
        host.do("ip", "link", "set", "eth0", "address", card(number), "up")
        # known for good: else a cable that is pulled is an error as soon as nobody answers who has an address
        host.do("ip", "neigh", "add", SERVER, "lladdr", card(0), "nud", "permanent", "dev", "eth0")
        self._switch.do("ip", "neigh", "add", address, "lladdr", card(number), "nud", "permanent", "dev", "br0")

    def _serve(self, stack: ExitStack) -> None:
        server = subprocess.Popen(self._switch.within(sys.executable, __file__), stdout=subprocess.PIPE)
        stack.callback(server.kill)
        assert server.stdout is not None
        server.stdout.readline()  # it is ready

    def _mount(self, host: Host, stack: ExitStack) -> None:
        host.do("mount", "-t", "tmpfs", "none", str(self.folder))  # without the network there is nothing to be seen
        options = f"directport={PORT},dcache_timeout={self._lag_s}"
        sshfs = ["sshfs", "-f", "-o", options, f"{SERVER}:{self.folder}", str(self.folder)]
        mount = subprocess.Popen(host.within(*sshfs))
        stack.callback(mount.kill)
        end = time.monotonic() + PATIENCE_S
        while f" {self.folder} fuse" not in Path(f"/proc/{host.pid}/mounts").read_text():
            if mount.poll() is not None or time.monotonic() > end:
                raise TimeoutError(f"{host.name} cannot mount {self.folder}")
            time.sleep(0.02)


def card(number: int) -> str:
    """Return the address of a host's network card; 0: of the server."""
    return f"02:00:00:00:00:{number:02x}"


def serve() -> None:
    """Answer each that connects with an sftp server of its own."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.create_server((SERVER, PORT)) as server:
        print("ready", flush=True)
        while True:
            connection, _ = server.accept()
            subprocess.Popen([SFTP_SERVER], stdin=connection, stdout=connection)
            connection.close()


if __name__ == "__main__":
    serve()
