"""How files are written and read: whole or absent, and read without trust.

Every reader here tolerates what a killed machine leaves behind: a missing file, a torn last line.
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
"""Of all records that are written: raised once a key means something else. Those of 0.2.0 name none."""
MIB = 1 << 20
PRIVATE = 0o600
"""Mode of files that hold environments: those may hold passwords."""
MOST_JSON_BYTES = 256 * MIB
"""Of a file that is read as JSON: a result of 10,000 photographs has 3 MiB. A larger one is no record."""
LONGEST_LINE_BYTES = 16 * MIB
"""Of a .jsonl file; the rest of a longer line is passed over."""
MOST_FILES = 200_000
"""Looked at below a folder that a program of others has filled."""
MOST_LEVELS_BELOW = 64
"""Of folders in each other: a program that leaves more has lost its way."""
LOCAL_DISKS = {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "reiserfs", "tmpfs", "xfs", "zfs"}
"""File systems of which this machine's kernel knows who locks what."""
LONGEST_NAME_BYTES, LONGEST_PART_BYTES = 1024, 255
"""Of a name from elsewhere, and of each part of it between two /."""
_NO_NAME = re.compile(r"[\x00\ud800-\udc7f\udd00-\udfff]")
"""What no file system takes: NUL, and halves of characters. Other control characters are allowed."""
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the file system itself; nothing of ours is written there


def write_whole(path: Path, write: Callable[[BinaryIO], object], mode: int = 0o666) -> None:
    """Let `write` fill a file beside `path`, then fsync and rename it: `path` is whole or as it was before.

    Args:
        path: of the file.
        write: fills it.
        mode: what the umask is taken from; it holds from the first byte on.
    """
    with aside(path) as prepared:
        prepared.unlink(missing_ok=True)  # of a killed process with our number, in a mode of its own
        with open(prepared, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())


def fault_of_name(name: str) -> str:
    """Return what is wrong with a file's name that came from elsewhere, with the name; empty: it stays in its folder.

    From elsewhere are the names in bundles, results, models, imports and folders that were handed over. A name that
    Windows would take for one outside is refused, too: a store or a disk may be shared with it.
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
"""Called with each path before it is opened; does nothing but in a reader, which tells its parent what it waits for."""


def open_regular(path: str | Path, most_bytes: int | None = None) -> BufferedReader:
    """Open a file for reading if it is a regular one; a pipe, a device or a folder is refused, never waited for.

    Args:
        path: of the file, also through links.
        most_bytes: a larger file is refused; None: any size.

    Raises:
        OSError: it cannot be opened, is no regular file (EINVAL), or is too large (EFBIG).
    """
    note_reading(str(path))
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe without a writer would wait for one
    except ValueError as error:  # a NUL, or half a character: no file has such a name
        raise OSError(errno.EINVAL, "no name of a file", str(path)) from error
    try:
        status = os.fstat(descriptor)
        if not S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "no regular file", str(path))
        if most_bytes is not None and status.st_size > most_bytes:
            raise OSError(errno.EFBIG, f"{status.st_size} bytes, {most_bytes} are read at most", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: str | Path, most_bytes: int) -> bytes:
    """Return what a regular file holds.

    Raises:
        OSError: see `open_regular`.
    """
    with open_regular(path, most_bytes) as file:
        return file.read(most_bytes)  # it may grow meanwhile


def is_on_local_disk(path: Path) -> bool:
    """Return whether a path is known to lie on a disk of this machine, not on one that machines share."""
    mounts = [line.split() for line in kernel_file("/proc/self/mountinfo").splitlines()]
    real, deepest, kind = f"{os.path.realpath(path)}/", -1, ""
    for fields in mounts:  # proc(5): …, the mount point with its blanks in octal, …, "-", type
        place = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), fields[4]).rstrip("/") + "/"
        if real.startswith(place) and len(place) >= deepest:
            deepest, kind = len(place), fields[fields.index("-") + 1]
    return kind in LOCAL_DISKS


def link_whole(source: Path, target: Path, *, within: Path, is_ours: bool = False) -> os.stat_result:
    """Make `target` the file `source`, whole, on the disk, at once; return what stands there then.

    It is a second name for the file behind `source` if that lies in `within` and has no other name, or is ours; else a
    copy, since another process may still write into it. A link at `target` is replaced, not followed.

    Raises:
        OSError: `source` is no file that can be read, or the target is not what was read; it is as it was before
            unless the disk itself has changed it.
    """
    real = source.resolve(strict=True)
    if not real.is_file():
        raise OSError(errno.EINVAL, "no regular file", str(source))
    size = real.stat().st_size
    is_there = target.exists() and target.samefile(real) and not target.is_symlink()  # it is linked once more
    is_ours = real.is_relative_to(within.resolve()) and (is_ours or real.stat().st_nlink == 1)
    if not is_there and not (is_ours and _link_over(real, target)):
        with open_regular(real) as file:
            write_whole(target, lambda copy: shutil.copyfileobj(file, copy, MIB))
    stat = target.lstat()
    if not S_ISREG(stat.st_mode) or stat.st_size != size:
        raise OSError(errno.EIO, f"not whole: {stat.st_size} of {size} bytes", str(target))
    return stat


def _link_over(source: Path, target: Path) -> bool:
    """Give a file a second name, once the disk has it; return whether that was possible."""
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
    """Give where `path` may be prepared: it gets its name if all goes well, and what was prepared vanishes if not."""
    prepared = path_beside(path)
    try:
        yield prepared
        prepared.replace(path)
    finally:
        with contextlib.suppress(OSError):
            prepared.unlink(missing_ok=True)
    sync_folder(path.parent)


def path_beside(path: Path) -> Path:
    """Return where this process, and no other, may prepare what becomes `path`; `sweep` knows such names."""
    return path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}")


def write_text(path: Path, text: str) -> None:
    """Write text as UTF-8, whole or not at all; of a name that is none, what can be written."""
    write_whole(path, lambda file: file.write(text.encode(errors="replace")))


def write_json(path: Path, record: Mapping[str, Any], mode: int = 0o666) -> None:
    """Write a record of ours with the format that it has, whole or not at all; see `write_object`."""
    write_object(path, {"format": FORMAT, **record}, mode)


def write_object(path: Path, found: Mapping[str, object], mode: int = 0o666) -> None:
    """Write one JSON object, whole or not at all; NaN and infinity are refused, since JSON has neither."""
    # piece by piece: the report of thousands of patches is larger as text than as what it says
    write_whole(path, lambda file: file.writelines(piece.encode() for piece in pieces(found)), mode)


def read_json(path: Path) -> Record | None:
    """Return the object in a JSON file; None if it is missing, no regular file, too large or no whole JSON object."""
    with contextlib.suppress(OSError, MemoryError):
        return object_in(read_regular(path, MOST_JSON_BYTES))
    return None


def object_in(text: str | bytes) -> Record | None:
    """Return the JSON object that a text is; None of anything else."""
    try:
        record = parse(text)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def read_record(path: Path) -> Record | None:
    """Return a record of ours as `read_json` does, without its format.

    Raises:
        LaterFormatError: a later version wrote it.
    """
    record = read_json(path)
    if record and isinstance(written := record.pop("format", 0), int) and written > FORMAT:
        raise LaterFormatError(
            f"{path}: written by a later version of splatbatch (format {written}; this version reads {FORMAT})",
            "Install that version, or a newer one: pip install --upgrade splatbatch",
        )
    return record


@contextlib.contextmanager
def open_descriptor(path: Path, flags: int, mode: int = 0o644) -> Iterator[int]:
    """Give the descriptor of a file that is opened by open(2), and close it."""
    descriptor = os.open(path, flags, mode)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def append_line(path: Path, record: Mapping[str, Any], *, durable: bool = True) -> None:
    """Append one JSON line by a single write; `durable` waits until the disk has it.

    A torn last line (a machine that died while writing) is closed first, so that it spoils nothing but itself.
    A line that does not fit on a full disk is taken back and is an OSError.
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
    """Yield the lines of a .jsonl file from a byte on, one by one, however long it is; none if it cannot be read."""
    with contextlib.suppress(OSError), open_regular(path) as file:
        file.seek(start)
        yield from iter(lambda: file.readline(LONGEST_LINE_BYTES), b"")


def read_lines(path: Path) -> Iterator[Record]:
    """Yield the JSON objects of a .jsonl file in order; torn and foreign lines are skipped."""
    return (record for record in map(object_in, raw_lines(path)) if record is not None)


def last_line(path: Path) -> Record | None:
    """Return the last whole JSON object of a .jsonl file, reading only its end."""
    found = map(object_in, reversed(read_tail(path).splitlines()))
    return next((record for record in found if record is not None), None)


def read_tail(path: Path, tail_bytes: int = 65536) -> str:
    """Return the last bytes of a text file, undecodable ones replaced; empty if there is none."""
    try:
        with open_regular(path) as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - tail_bytes))
            return file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""


def names_in(folder: str) -> list[str]:
    """Return the names of what lies in a folder; none if there is none."""
    try:
        return os.listdir(folder)  # noqa: PTH208 - names alone are wanted, of thousands of folders
    except OSError:
        return []


class TooManyFiles(Exception):
    """There are more files below a folder than are looked through."""


def find_files(folder: Path, globs: Iterable[str], most: int) -> list[Path]:
    """Return the files below a folder that globs name, sorted; no deeper than `MOST_LEVELS_BELOW` folders.

    As `Path.glob` does, which cannot be bounded: `**` stands for folders that are no links, any number of them.

    Raises:
        TooManyFiles: more than `most` names had to be looked at.
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
    """Return what is left of some globs behind the name of a file or folder; of one that ends here, nothing: ()."""
    left = {parts[1:] for parts in patterns if parts and parts[0] != "**" and fnmatchcase(entry.name, parts[0])}
    return frozenset(left | {parts for parts in patterns if parts[:1] == ("**",) and not entry.is_symlink()})


def free_mib(path: Path) -> int | None:
    """Return the room on the file system of a path, in MiB; None if it cannot be told."""
    try:
        return shutil.disk_usage(path).free // MIB
    except OSError:
        return None


def is_out_of_space(error: BaseException) -> bool:
    """Return whether a full disk or an exhausted quota is what went wrong, or what led to it."""
    full = errno.ENOSPC, errno.EDQUOT
    return any(isinstance(one, OSError) and one.errno in full for one in (error, error.__cause__))


def sweep(folder: Path, *, spares_living: bool = False) -> None:
    """Remove what writers that were killed have left beside their files.

    Args:
        folder: where.
        spares_living: leave what processes of other hosts, or living ones of this host, may be writing.
    """
    for aside in folder.glob(".*.[0-9]*"):
        if not (spares_living and _may_be_in_use(aside.name)):
            with contextlib.suppress(OSError):
                aside.unlink()


def _may_be_in_use(name: str) -> bool:
    """Return whether the process that a name of `path_beside` tells of may still write there."""
    rest, _, pid = name.rpartition(".")
    return not rest.endswith(f".{socket.gethostname()}") or not pid.isdecimal() or start_ticks(int(pid)) > 0


def abandoned_files(path: Path) -> list[Path]:
    """Return what processes of this host that are no more were preparing as `path`: see `path_beside`."""
    ours = path_beside(path).name.removesuffix(str(os.getpid()))
    return [left for left in path.parent.glob(f"{escape(ours)}[0-9]*") if not _may_be_in_use(left.name)]


def sync_folder(folder: Path) -> None:
    """Make a rename durable; file systems that cannot sync a folder are left alone."""
    with contextlib.suppress(OSError), open_descriptor(folder, os.O_RDONLY) as descriptor:
        os.fsync(descriptor)
