"""The folder of a split: prepared aside, and put in place whole; what an interrupted one left is finished or gone."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from splatbatch.errors import OutputError, SceneError
from splatbatch.files import MOST_JSON_BYTES, path_beside, read_regular, sync_folder, write_text
from splatbatch.plain_text import counted
from splatbatch.processes import abandoned
from splatbatch.scene.colmap.copies import Subset, hash_of_files
from splatbatch.scene.colmap.sightings import Sightings
from splatbatch.scene.partition.place import PARTITION, PATCH, SPLIT_READY, is_of_split
from splatbatch.scene.partition.record import Partition, patch_record, read_partition, relative
from splatbatch.scene.patches import model_folder
from splatbatch.scene.photos.folders import DIVISORS, is_folder

SPARSE = "sparse/0"
PICTURES = ("partition.svg", "partition.png")


@dataclass(frozen=True)
class Shared:
    """Folders of the scene by the name of the link that each patch has."""

    folders: dict[str, Path] = field(default_factory=dict)

    def links(self, patch: Path) -> dict[str, str]:
        """Return where the links in a patch's folder point: relative, unless nothing but the root is in common."""
        base = Path(os.path.realpath(patch.parent)) / patch.name
        return {
            name: relative(Path(os.path.realpath(folder.parent)) / folder.name, base)
            for name, folder in self.folders.items()
        }


def find_source(given: Path) -> Path:
    """Return the folder of the model: the given one, or sparse/0 below it."""
    has_model = any((given / f"cameras.{suffix}").exists() for suffix in ("bin", "txt"))
    return given if has_model else model_folder(given) or given


def find_shared(source: Path, images: Path | None) -> Shared:
    """Return the folders that patches share; photographs are looked for beside the model where none are named.

    Raises:
        SceneError: there is no such folder.
    """
    above = source.absolute()
    beside = next((each / "images" for each in above.parents[:2] if is_folder(each / "images")), None)
    folder = images or beside
    if folder is None or not is_folder(folder):
        raise SceneError(
            f"--images {folder or ''}: no such folder", "Name the folder of the photographs: --images DIR."
        )
    others = {f"images_{divisor}": folder.with_name(f"{folder.name}_{divisor}") for divisor in DIVISORS.values()}
    others["masks"] = folder.with_name("masks")
    there = {name: one for name, one in others.items() if name != "images_1" and is_folder(one)}
    return Shared({"images": folder, **there})


def missing_photographs(shared: Shared, sightings: Sightings) -> str:
    """Return, in words, how many photographs lie nowhere; empty if all are there.

    Raises:
        SceneError: none is there.
    """
    folder, names = shared.folders["images"], [image.name for image in sightings.images]
    missing = [name for name in names if not (folder / name).exists()]
    if len(missing) == len(names):
        raise SceneError(
            f"--images {folder}: none of the model's {counted(len(names), 'photograph')} lies there, as {names[0]}",
            "Name the folder that the image names of the model are relative to.",
        )
    return f"{counted(len(missing), 'photograph')} missing in {folder}: {', '.join(missing[:5])}" if missing else ""


@dataclass(frozen=True, eq=False)
class Content:
    """What the folder of a patch holds."""

    subset: Subset
    record: str
    """patch.json."""
    links: Mapping[str, str]

    def write(self, folder: Path) -> str:
        """Write all of it into a new folder; return its hash."""
        (folder / SPARSE).mkdir(parents=True)
        found = self.subset.write(folder / SPARSE)
        write_text(folder / PATCH, self.record)
        for name, target in self.links.items():
            (folder / name).symlink_to(target, target_is_directory=True)
        return _with(found, self.record)

    def hash(self) -> str:
        """Return the hash of what would be written."""
        return _with(self.subset.hash(), self.record)

    def is_in(self, folder: Path, cut_from: str) -> bool:
        """Return whether a folder holds just this, and every byte is as it was written."""
        names = [name for name, _ in self.subset.files()]
        try:
            there = sorted(os.listdir(folder / SPARSE))  # noqa: PTH208 - names alone
            links = {name: os.readlink(folder / name) for name in self.links}  # noqa: PTH115 - as it is written
            record = read_regular(folder / PATCH, MOST_JSON_BYTES).decode()
        except (OSError, UnicodeDecodeError):
            return False
        found = hash_of_files(folder / SPARSE, names) or ""
        return there == sorted(names) and links == self.links and _with(found, record) == cut_from


def content_of(partition: Partition, name: str, subset: Subset, shared: Shared) -> Content:
    """Return what the folder of a patch is to hold."""
    chosen = {image.name for image, is_in in zip(subset.sightings.images, subset.photos, strict=True) if is_in}
    record = json.dumps(patch_record(partition, name, chosen), indent=1) + "\n"
    return Content(subset, record, shared.links(partition.path.parent / name))


def check_out(out: Path) -> None:
    """See that a split may go into a folder: there is none, it is empty, or a split of ours is there.

    Raises:
        SceneError: something else lies there.
    """
    if out.is_dir():
        names = sorted(os.listdir(out))  # noqa: PTH208 - names alone
        if names and not is_of_split(out / PARTITION) and not (out / SPLIT_READY).is_dir():
            lies = ", ".join(names[:5])
            raise SceneError(f"--out {out}: not empty, and no split of ours ({lies})", "Name a new folder.")
    elif out.exists() or out.is_symlink():
        raise SceneError(f"--out {out}: not a folder", "Name a new folder.")


@contextlib.contextmanager
def prepared(out: Path) -> Iterator[Path]:
    """Give a folder to prepare the patches of `out` in; they get their places if all goes well, and vanish if not.

    Raises:
        OutputError: another split of the folder is being put in place.
    """
    has_split = is_of_split(out / PARTITION)
    place = out / "split" if has_split else out
    aside = path_beside(place)
    for left in (aside, *abandoned(place)):
        shutil.rmtree(left, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        yield aside
        if has_split:
            try:
                aside.rename(out / SPLIT_READY)
            except OSError as error:
                raise OutputError(f"{out}: another split is being put in place ({error.strerror})") from error
            finish(out)
        else:
            try:
                aside.rename(out)
            except OSError as error:
                raise OutputError(f"--out {out}: cannot be put in place ({error.strerror})", "Split again.") from error
            sync_folder(out.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def finish(out: Path) -> bool:
    """Put in place what a split had ready, if there is such a thing; return whether there was.

    May be interrupted and called again: what is in place is not ready any more, and partition.json comes last.
    """
    ready = out / SPLIT_READY
    if not ready.is_dir():
        return False
    if (ready / PARTITION).exists():
        now = read_partition(ready / PARTITION)
        names = {core.name for core in now.cores}
        before = {core.name for core in read_partition(out / PARTITION).cores} if (out / PARTITION).exists() else set()
        for name in sorted(names | before):
            _put(ready, out, name, is_gone=name not in names)
        for name in (*PICTURES, PARTITION):
            if (ready / name).exists():
                (ready / name).replace(out / name)
        sync_folder(out)
    shutil.rmtree(ready)
    return True


def _put(ready: Path, out: Path, name: str, *, is_gone: bool) -> None:
    """Put one patch in place of an older one; what somebody else has put beside its files stays with it."""
    new, old = ready / name, out / name
    if not new.is_dir() and not is_gone:
        return  # it stays as it is, or is in place already
    if old.is_dir():
        away = ready / f".{name}"
        if is_gone:
            _remove_ours(old)
        else:
            for entry in os.listdir(old):  # noqa: PTH208 - names alone
                if not _is_ours(old / entry) and not (new / entry).exists():
                    (old / entry).rename(new / entry)
            old.rename(away)
    if new.is_dir():
        new.rename(old)


def _remove_ours(folder: Path) -> None:
    """Remove a patch that is no more, and its folder unless somebody else's files are in it."""
    for entry in os.listdir(folder):  # noqa: PTH208 - names alone
        path = folder / entry
        if _is_ours(path) and path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif _is_ours(path):
            path.unlink()
    with contextlib.suppress(OSError):
        folder.rmdir()


def _is_ours(path: Path) -> bool:
    return path.name in ("sparse", PATCH) or (path.is_symlink() and path.name.startswith(("images", "masks")))


def _with(model: str, record: str) -> str:
    return hashlib.sha256(f"{model}\0{record}".encode()).hexdigest()
