"""Stores for tests: a folder, an OpenSSH server on loopback, and moto's S3 server, each in a process of its own."""

from __future__ import annotations

import contextlib
import getpass
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
SFTP_SERVER = Path("/usr/lib/openssh/sftp-server")
BUCKET = "reef"
SECRET = "wJalrXUtnFEMI/K7MDENG/planted-secret-37"
"""The secret key that no file, log or process list may hold."""
PATIENCE_S = 20.0


def lack(kind: str) -> str:
    """Return what is missing for a store of a kind; empty if nothing is."""
    if kind == "ssh":
        there = Path(SSHD).exists() and SFTP_SERVER.exists() and importlib.util.find_spec("asyncssh")
        return "" if there else "needs sshd (openssh-server) and asyncssh"
    if kind == "s3":
        there = importlib.util.find_spec("moto") and importlib.util.find_spec("obstore")
        return "" if there else "needs moto and obstore"
    return ""


@contextlib.contextmanager
def site(kind: str, folder: Path, address: str = "127.0.0.1", prefix: tuple[str, ...] = ()) -> Iterator[Site]:
    """Put up a store; `prefix` begins the command of its server, as on a host of its own."""
    make = {"folder": _folder, "ssh": _ssh, "s3": _s3}[kind]
    with make(folder, address, prefix) as found:
        yield found


class Site:
    """A store that is up, and the environment in which it can be reached."""

    def __init__(self, url: str, environment: dict[str, str], kept: Path | None = None) -> None:
        self.url, self.environment, self.kept = url, environment, kept
        """`kept`: where its files lie on this machine; None: in the memory of its server."""

    def below(self, name: str) -> str:
        """Return the URL of a store below this one."""
        return f"{self.url}/{name}"


@contextlib.contextmanager
def _folder(folder: Path, address: str, prefix: tuple[str, ...]) -> Iterator[Site]:
    yield Site(str(folder / "store"), {}, folder / "store")


@contextlib.contextmanager
def _ssh(folder: Path, address: str, prefix: tuple[str, ...]) -> Iterator[Site]:
    home, port = folder / "home", free_port()
    (home / ".ssh").mkdir(parents=True)
    for name in (folder / "host_key", home / ".ssh" / "id_ed25519"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(name)], check=True)
    (folder / "authorized").write_text((home / ".ssh" / "id_ed25519.pub").read_text())
    host_key = (folder / "host_key.pub").read_text()
    (home / ".ssh" / "known_hosts").write_text(f"[{address}]:{port} {host_key}")
    settings = {
        "ListenAddress": f"{address}:{port}",
        "HostKey": folder / "host_key",
        "AuthorizedKeysFile": folder / "authorized",
        "PidFile": folder / "sshd.pid",
        "StrictModes": "no",
        "UsePAM": "no",
        "PasswordAuthentication": "no",
        "PermitRootLogin": "prohibit-password",
        "MaxStartups": "100",
        "Subsystem": f"sftp {SFTP_SERVER}",
    }
    (folder / "sshd_config").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    Path("/run/sshd").mkdir(exist_ok=True)  # where Debian's sshd leaves its privileges
    server = subprocess.Popen([*prefix, SSHD, "-D", "-f", str(folder / "sshd_config"), "-E", str(folder / "sshd.log")])
    try:
        if not prefix:
            await_port(address, port)
        kept = folder / "store"
        url = f"ssh://{getpass.getuser()}@{address}:{port}{kept}"
        yield Site(url, {"HOME": str(home)}, kept)
    finally:
        server.kill()
        server.wait()


@contextlib.contextmanager
def _s3(folder: Path, address: str, prefix: tuple[str, ...]) -> Iterator[Site]:
    port = free_port()
    log = (folder / "moto.log").open("w")
    server = subprocess.Popen([*prefix, sys.executable, __file__, address, str(port)], stdout=log, stderr=log)
    try:
        endpoint = f"http://{address}:{port}"
        if not prefix:
            await_port(address, port)
            urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT"), timeout=10)
        keys = {"AWS_ACCESS_KEY_ID": "AKIAPLANTED37", "AWS_SECRET_ACCESS_KEY": SECRET}
        yield Site(f"s3://{BUCKET}/night", {**keys, "AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "us-east-1"})
    finally:
        server.kill()
        server.wait()
        log.close()


def free_port() -> int:
    """Return a port that nobody listens at just now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def await_port(address: str, port: int) -> None:
    """Wait until somebody listens."""
    end = time.monotonic() + PATIENCE_S
    while True:
        with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=1):
            return
        if time.monotonic() > end:
            raise TimeoutError(f"nobody listens at {address}:{port}")
        time.sleep(0.05)


def serve_s3(address: str, port: int) -> None:
    """Be moto's S3 server; as in S3 itself, an object that two create at once is created once."""
    from moto.s3.responses import S3Response
    from moto.server import ThreadedMotoServer

    one_at_a_time, put = threading.Lock(), S3Response.put_object  # moto looks whether it is there, and writes later

    def put_alone(response: S3Response) -> object:
        with one_at_a_time:
            return put(response)

    S3Response.put_object = put_alone
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "of-the-server")
    server = ThreadedMotoServer(ip_address=address, port=port, verbose=False)
    server.start()
    urllib.request.urlopen(urllib.request.Request(f"http://{address}:{port}/{BUCKET}", method="PUT"), timeout=10)
    while True:
        time.sleep(60)


if __name__ == "__main__":
    serve_s3(sys.argv[1], int(sys.argv[2]))
