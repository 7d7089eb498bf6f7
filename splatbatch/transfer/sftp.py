"""A store on an ssh host, by sftp; keys, agent, user, port and host keys are configured in ~/.ssh."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import uuid
from collections.abc import Coroutine, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from urllib.parse import urlsplit

import asyncssh

from splatbatch.errors import CutOffError, StoreError
from splatbatch.transfer.store import PIECE_BYTES

T = TypeVar("T")
LOST = (asyncssh.SFTPNoConnection, asyncssh.SFTPConnectionLost, asyncssh.ConnectionLost)
CONNECT_S = 20.0
KEEPALIVE_S = 10
"""Pause between two keepalive messages, seconds; a host that leaves three unanswered counts as away."""


class SftpStore:
    """A store of files below a folder of a host; all threads share one connection, served by a thread of its own."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._login = parts.hostname or "", {"port": parts.port, "username": parts.username}
        self._root = PurePosixPath(
            parts.path.removeprefix("/~/") if parts.path.startswith("/~/") else parts.path or "."
        )
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._lock = threading.Lock()
        self._client: asyncssh.SFTPClient | None = None
        self._folders: set[PurePosixPath] = set()

    def read(self, name: str, start: int = 0) -> Iterator[bytes]:
        """Yield the contents of a file from byte `start` on."""
        file = self._do(_opened(self._sftp(), self._at(name)))
        try:
            while piece := self._do(file.read(PIECE_BYTES, start)):
                start += len(piece)
                yield bytes(piece)
        finally:
            with contextlib.suppress(StoreError):
                self._do(file.close())

    def write(self, name: str, content: Path | bytes, *, once: bool = False) -> bool:
        """Write a file, whole or not at all; with `once`, do not replace an existing file, but return False."""
        return self._do(self._written(self._sftp(), PurePosixPath(self._at(name)), content, once=once))

    def names(self, folder: str) -> set[str]:
        """Return the names of the files in a folder, without temporary ones; empty if there is no such folder."""
        try:
            found = self._do(self._sftp().readdir(self._at(folder)))
        except FileNotFoundError:
            return set()
        files = {str(one.filename) for one in found if one.attrs.type == asyncssh.FILEXFER_TYPE_REGULAR}
        return {name for name in files if name[0] != "."}

    def _at(self, name: str) -> str:
        return (self._root / name).as_posix()

    async def _written(
        self, client: asyncssh.SFTPClient, place: PurePosixPath, content: Path | bytes, *, once: bool
    ) -> bool:
        if place.parent not in self._folders:
            await client.makedirs(place.parent.as_posix(), exist_ok=True)
            self._folders.add(place.parent)
        aside = place.with_name(f".{place.name}.{uuid.uuid4().hex}").as_posix()
        await self._put(client, aside, content)
        if not once:
            await client.posix_rename(aside, place.as_posix())
            return True
        try:
            await client.link(aside, place.as_posix())
            return True
        except (*LOST, asyncssh.SFTPNoSuchFile):
            raise
        except asyncssh.SFTPError:  # OpenSSH gives no reason for a refusal
            return False
        finally:
            with contextlib.suppress(asyncssh.SFTPNoSuchFile):
                await client.remove(aside)

    async def _put(self, client: asyncssh.SFTPClient, aside: str, content: Path | bytes) -> None:
        try:
            if isinstance(content, bytes):
                async with client.open(aside, "wb") as file:
                    await file.write(content)
            else:
                await client.put(str(content), aside)
        except LOST:
            raise
        except asyncssh.SFTPError as error:
            with contextlib.suppress(asyncssh.SFTPError):
                await client.remove(aside)
            with contextlib.suppress(asyncssh.SFTPError):  # a bare refusal may mean that the disk there is full
                room = await client.statvfs(self._root.as_posix())
                if not room.bavail or not room.favail:
                    raise StoreError(
                        f"store ssh://{self._host}{self._root}: no space left",
                        "Free space there, then run the command again.",
                    ) from error
            raise

    def _sftp(self) -> asyncssh.SFTPClient:
        with self._lock:
            if self._client is None:
                self._client = self._do(asyncio.wait_for(self._connected(), CONNECT_S))
            return self._client

    async def _connected(self) -> asyncssh.SFTPClient:
        config = Path("~/.ssh/config").expanduser()
        told: dict[str, Any] = {name: value for name, value in self._login.items() if value}
        told["config"] = [str(config)] if config.is_file() else None
        connection = await asyncssh.connect(self._host, keepalive_interval=KEEPALIVE_S, **told)
        return await connection.start_sftp_client()

    def _do(self, what: Coroutine[Any, Any, T]) -> T:
        """Run a request and return its result; turn its error into a CutOffError or a StoreError.

        A missing file is a FileNotFoundError. After a lost connection the next request connects again.
        """
        try:
            return asyncio.run_coroutine_threadsafe(what, self._loop).result()
        except asyncssh.SFTPNoSuchFile as error:
            raise FileNotFoundError(str(error)) from error
        except LOST as error:
            self._client = None
            raise CutOffError(f"store ssh://{self._host}: the connection is lost") from error
        except asyncssh.SFTPError as error:
            raise StoreError(f"store ssh://{self._host}{self._root}: {error.reason}", _MAY) from error
        except (asyncssh.PermissionDenied, asyncssh.KeyImportError) as error:
            raise StoreError(f"store ssh://{self._host}: the host accepts none of our keys", _KEYS) from error
        except asyncssh.HostKeyNotVerifiable as error:
            raise StoreError(f"store ssh://{self._host}: the host key is unknown", _HOST) from error
        except (asyncssh.Error, TimeoutError, OSError) as error:
            self._client = None
            said = getattr(error, "strerror", "") or getattr(error, "reason", "") or "does not answer"
            raise CutOffError(f"store ssh://{self._host}: {said}") from error


_MAY = "Check that the folder is writable and has free space."
_KEYS = "Add a key to ~/.ssh or to an agent, or name one in ~/.ssh/config, as for `ssh`."
_HOST = "Connect once with `ssh`, or add its key to ~/.ssh/known_hosts."


async def _opened(client: asyncssh.SFTPClient, name: str) -> Any:
    return await client.open(name, "rb")
