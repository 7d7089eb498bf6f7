"""The kinds of stores, chosen by the scheme of a URL."""

from __future__ import annotations

from pathlib import Path

from splatbatch.config.executor import scheme_of
from splatbatch.errors import ConfigError, TrainerError
from splatbatch.transfer.folder import FolderStore
from splatbatch.transfer.store import Store


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
    try:
        return url if scheme_of(url) else str((base / Path(url.removeprefix("file://")).expanduser()).resolve())
    except RuntimeError as error:
        raise ConfigError(f"{url}: the home folder is unknown", "Write the whole path, without ~.") from error
