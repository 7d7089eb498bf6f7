"""A store in a bucket of S3, or of a server with its protocol.

Keys, region and endpoint come from AWS_… variables; without keys there, the role of the machine counts.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import obstore
from obstore import exceptions
from obstore.store import S3Store as Bucket

from splatbatch.errors import CutOffError, StoreError
from splatbatch.transfer.store import PIECE_BYTES, unreadable

PART_BYTES = 16 << 20
PATIENCE = timedelta(seconds=20)
"""Time for which the library obstore repeats a failing request; after that the courier (see `transfer.courier`), in
whose process the request is made, repeats it."""
KEYS = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine a role that may write into the bucket."
SAYS = (
    ("RequestTimeTooSkewed", "the clocks of this machine and of the store differ too much",
     "Set the clock of this machine: `timedatectl`."),
    ("NoSuchBucket", "no such bucket", "Create the bucket, or name another one."),
    ("PermanentRedirect|AuthorizationHeaderMalformed|IllegalLocationConstraint|status: 301|301 Moved|Received redirect",
     "the bucket is in another region", "Set AWS_REGION to that region, or AWS_ENDPOINT_URL."),
    ("QuotaExceeded|XMinioStorageFull|EntityTooLarge|507 ", "no space left",
     "Free space in the store, then run the command again."),
    ("InvalidAccessKeyId|SignatureDoesNotMatch|AccessDenied|ExpiredToken|InvalidToken|403 |401 |169.254.169.254|"
     "169.254.170|CredentialProvider|credential", "the credentials are refused, or none were found", KEYS),
)  # fmt: skip
"""Patterns in errors of a store, each with our message and a hint; the errors are not shown, as they may hold
secrets."""


class S3Store:
    """A store of objects below a prefix of a bucket; an object is never partial."""

    def __init__(self, url: str) -> None:
        """Prepare requests to s3://BUCKET/PREFIX; nothing is sent yet.

        The server is that of AWS_ENDPOINT_URL_S3, else of AWS_ENDPOINT_URL; without both the library chooses it.
        """
        parts = urlsplit(url)
        self._url, prefix = f"s3://{parts.hostname}{parts.path}", parts.path.strip("/")
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
        self._bucket = Bucket(
            parts.netloc,
            prefix=prefix or None,
            config={"endpoint": endpoint} if endpoint else {},  # keys and region it finds by itself
            client_options={
                "allow_http": endpoint.startswith("http://"),
                "connect_timeout": timedelta(seconds=10),
                "timeout": timedelta(minutes=10),
            },
            retry_config={"max_retries": 3, "retry_timeout": PATIENCE},
        )

    def read(self, name: str, start: int = 0) -> Iterator[bytes]:
        """Yield the contents of an object from byte `start` on.

        Raises:
            FileNotFoundError: there is no such object.
            StoreError: the store refuses the request; a CutOffError if it does not answer.
        """
        with self._store_errors():
            found = obstore.get(self._bucket, name, options={"range": {"offset": start}} if start else {})
            for piece in found.stream(min_chunk_size=PIECE_BYTES):
                yield bytes(piece)

    def write(self, name: str, content: Path | bytes, *, once: bool = False) -> bool:
        """Write an object, whole or not at all; with `once`, do not replace an existing object, but return False.

        Args:
            name: name of the object below the prefix.
            content: its contents, or the path of the local file with them.
            once: whether an existing object of that name stays; sent as If-None-Match, which a store may not support.

        Raises:
            StoreError: the local file cannot be read, or the store refuses; a CutOffError if it does not answer.
        """
        with self._store_errors():
            try:
                obstore.put(self._bucket, name, content, chunk_size=PART_BYTES, mode="create" if once else "overwrite")
            except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
                return False
            except OSError as error:
                if "(os error " not in str(error):  # of the store: no such bucket
                    raise
                raise unreadable(content, error) from error
        return True

    def names(self, folder: str) -> set[str]:
        """Return the names of the objects in a folder, without the folder itself; an empty set if there are none.

        Raises:
            StoreError: the store refuses the request; a CutOffError if it does not answer.
        """
        with self._store_errors():
            pages = obstore.list(self._bucket, prefix=f"{folder}/")
            return {one["path"].rpartition("/")[2] for page in pages for one in page}

    @contextlib.contextmanager
    def _store_errors(self) -> Iterator[None]:
        """Turn an error of the library into a StoreError with a message of `SAYS`, else a CutOffError.

        A missing object is a FileNotFoundError.
        """
        try:
            yield
        except (exceptions.BaseError, OSError) as error:
            said = str(error)
            if isinstance(error, FileNotFoundError) and "NoSuchBucket" not in said:
                raise FileNotFoundError(self._url) from None
            for sign, words, hint in SAYS:
                if re.search(sign, said):
                    raise StoreError(f"store {self._url}: {words}", hint) from None
            code = re.search(r"\b[45]\d\d [A-Z][A-Za-z ]+", said)
            raise CutOffError(f"store {self._url}: {code[0].strip() if code else 'does not answer'}") from None
