"""Writing files whole or not at all, and reading files without trust in their content.

Functions that read JSON tolerate what a crash leaves behind: a missing file, or a torn last line.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from glob import escape
from io import BufferedReader
from pathlib import Path, PurePath, PureWindowsPath
from stat import S_ISREG
from typing import Any, BinaryIO

from splatbatch.errors import LaterFormatError
from splatbatch.json_text import parse, pieces
from splatbatch.processes import kernel_file, start_ticks

Record = dict[str, Any]
FORMAT = 1
"""Format number of the records that this version writes; it grows when a key changes its meaning. 0.2.0 wrote none."""
MIB = 1 << 20
PRIVATE = 0o600
"""Mode of files that only their owner may read: they hold environment variables, which may be passwords."""
MOST_JSON_BYTES = 256 * MIB
"""Largest file read as JSON, in bytes; a larger one counts as no record. A result of 10,000 photographs has 3 MiB."""
LONGEST_LINE_BYTES = 16 * MIB
"""Longest line read from a .jsonl file, in bytes; a longer one is split, and its pieces are no JSON objects."""
MOST_FILES = 200_000
"""Most files and folders looked at below a folder that an external trainer has filled."""
MOST_LEVELS_BELOW = 64
"""Most levels of nested folders below a folder in which `find_files` looks."""
LOCAL_DISKS = {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "reiserfs", "tmpfs", "xfs", "zfs"}
"""Types of file systems that one machine alone uses, so that its kernel knows all file locks there."""
LONGEST_NAME_BYTES, LONGEST_PART_BYTES = 1024, 255
"""Longest file name accepted from outside, and longest part of such a name between two slashes, in bytes."""
_NO_NAME = re.compile(r"[\x00\ud800-\udc7f\udd00-\udfff]")
"""Characters that no file system accepts: NUL, and lone surrogates. Other control characters are allowed."""
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the file system itself; nothing of ours is written there
SHARED_MEMORY_MIB = 64
"""Least shared memory that the data loaders of trainers need, in MiB; Docker gives a container just as much."""


def write_whole(path: Path, write: Callable[[BinaryIO], object], mode: int = 0o666) -> None:
    """Let `write` fill a temporary file beside `path`, then sync and rename it: `path` is whole, or as it was before.

    Args:
        path: the file to write; an existing one is replaced. Its folder must exist.
        write: writes the content into an open binary file.
        mode: permissions before the umask is applied; the file has them from its first byte on.

    Raises:
        OSError: the file cannot be written; `path` is as before. Errors of `write` are passed on likewise.
    """
    with aside(path) as prepared:
        prepared.unlink(missing_ok=True)  # of a killed process with our number, in a mode of its own
        with open(prepared, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())


def fault_of_name(name: str) -> str:
    """Return why a relative file name from outside must not be used, in a message that quotes it; "" if it is safe.

    Names from outside stand in bundles, results, models, imports and folders that were handed over. A name that leads
    out of its folder only on Windows is refused, too, since a store or a disk may be shared with Windows.
    """
    parts, there = name.split("/"), PureWindowsPath(name)
    if there.anchor or not all(part.strip(". ") for part in [*parts, *there.parts]):
        why = "leads out of its folder"
    elif (
        _NO_NAME.search(name)
        or _num_bytes(name) > LONGEST_NAME_BYTES
        or max(map(_num_bytes, parts)) > LONGEST_PART_BYTES
    ):
        why = "cannot be a file's name"
    else:
        return ""
    return f"{name!r} {why}" if len(name) <= LONGEST_PART_BYTES else f"{name[:LONGEST_PART_BYTES]!r}… {why}"


def _num_bytes(name: str) -> int:
    return len(name.encode(errors="surrogateescape"))


note_reading: Callable[[str], object] = str
"""Called with the path of a file before it is opened for reading, or asked for its size and time. In a reader process
it tells the parent; else it does nothing."""


def open_regular(path: str | Path, most_bytes: int | None = None) -> BufferedReader:
    """Open a regular file for reading in binary mode; a pipe, a device or a folder is refused and never waited for.

    Args:
        path: the file; links are followed.
        most_bytes: a larger file is refused; None: any size is accepted.

    Raises:
        OSError: the file cannot be opened, is not a regular file (EINVAL), or is too large (EFBIG).
    """
    note_reading(str(path))
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe without a writer would wait for one
    except ValueError as error:  # a NUL, or half a character: no file has such a name
        raise OSError(errno.EINVAL, "not a valid file name", str(path)) from error
    try:
        status = os.fstat(descriptor)
        if not S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if most_bytes is not None and status.st_size > most_bytes:
            raise OSError(errno.EFBIG, f"too large: {status.st_size} bytes, {most_bytes} are read at most", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: str | Path, most_bytes: int) -> bytes:
    """Return the content of a regular file of at most `most_bytes` bytes.

    What is appended during the reading may be cut off.

    Raises:
        OSError: the file is larger, or cannot be read; see `open_regular`.
    """
    with open_regular(path, most_bytes) as file:
        return file.read(most_bytes)  # it may grow meanwhile


def is_on_local_disk(path: Path) -> bool:
    """Return whether a path lies on a disk of this machine alone.

    False if the disk is shared, or its type is unknown.
    """
    mounts = [line.split() for line in kernel_file("/proc/self/mountinfo").splitlines()]
    real, deepest, kind = f"{os.path.realpath(path)}/", -1, ""
    for fields in mounts:  # proc(5): …, the mount point with its blanks in octal, …, "-", type
        place = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), fields[4]).rstrip("/") + "/"
        if real.startswith(place) and len(place) >= deepest:
            deepest, kind = len(place), fields[fields.index("-") + 1]
    return kind in LOCAL_DISKS


def link_whole(source: Path, target: Path, *, within: Path, is_ours: bool = False) -> os.stat_result:
    """Make `target` a hard link to the file `source`, or a copy of it; return the stat of `target`.

    `target` is replaced as a whole, and is on the disk on return; a symbolic link there is replaced, not followed.
    A `target` that is a hard link to `source` already stays as it is.

    Args:
        source: the file; links are followed.
        target: the path to make.
        within: a hard link is only made for a `source` in this folder. Any other file is copied, since another process
            may still write into it.
        is_ours: make a hard link even if `source` has other names already; else such a file is copied.

    Raises:
        OSError: `source` is no readable regular file, or `target` cannot be written; `target` is then as before. Or
            `target` has another size than `source`: data was lost, or `source` changed meanwhile.
    """
    real = source.resolve(strict=True)
    if not real.is_file():
        raise OSError(errno.EINVAL, "not a regular file", str(source))
    size = real.stat().st_size
    is_there = target.exists() and target.samefile(real) and not target.is_symlink()  # it is linked once more
    is_ours = real.is_relative_to(within.resolve()) and (is_ours or real.stat().st_nlink == 1)
    if not is_there and not (is_ours and _link_over(real, target)):
        with open_regular(real) as file:
            write_whole(target, lambda copy: shutil.copyfileobj(file, copy, MIB))
    stat = target.lstat()
    if not S_ISREG(stat.st_mode) or stat.st_size != size:
        raise OSError(errno.EIO, f"only {stat.st_size} of {size} bytes were written", str(target))
    return stat


def _link_over(source: Path, target: Path) -> bool:
    """Sync a file, then hard-link it to `target`; return whether the file system allowed it."""
    with source.open("rb") as file:  # another process wrote it: its content and its name
        os.fsync(file.fileno())
    sync_folder(source.parent)
    try:
        with aside(target) as prepared:
            prepared.unlink(missing_ok=True)
            os.link(source, prepared)
    except OSError:  # another file system, or one without links
        return False
    return True


@contextlib.contextmanager
def aside(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; the block writes a file there, which is renamed to `path` at its end.

    If the block raises, the temporary file is removed, and `path` is as before.

    Raises:
        OSError: the file cannot be renamed, as when the block has written none.
    """
    prepared = path_beside(path)
    try:
        yield prepared
        prepared.replace(path)
    finally:
        with contextlib.suppress(OSError):
            prepared.unlink(missing_ok=True)
    sync_folder(path.parent)


def path_beside(path: Path) -> Path:
    """Return the path beside `path` of a temporary file of this process alone: .NAME.HOST.PID.

    `sweep` removes such files.
    """
    return path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}")


def write_text(path: Path, text: str) -> None:
    """Write text as UTF-8, whole or not at all; characters that UTF-8 cannot encode become "?".

    Raises:
        OSError: the file cannot be written; an existing one is as before.
    """
    write_whole(path, lambda file: file.write(text.encode(errors="replace")))


def write_json(path: Path, record: Mapping[str, Any], mode: int = 0o666) -> None:
    """Write a record of splatbatch with the key "format" before its own keys, whole or not at all.

    Args:
        path: the file; an existing one is replaced.
        record: the keys and values, as JSON holds them.
        mode: permissions before the umask is applied.

    Raises:
        OSError: the file cannot be written; an existing one is as before.
        ValueError: the record holds NaN or infinity, which JSON lacks.
        TypeError: the record holds a value that JSON cannot hold.
    """
    write_object(path, {"format": FORMAT, **record}, mode)


def write_object(path: Path, found: Mapping[str, object], mode: int = 0o666) -> None:
    """Write one JSON object, whole or not at all.

    Args:
        path: the file; an existing one is replaced.
        found: the object, as JSON holds it.
        mode: permissions before the umask is applied.

    Raises:
        OSError: the file cannot be written; an existing one is as before.
        ValueError: the object holds NaN or infinity, which JSON lacks.
        TypeError: the object holds a value that JSON cannot hold.
    """
    # piece by piece: the report of thousands of patches is larger as text than as what it says
    write_whole(path, lambda file: file.writelines(piece.encode() for piece in pieces(found)), mode)


def read_json(path: Path) -> Record | None:
    """Return the object in a JSON file.

    None if the file is missing, unreadable, no regular file, larger than `MOST_JSON_BYTES`, or no whole JSON object.
    """
    with contextlib.suppress(OSError, MemoryError):
        return object_in(read_regular(path, MOST_JSON_BYTES))
    return None


def object_in(text: str | bytes) -> Record | None:
    """Return a text parsed as a JSON object; None if it is no JSON, nested too deeply, or another value."""
    try:
        record = parse(text)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def read_record(path: Path) -> Record | None:
    """Return a record of splatbatch without its key "format"; None if there is no readable file with a JSON object.

    Raises:
        LaterFormatError: a later version of splatbatch wrote the record.
    """
    record = read_json(path)
    if record and isinstance(written := record.pop("format", 0), int) and written > FORMAT:
        raise LaterFormatError(
            f"{path}: written by a later version of splatbatch (format {written}; this version reads {FORMAT})",
            "Install that version of splatbatch, or a newer one: pip install --upgrade splatbatch",
        )
    return record


@contextlib.contextmanager
def open_descriptor(path: Path, flags: int, mode: int = 0o644) -> Iterator[int]:
    """Open a file by open(2), yield its descriptor, and close it after the block.

    Raises:
        OSError: the file cannot be opened.
    """
    descriptor = os.open(path, flags, mode)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def append_line(path: Path, record: Mapping[str, Any], *, durable: bool = True) -> None:
    """Append a record as one line of JSON by a single write.

    If the last line is torn, as after a power cut, a new line is begun, so that only the torn one is lost.

    Args:
        path: the .jsonl file; it is made if missing.
        record: the keys and values of the line.
        durable: return only once the line is on the disk.

    Raises:
        OSError: the file cannot be written. What a full disk took of the line is cut off again.
        ValueError: the record holds NaN or infinity, which JSON lacks.
        TypeError: the record holds a value that JSON cannot hold.
    """
    line = json.dumps(record, allow_nan=False).encode() + b"\n"
    with open_descriptor(path, os.O_RDWR | os.O_CREAT | os.O_APPEND) as descriptor:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            line = b"\n" + line
        if os.write(descriptor, line) < len(line):
            os.ftruncate(descriptor, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        if durable:
            os.fsync(descriptor)


def raw_lines(path: Path, start: int = 0) -> Iterator[bytes]:
    """Yield the lines of a .jsonl file from byte `start` on, with their line ends; none if the file cannot be read.

    The file is not loaded as a whole. A line longer than `LONGEST_LINE_BYTES` is yielded in pieces.
    """
    with contextlib.suppress(OSError), open_regular(path) as file:
        file.seek(start)
        yield from iter(lambda: file.readline(LONGEST_LINE_BYTES), b"")


def read_lines(path: Path) -> Iterator[Record]:
    """Yield the JSON objects of a .jsonl file in order, without other lines; nothing if the file cannot be read."""
    return (record for record in map(object_in, raw_lines(path)) if record is not None)


def last_line(path: Path) -> Record | None:
    """Return the last whole JSON object in the last 64 KiB of a .jsonl file.

    None if there is none, or no readable file.
    """
    found = map(object_in, reversed(read_tail(path).splitlines()))
    return next((record for record in found if record is not None), None)


def read_tail(path: Path, tail_bytes: int = 65536) -> str:
    """Return the last `tail_bytes` bytes of a text file, undecodable bytes replaced; "" if the file cannot be read."""
    try:
        with open_regular(path) as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - tail_bytes))
            return file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""


def names_in(folder: str) -> list[str]:
    """Return the names of all files and folders in a folder, in no order; an empty list if it cannot be read."""
    try:
        return os.listdir(folder)  # noqa: PTH208 - names alone are wanted, of thousands of folders
    except OSError:
        return []


class TooManyFiles(Exception):
    """Raised when a folder holds more files and folders than a search may look at."""


def find_files(folder: Path, globs: Iterable[str], most: int) -> list[Path]:
    """Return the paths of the files below a folder that match any of the globs, sorted.

    At most `MOST_LEVELS_BELOW` levels of folders are searched; unreadable folders are passed over. Globs mean what they
    mean to `Path.glob`: `**` matches any number of folders, but no links.

    Raises:
        TooManyFiles: more than `most` files and folders had to be looked at.
    """
    todo, found, num = [(folder, frozenset(PurePath(one).parts for one in globs))], set[Path](), 0
    while todo:
        place, patterns = todo.pop()
        patterns |= {parts[1:] for parts in patterns if parts[:1] == ("**",)}
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                num += 1
                if num > most:
                    raise TooManyFiles(f"more than {most:,} files below {folder}")
                below = _patterns_below(entry, patterns)
                if () in below and entry.is_file():
                    found.add(place / entry.name)
                if deeper := below - {()}:
                    inside = place / entry.name
                    if entry.is_dir() and len(inside.parts) - len(folder.parts) <= MOST_LEVELS_BELOW:
                        todo.append((inside, deeper))
    return sorted(found)


def _patterns_below(entry: os.DirEntry[str], patterns: frozenset[tuple[str, ...]]) -> frozenset[tuple[str, ...]]:
    """Return the rests of the globs that a file or folder matches; () means that a glob ends with this name."""
    left = {parts[1:] for parts in patterns if parts and parts[0] != "**" and fnmatchcase(entry.name, parts[0])}
    return frozenset(left | {parts for parts in patterns if parts[:1] == ("**",) and not entry.is_symlink()})


def free_mib(path: Path) -> int | None:
    """Return the free space on the file system of a path, in MiB; None if it is unknown."""
    try:
        return shutil.disk_usage(path).free // MIB
    except OSError:
        return None


def shared_memory_mib() -> tuple[int, int] | None:
    """Return the total and the free MiB of /dev/shm; None: this machine has no /dev/shm."""
    try:
        usage = shutil.disk_usage(SHARED_MEMORY)
    except OSError:
        return None
    return usage.total // MIB, usage.free // MIB


def is_out_of_space(error: BaseException) -> bool:
    """Return whether an error, or the error that caused it, reports a full disk or an exhausted quota."""
    full = errno.ENOSPC, errno.EDQUOT
    return any(isinstance(one, OSError) and one.errno in full for one in (error, error.__cause__))


def sweep(folder: Path, *, spares_living: bool = False) -> None:
    """Remove the temporary files (see `path_beside`) in a folder, as killed processes leave them; ignore errors.

    Args:
        folder: the folder; folders below it are not searched.
        spares_living: keep files of processes on other hosts, and of living processes on this host; else these are
            removed, too.
    """
    for aside in folder.glob(".*.[0-9]*"):
        if not (spares_living and _may_be_in_use(aside.name)):
            with contextlib.suppress(OSError):
                aside.unlink()


def _may_be_in_use(name: str) -> bool:
    """Return whether the process named in a temporary file's name may still be writing it."""
    rest, _, pid = name.rpartition(".")
    return not rest.endswith(f".{socket.gethostname()}") or not pid.isdecimal() or start_ticks(int(pid)) > 0


def abandoned_files(path: Path) -> list[Path]:
    """Return the temporary files of `path` (see `path_beside`) whose processes, on this host, have ended."""
    ours = path_beside(path).name.removesuffix(str(os.getpid()))
    return [left for left in path.parent.glob(f"{escape(ours)}[0-9]*") if not _may_be_in_use(left.name)]


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that a rename in it survives a power cut; does nothing where the file system cannot."""
    with contextlib.suppress(OSError), open_descriptor(folder, os.O_RDONLY) as descriptor:
        os.fsync(descriptor)
