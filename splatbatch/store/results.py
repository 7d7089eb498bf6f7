"""Accepted products: how a splat becomes one, whether it is still the file that was accepted, and what it replaced."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from splatbatch import __version__
from splatbatch.files import Record, link_whole, read_json, write_json
from splatbatch.outcome import Rejected, Trained
from splatbatch.store import retention
from splatbatch.store.attempt_folder import Attempt, AttemptFolder
from splatbatch.store.hashes import file_fact, sha256_of, short_hash
from splatbatch.store.layout import OutputFolder, PatchFolder

Depth = Literal["time", "content", "every byte"]
"""How closely a product is looked at: its size and time; its content where these have moved; its content always."""

CHANGED = "changed on disk"


def manifest(attempt: Attempt, trained: Trained, facts: Mapping[str, Any]) -> Record:
    """Return what result.json says of a splat that an attempt has left."""
    splat = trained.splat
    return {
        **facts,
        **attempt.depends_on,
        "patch": attempt.patch,
        "attempt": attempt.folder.path.name,
        "attempts": attempt.folder.number,
        "changes": attempt.changes,
        "num_gaussians": splat.num_gaussians,
        "sh_degree": splat.sh_degree,
        "step": splat.step,
        "bytes": splat.path.stat().st_size,
        "splat": splat_record(splat.path, splat.num_gaussians),
        "metrics": splat.metrics,
        "warnings": list(trained.warnings),
        "version": __version__,
    }


def keep(attempt: Attempt, trained: Trained, facts: Mapping[str, Any]) -> Record:
    """Give the splat of an attempt its name in the attempt's folder and a manifest beside it; return the manifest."""
    if trained.splat.path != attempt.folder.splat:
        link_whole(trained.splat.path, attempt.folder.splat, within=attempt.folder.path)
    record = manifest(attempt, trained, facts)
    write_json(attempt.folder.result, record)
    return record


def accept(folder: PatchFolder, attempt: AttemptFolder, record: Mapping[str, Any]) -> None:
    """Make the splat of an attempt the patch's product; the attempt keeps its own name of it.

    At every moment result.json, if it is there, belongs to the splat.ply beside it: a kill between any two steps
    leaves a finished attempt that the next run accepts again.
    """
    folder.result.unlink(missing_ok=True)
    link_whole(attempt.splat, folder.splat, within=attempt.path, is_ours=True)
    # a copy, where links are not possible, has a time of its own
    splat = {**record["splat"], "mtime_ns": file_fact(folder.splat).mtime_ns}
    write_json(folder.result, {**record, "splat": splat})


def pin(folder: PatchFolder, result: Record, now: Mapping[str, Any]) -> None:
    """Hold an accepted splat against other settings and inputs than it was trained from: somebody chose it for them."""
    write_json(folder.result, {**result, "pinned": dict(now)})


def splat_record(path: Path, num_gaussians: int) -> Record:
    """Return what tells a splat file from any other."""
    fact = file_fact(path)
    return {
        "sha256": sha256_of(path),
        "bytes": fact.num_bytes,
        "mtime_ns": fact.mtime_ns,
        "num_gaussians": num_gaussians,
    }


def why_not_the_splat(folder: PatchFolder, result: Record, depth: Depth) -> str:
    """Say why splat.ply is not what result.json speaks of; empty if it is, as far as this depth can tell."""
    fact = file_fact(folder.splat)
    if fact.num_bytes < 0:
        return "missing"
    if not isinstance(written := result.get("splat"), dict):  # by 0.1.0
        return _why_unlike_of_old(folder, result, fact.num_bytes, depth)
    if fact[:2] == (written.get("bytes"), written.get("mtime_ns")) and depth != "every byte":
        return ""
    if depth == "time":
        return CHANGED
    return "" if sha256_of(folder.splat) == written.get("sha256") else CHANGED


def _why_unlike_of_old(folder: PatchFolder, result: Record, num_bytes: int, depth: Depth) -> str:
    if depth == "time":
        expected = result.get("bytes")
        return "" if expected in (None, num_bytes) else f"cut: {num_bytes} of {expected} bytes"
    from splatbatch.splats import check_splat  # which loads numpy: `status` does without

    splat = check_splat(folder.splat)
    if isinstance(splat, Rejected):
        return splat.reason
    return "" if result.get("num_gaussians") in (None, splat.num_gaussians) else CHANGED


def restore(folder: PatchFolder) -> str:
    """Mend a product whose splat or manifest is gone or was replaced, from the attempt that made it.

    Returns:
        The name of the attempt; empty if nothing had to be mended, or nothing fits.
    """
    result = read_json(folder.result)
    if result is not None and (
        not isinstance(result.get("splat"), dict) or not why_not_the_splat(folder, result, "content")
    ):
        return ""
    for attempt in reversed(folder.attempts()):
        record = read_json(attempt.result)
        if record is None or (result is not None and record.get("attempt") != result.get("attempt")):
            continue
        if result is None and sha256_of(folder.splat) != _sha256(record):
            continue  # only what was accepted comes back by itself, and the splat says which that was
        if _sha256(record) and sha256_of(attempt.splat) == _sha256(record):
            accept(folder, attempt, result or record)
            return attempt.path.name
    return ""


def _sha256(record: Record) -> str:
    written = record.get("splat")
    return str(written.get("sha256") or "") if isinstance(written, dict) else ""


def forget_superseded(folder: PatchFolder, *kept: str) -> None:
    """Remove the splats of attempts that are not named: neither accepted, nor before, nor the latest."""
    for attempt in folder.attempts():
        if attempt.path.name not in kept and attempt.splat.exists():
            retention.remove(retention.splat_files(attempt))


def batch_name(output: OutputFolder) -> str:
    """Return a name for everything this output folder starts: stable, and unlike that of any other folder."""
    return short_hash(str(output.path.resolve()))
