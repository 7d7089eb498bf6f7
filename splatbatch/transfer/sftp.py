"""A store on an ssh host, by sftp; keys and host keys come from ~/.ssh, keys also from an ssh agent.

User and port come from the URL, else from ~/.ssh/config; else they are the user's own name and 22.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import uuid
from collections.abc import Awaitable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from urllib.parse import urlsplit

import asyncssh

from splatbatch.errors import CutOffError, StoreError
from splatbatch.transfer.store import PIECE_BYTES, pieces_of

T = TypeVar("T")
LOST = (asyncssh.SFTPNoConnection, asyncssh.SFTPConnectionLost, asyncssh.ConnectionLost)
CONNECT_S = 20.0
KEEPALIVE_S = 10
"""Pause between two keepalive messages, in seconds; a host that leaves three unanswered counts as away."""


class SftpStore:
    """A store of files below a folder of a host; all threads share one connection, served by a thread of its own."""

    def __init__(self, url: str) -> None:
        """Keep the URL ssh://USER@HOST:PORT/PATH, and start the thread; the first request connects.

        User and port may be left out. PATH is absolute or, if it begins with /~/, below the home folder on the host;
        without PATH it is the home folder.
        """
        parts = urlsplit(url)
        login = {"port": parts.port, "username": parts.username}
        self._host, self._login = parts.hostname or "", {name: value for name, value in login.items() if value}
        self._root = PurePosixPath(parts.path.removeprefix("/~/"))
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._lock = threading.Lock()
        self._client: asyncssh.SFTPClient | None = None
        self._folders: set[PurePosixPath] = set()

    def read(self, name: str, start: int = 0) -> Iterator[bytes]:
        """Yield the contents of a file from byte `start` on.

        Raises:
            FileNotFoundError: there is no such file.
            StoreError: the host refuses the request; a CutOffError if it does not answer.
        """
        file: Any = self._do(self._sftp().open(self._at(name), "rb"))
        try:
            while piece := self._do(file.read(PIECE_BYTES, start)):
                start += len(piece)
                yield bytes(piece)
        finally:
            with contextlib.suppress(StoreError):
                self._do(file.close())

    def write(self, name: str, content: Path | bytes, *, once: bool = False) -> bool:
        """Write a file, whole or not at all; with `once`, do not replace an existing file, but return False.

        Args:
            name: name of the file in the store.
            content: its contents, or the path of the local file with them.
            once: whether an existing file of that name stays. False is also returned if the host refuses the name for
                another reason, as OpenSSH tells none.

        Raises:
            StoreError: the local file cannot be read, or the host refuses; a CutOffError if it does not answer.
        """
        return self._do(self._written(self._sftp(), self._root / name, content, once=once))

    def names(self, folder: str) -> set[str]:
        """Return the names of the files in a folder, without temporary ones; an empty set if there is no such folder.

        Raises:
            StoreError: the host refuses the request; a CutOffError if it does not answer.
        """
        try:
            found = self._do(self._sftp().readdir(self._at(folder)))
        except FileNotFoundError:
            return set()
        regular = asyncssh.FILEXFER_TYPE_REGULAR
        return {name for one in found if one.attrs.type == regular and (name := str(one.filename))[0] != "."}

    def _at(self, name: str) -> str:
        return (self._root / name).as_posix()

    async def _written(
        self, client: asyncssh.SFTPClient, place: PurePosixPath, content: Path | bytes, *, once: bool
    ) -> bool:
        if place.parent not in self._folders:
            await client.makedirs(place.parent.as_posix(), exist_ok=True)
            self._folders.add(place.parent)
        target, aside = place.as_posix(), place.with_name(f".{place.name}.{uuid.uuid4().hex}").as_posix()
        try:
            async with client.open(aside, "wb") as file:
                for piece in pieces_of(content):
                    await file.write(piece)
            if not once:
                await client.posix_rename(aside, target)
                return True
        except (asyncssh.SFTPError, StoreError):
            with contextlib.suppress(asyncssh.SFTPError):
                await client.remove(aside)
            raise
        try:
            await client.rename(aside, target)  # unlike posix_rename it replaces nothing; it needs no hard links
            return True
        except (asyncssh.SFTPFailure, asyncssh.SFTPFileAlreadyExists):  # OpenSSH gives no reason for a refusal
            with contextlib.suppress(asyncssh.SFTPNoSuchFile):
                await client.remove(aside)
            return False

    def _sftp(self) -> asyncssh.SFTPClient:
        with self._lock:
            if self._client is None:
                self._client = self._do(asyncio.wait_for(self._connected(), CONNECT_S))
            return self._client

    async def _connected(self) -> asyncssh.SFTPClient:
        connection = await asyncssh.connect(self._host, keepalive_interval=KEEPALIVE_S, **self._login)
        return await connection.start_sftp_client()

    def _do(self, what: Awaitable[T]) -> T:
        """Run a request and return its result; turn its error into a CutOffError or a StoreError.

        A missing file is a FileNotFoundError. After a lost connection the next request connects again.
        """
        try:
            return asyncio.run_coroutine_threadsafe(_answer(what), self._loop).result()
        except asyncssh.SFTPNoSuchFile as error:
            raise FileNotFoundError(str(error)) from error
        except (asyncssh.PermissionDenied, asyncssh.KeyImportError) as error:
            raise StoreError(
                f"store ssh://{self._host}: the host accepts none of your ssh keys",
                "Add a key to ~/.ssh or to an ssh agent, or name one in ~/.ssh/config; test it with `ssh`.",
            ) from error
        except asyncssh.HostKeyNotVerifiable as error:
            raise StoreError(
                f"store ssh://{self._host}: this machine does not know the host's key",
                "Connect to the host once with `ssh`, or add its key to ~/.ssh/known_hosts.",
            ) from error
        except (asyncssh.Error, TimeoutError, OSError) as error:
            said = getattr(error, "strerror", "") or getattr(error, "reason", "") or "does not answer"
            if isinstance(error, asyncssh.SFTPError) and not isinstance(error, LOST):
                raise StoreError(
                    f"store ssh://{self._host}{self._root}: {said}",
                    "Check that the folder of the store is writable and has free space, and that OpenSSH serves it.",
                ) from error
            self._client = None
            raise CutOffError(f"store ssh://{self._host}: {said}") from error


async def _answer(what: Awaitable[T]) -> T:
    return await what
