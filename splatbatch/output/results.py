"""Accepted splats: accept a splat, check that its file is still the same, restore it, remove superseded ones."""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

from splatbatch import __version__
from splatbatch.files import MOST_FILES, TooManyFiles, find_files, link_whole, sync_folder, write_json
from splatbatch.hashing import (
    FileFact,
    FileFacts,
    Verdict,
    compare,
    difference,
    file_fact,
    sha256_of,
    short_hash,
    with_contents,
)
from splatbatch.outcome import Trained
from splatbatch.output import retention
from splatbatch.output.attempt_folder import Attempt, AttemptFolder
from splatbatch.output.folders import SPLAT, PatchFolder
from splatbatch.output.generations import create_once
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.attempt import AttemptFacts, JobSpec
from splatbatch.output.records.fingerprint import Fingerprint
from splatbatch.output.records.result import Result, SplatFacts, UsedPhotographs

Depth = Literal["time", "content", "every byte"]
"""How thoroughly a file is compared with its record.

time: only size and time. content: also the hash, where only the time has changed. every byte: always the hash.
"""

CHANGED = "changed on disk"


def keep(attempt: Attempt, trained: Trained, facts: AttemptFacts) -> Result:
    """Link the splat of an attempt as splat.ply in the attempt's folder, write its manifest, and return the manifest.

    Args:
        attempt: the attempt.
        trained: the splat that the attempt left, and warnings.
        facts: duration, last step and memory of the attempt.

    Raises:
        OSError: the splat cannot be linked or read, or the manifest cannot be written.
    """
    splat, told, names = trained.splat, attempt.folder.read_settings(), attempt.job.depends_on.photographs
    if splat.path != attempt.folder.splat:
        link_whole(splat.path, attempt.folder.splat, within=attempt.folder.path)
    used = UsedPhotographs.of(names, frozenset(told.holdout), is_assumed=bool(told.argv))
    record = {
        **facts.to_record(),
        **attempt.job.depends_on.to_record(),
        "patch": attempt.patch,
        "attempt": attempt.folder.path.name,
        "attempts": attempt.folder.number,
        "changes": attempt.job.changes,
        "num_gaussians": splat.num_gaussians,
        "sh_degree": splat.sh_degree,
        "step": splat.step,
        "bytes": splat.path.stat().st_size,
        "splat": splat_facts(splat.path, splat.num_gaussians).to_record(),
        "metrics": splat.metrics,
        **({"photographs": used.to_record()} if names else {}),
        "warnings": list(trained.warnings),
        "version": __version__,
        "host": attempt.folder.read_start().host,
        "worker": attempt.job.claim.worker,
    }
    write_json(attempt.folder.result, record)
    return Result.from_record(record)


def accept(folder: PatchFolder, attempt: AttemptFolder, result: Result, follows: int | None = None) -> bool:
    """Make the splat of an attempt the accepted one of its patch; return whether it is.

    Accepted splats have numbered records (accepted/NUMBER.json). Of several splats that try to become the next record,
    only the first is accepted. Before the record is made nothing has changed; after it any process can make splat.ply
    and result.json from it.

    Args:
        folder: folder of the patch.
        attempt: attempt that trained the splat; the splat also stays in its folder.
        result: manifest of the splat, as it lies in the attempt's folder.
        follows: number of the newest record when it was decided to train; None: the newest one now.

    Raises:
        OSError: the files cannot be written.
        LaterFormatError: a later version wrote a record of the patch.
    """
    follows = folder.newest_accepted() if follows is None else follows
    if not _record_acceptance(folder, attempt.result, result, follows + 1):
        return False
    put_in_place(folder)
    return True


def pin_to_inputs(folder: PatchFolder, result: Result, now: Fingerprint, follows: int | None = None) -> None:
    """Accept a splat for the settings and inputs of now, although the splat was trained from others.

    Used where `accept` or a retry chose an earlier splat, which then counts as up to date. If the splat in the
    attempt's folder was removed, only result.json is written. Else nothing is done if another splat was accepted
    meanwhile.

    Args:
        folder: folder of the patch.
        result: manifest of the splat.
        now: settings and inputs of now.
        follows: number of the newest accepted record when the splat was chosen; None: the newest one now.

    Raises:
        OSError: the files cannot be written.
        LaterFormatError: a later version wrote a record of the patch.
    """
    then = result.trained_from.files
    differ = difference(then, now.files, lambda _: "", FileFacts(reads=False))
    now = replace(now, files=with_contents(now.files, then, differ))
    pinned, number = result.with_fields(pinned=now), 1 + (folder.newest_accepted() if follows is None else follows)
    if not (folder.path / result.attempt / SPLAT).exists():  # its attempt was removed
        write_json(folder.result, pinned.to_record())
        return
    aside = folder.accepted(number).with_name(f".{number}.{uuid.uuid4().hex}")
    aside.parent.mkdir(exist_ok=True)
    try:
        write_json(aside, pinned.to_record())
        if _record_acceptance(folder, aside, pinned, number):
            put_in_place(folder)
    finally:
        aside.unlink(missing_ok=True)


def _record_acceptance(folder: PatchFolder, manifest: Path, result: Result, number: int) -> bool:
    """Link a manifest as an accepted record; return whether the record of this number is of our splat."""
    place = folder.accepted(number)
    place.parent.mkdir(exist_ok=True)
    if create_once(manifest, place):
        sync_folder(place.parent)
        return True
    there = Result.read(place) or Result()  # the same splat, if another process accepted it for a dead worker
    return (there.attempt, there.sha256) == (result.attempt, result.sha256)


def put_in_place(folder: PatchFolder) -> None:
    """Make splat.ply and result.json from the newest accepted record (accepted/NUMBER.json).

    Nothing is done if there is none, or it cannot be read.

    At every moment result.json, if it exists, belongs to the splat.ply beside it. After a kill between any two steps
    the record is newer than these files, and the next process that finds it so continues. A process that slept
    meanwhile continues with the newest record, too.

    Raises:
        OSError: the splat of the attempt is missing, or the files cannot be written.
        LaterFormatError: a later version wrote a record of the patch.
    """
    while (number := folder.newest_accepted()) and (result := Result.read(folder.accepted(number))):
        place_product(folder, result.with_fields(accepted=number))
        if folder.newest_accepted() == number:
            return


def place_product(folder: PatchFolder, result: Result) -> None:
    """Link the splat of an attempt as splat.ply into the patch's folder, then write its manifest there as result.json.

    Args:
        folder: folder of the patch.
        result: the manifest, which names the attempt.

    Raises:
        OSError: the splat of the attempt is missing, or the files cannot be written.
    """
    attempt = folder.path / result.attempt
    folder.result.unlink(missing_ok=True)
    folder.damage.unlink(missing_ok=True)
    link_whole(attempt / SPLAT, folder.splat, within=attempt, is_ours=True)
    # a copy, where links are not possible, has a time of its own
    splat = replace(result.splat, mtime_ns=file_fact(folder.splat).mtime_ns)
    write_json(folder.result, result.with_fields(splat=splat).to_record())


def splat_facts(path: Path, num_gaussians: int) -> SplatFacts:
    """Return the hash, size, time and number of Gaussians of a splat file, which identify it.

    If the file cannot be read, the hash is ""; if it is missing, the size is -1 and the time 0, too.
    """
    fact = file_fact(path)
    return SplatFacts(sha256_of(path), fact.num_bytes, fact.mtime_ns, num_gaussians)


@contextlib.contextmanager
def recording_damage(output: OutputFolder) -> Iterator[None]:
    """Record damage to an accepted splat if the block raises `ChangedOnDisk`, and raise that error again.

    The record, damage.json, makes the patch damaged on every machine, even if size and time of the file are as they
    were. It is only written if the file, read again, has another hash than its manifest, or cannot be read. The
    record counts until the file changes or another splat is accepted.

    Raises:
        ChangedOnDisk: raised by the block.
        LaterFormatError: a later version wrote a record of the patch.
    """
    from splatbatch.splats.export import ChangedOnDisk  # which loads numpy

    try:
        yield
    except ChangedOnDisk as found:
        folder = output.patch(found.name)
        result = folder.read_result() or Result()
        path = folder.splat_of(result)
        fact = file_fact(path)
        if result.sha256 and fact.num_bytes >= 0 and sha256_of(path) != result.sha256:
            with contextlib.suppress(OSError):  # the damage is told in any case
                folder.damage.parent.mkdir(exist_ok=True)
                write_json(folder.damage, SplatFacts(result.sha256, fact.num_bytes, fact.mtime_ns).to_record())
        raise


def _is_known_for_damaged(folder: PatchFolder, result: Result, now: FileFact) -> bool:
    found = SplatFacts.read(folder.damage) or SplatFacts()
    return bool(found.sha256) and found.sha256 == result.sha256 and found.fact[:2] == now[:2]


def compare_splat(folder: PatchFolder, result: Result, facts: FileFacts, path: Path | None = None) -> Verdict:
    """Compare splat.ply, or another file of the splat, with its manifest; return what is known of it.

    "same": size and time, or the content, are those of the manifest. "changed": they are not, or the file is missing.
    "unknown": only the time differs, and the manifest has no hash. "unread": the file would have to be read, which
    `facts` does not allow. Where `facts` may read, a file with another cached hash than the manifest's is "changed".
    A file in the state that damage.json records is "same" only if it is read and has the recorded hash.

    Args:
        folder: folder of the patch.
        result: the manifest.
        facts: known hashes of files, and whether more files may be read.
        path: the file; None: the one that the manifest is about.

    Raises:
        LaterFormatError: a later version wrote damage.json.
    """
    path = path or folder.splat_of(result)
    if not _is_known_for_damaged(folder, result, facts.of(str(path))):
        verdict = compare(path, result.splat.fact, facts)
        known = facts.known(str(path)) if verdict == "same" and facts.reads else ""
        return "changed" if known not in ("", result.sha256) else verdict  # as `status --verify` has read it
    content = facts.sha256(str(path)) if facts.reads else ""  # it may have come back, its time as it was
    return "same" if content == result.sha256 else "changed"


def has_moved(folder: PatchFolder, result: Result, facts: FileFacts) -> bool:
    """Return whether size or time of splat.ply differ from its manifest, or damage.json records this state of the file.

    Args:
        folder: folder of the patch.
        result: the manifest.
        facts: size and time of files; nothing is read.

    Raises:
        LaterFormatError: a later version wrote damage.json.
    """
    now = facts.of(str(folder.splat_of(result)))
    return now[:2] != result.splat.fact[:2] or _is_known_for_damaged(folder, result, now)


def why_not_the_splat(folder: PatchFolder, result: Result, depth: Depth, facts: FileFacts | None = None) -> str:
    """Return why splat.ply is not the accepted file: "missing" or `CHANGED`; "" if no check of this depth fails.

    Where the content may not be read, a file of the same size with another time passes, if its hash was recorded.

    Args:
        folder: folder of the patch.
        result: manifest of the accepted splat.
        depth: how thoroughly the file is compared.
        facts: known hashes of files, and whether more may be read; None: none are known, and `depth` decides.

    Raises:
        LaterFormatError: a later version wrote damage.json.
    """
    path, facts = folder.splat_of(result), facts or FileFacts(reads=depth != "time")
    if facts.of(str(path)).num_bytes < 0:
        return "missing"
    if depth == "every byte":
        return "" if facts.read_anew(str(path)) == result.sha256 else CHANGED
    return CHANGED if compare_splat(folder, result, facts) in ("changed", "unknown") else ""


def splats_in(
    folder: PatchFolder, product: Result | None, facts: FileFacts, new: str = ""
) -> tuple[list[Result], list[Result]]:
    """Return the manifests of all splats of a patch on disk: first of the whole ones, then of the damaged ones.

    Args:
        folder: folder of the patch.
        product: manifest of the accepted splat; None: there is none.
        facts: known hashes of files, and whether more files may be read.
        new: name of the attempt to leave out, whose manifest was just written; "": leave none out.

    Raises:
        LaterFormatError: a later version wrote damage.json.
    """
    whole, damaged = {}, list[Result]()
    for attempt in folder.attempts():
        left = attempt.read_result() if attempt.path.name != new else None
        if left is None or left.attempt != attempt.path.name or not attempt.splat.exists():
            continue
        if compare_splat(folder, left, facts, attempt.splat) == "same":
            whole[left.attempt] = (
                product if product and product.attempt == left.attempt and product.sha256 == left.sha256 else left
            )
        else:
            damaged.append(left)
    if product and not why_not_the_splat(folder, product, "content", facts):
        whole[product.attempt] = product
    return list(whole.values()), damaged


def restore(folder: PatchFolder) -> str:
    """Restore the accepted splat or its manifest, if missing or damaged, from its attempt, else by the next best splat.

    Returns:
        Name of the attempt whose splat is now accepted; "" if nothing had to be restored, or no splat fits.

    Raises:
        OSError: the files cannot be written.
        LaterFormatError: a later version wrote a record of the patch.
    """
    result = folder.read_result()
    if result is not None and not why_not_the_splat(folder, result, "content"):
        if not result.is_ahead:
            return ""
        put_in_place(folder)
        return result.attempt
    for attempt in reversed(folder.attempts()):
        left = attempt.read_result()
        if left is None or (result is not None and left.attempt != result.attempt):
            continue
        if result is None and sha256_of(folder.splat) != left.sha256:
            continue  # only the accepted splat may be restored; the hash of splat.ply says which one that was
        if left.sha256 and sha256_of(attempt.splat) == left.sha256:
            place_product(folder, result or left)
            return attempt.path.name
    best = retention.choose_splats(splats_in(folder, result, FileFacts())[0], result).product
    if best is None or sha256_of(folder.path / best.attempt / SPLAT) != best.sha256:
        return ""
    return best.attempt if accept(folder, AttemptFolder(folder.path / best.attempt), best) else ""


def forget_superseded(folder: PatchFolder, *kept: str) -> None:
    """Remove the splats of attempts that are not named in `kept` and that `retention.choose_splats` does not keep.

    Never removed are: the splat accepted by now, a splat that may still become the next accepted one, and a splat that
    was not judged yet. Of an attempt without `claim.follows` in job.json, as by an earlier version, only the first
    holds.

    Raises:
        OSError: a splat cannot be removed.
        LaterFormatError: a later version wrote a record of the patch.
    """
    newest = folder.newest_accepted()
    product = Result.read(folder.accepted(newest)) or Result()
    spared, left = {*kept, product.attempt}, list[AttemptFolder]()
    for attempt in folder.attempts():
        if attempt.path.name in spared or not attempt.splat.exists():
            continue
        follows = (attempt.read_job() or JobSpec()).claim.follows  # None: an earlier version wrote it
        if follows is None or (follows < newest and attempt.result.exists()):
            left.append(attempt)
        else:
            spared.add(attempt.path.name)
    if not left:
        return
    whole, damaged = splats_in(folder, folder.read_result(), FileFacts())
    found = retention.choose_splats(whole, product, damaged=damaged, spared=spared).kept
    for attempt in left:
        if attempt.path.name not in found:
            remove(names_of_splat(attempt))


def names_of_splat(attempt: AttemptFolder) -> Iterator[Path]:
    """Yield every path of an attempt's splat: splat.ply, and its hard links in `output` of an external trainer.

    Yields nothing if the attempt has no splat. Folders with more than `MOST_FILES` files are not searched for links.

    Raises:
        OSError: the splat was removed meanwhile.
    """
    if not attempt.splat.exists():
        return
    number = attempt.splat.stat().st_ino
    yield attempt.splat
    with contextlib.suppress(OSError, TooManyFiles):
        yield from [path for path in find_files(attempt.output, ["**/*"], MOST_FILES) if path.stat().st_ino == number]


def remove(paths: Iterable[Path]) -> None:
    """Remove files and folders; a missing file, and errors within a folder, are ignored.

    Raises:
        OSError: a file cannot be removed.
    """
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def batch_name(output: OutputFolder) -> str:
    """Return a hash of an output folder's path (16 hexadecimal digits), with which the keys of its attempts begin."""
    return short_hash(str(output.path.resolve()))
