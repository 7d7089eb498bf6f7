"""Servers for this machine alone: who asks for nonsense, or for nothing at all, costs neither a thread nor a word."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from splatbatch.cli.server import Request, SplatPages, open_server

if TYPE_CHECKING:
    from splatbatch.publish.joint_scene import JointScene


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[tuple[int, str]]:
    """Serve a splat without photographs; give the port and the token."""
    monkeypatch.setattr(Request, "timeout", 0.5)
    server = open_server(
        18380, SplatPages(cast("JointScene", SimpleNamespace(facts=SimpleNamespace(photos=())))).answer
    )
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_port, server.token
    server.shutdown()
    server.server_close()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("number", ["9" * 5000, "0", "-1", "²", "٣", ""])
def test_a_photograph_that_there_is_not_is_not_found(port: tuple[int, str], number: str) -> None:
    with socket.create_connection(("127.0.0.1", port[0]), timeout=5) as asked:
        asked.sendall(f"GET /{port[1]}/photo/{number} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        assert b" 404 " in asked.recv(1000)


def test_a_connection_that_asks_for_nothing_is_let_go(port: tuple[int, str]) -> None:
    with socket.create_connection(("127.0.0.1", port[0]), timeout=10) as half:
        half.sendall(b"GET /")
        assert half.recv(100) == b""


def test_every_server_for_this_machine_has_a_limit() -> None:
    assert 0 < Request.timeout <= 60
