"""The kinds of stores, chosen by the scheme of a URL."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from splatbatch.errors import ConfigError, TrainerError
from splatbatch.transfer.folder import FolderStore
from splatbatch.transfer.store import Store


def scheme_of(url: str) -> str:
    """Return the scheme of a store's URL: "ssh", "s3", or "" for a folder, which may be written as file://folder.

    Raises:
        ConfigError: the scheme is unknown, or the URL holds a password (for S3 also a user). Or its host or bucket is
            missing or malformed, or its port is no number from 0 to 65535.
    """
    scheme = url.partition("://")[0] if "://" in url else ""
    if scheme not in ("", "file", "ssh", "s3"):
        raise ConfigError(
            f"{scheme}://: unknown scheme of a store", "A store is a folder, ssh://host/path or s3://bucket/prefix."
        )
    if scheme in ("", "file"):
        return ""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        hint = f"Write {scheme}://name/path, with name:port for another port."
        raise ConfigError(f"{scheme}://: the host or port of the URL is not valid ({error})", hint) from error
    if parts.password is not None or (scheme == "s3" and parts.username):
        raise ConfigError(
            f"{scheme}://{parts.hostname}: the URL of a store contains a password",
            "Remove the password. Credentials come from AWS_… variables, an ssh agent, or the keys in ~/.ssh.",
        )
    if not parts.hostname:
        raise ConfigError(
            f"{url}: its {'bucket' if scheme == 's3' else 'host'} is missing", f"Write {scheme}://name/path."
        )
    return scheme


def open_store(url: str) -> Store:
    """Return the store of a URL, as `absolute_url` gives it, without connecting to the store.

    Raises:
        ConfigError: the URL is not valid; see `scheme_of`.
        TrainerError: a library for this scheme is not installed.
    """
    scheme = scheme_of(url)
    try:
        match scheme:
            case "ssh":
                from splatbatch.transfer.sftp import SftpStore

                return SftpStore(url)
            case "s3":
                from splatbatch.transfer.s3 import S3Store

                return S3Store(url)
    except ImportError as error:
        message = f"stores at {scheme}:// need the Python package {error.name}, which is not installed"
        raise TrainerError(message, "Install it: pip install 'splatbatch[stores]'") from error
    return FolderStore(Path(url))


def absolute_url(url: str, base: Path) -> str:
    """Return the URL of a store; that of a folder becomes its absolute path, below `base` if it is relative.

    Other URLs are returned unchanged.

    Raises:
        ConfigError: the URL is not valid, see `scheme_of`; or it begins with ~, and that home folder is unknown.
    """
    if scheme_of(url):
        return url
    try:
        return str((base / Path(url.removeprefix("file://")).expanduser()).resolve())
    except RuntimeError as error:
        raise ConfigError(f"{url}: the home folder is unknown", "Write the whole path, without ~.") from error
