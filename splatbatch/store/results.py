"""Accepted products: how a splat becomes one, whether it is still the file that was accepted, and what it replaced."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

from splatbatch import __version__
from splatbatch.files import link_whole, write_json
from splatbatch.outcome import Rejected, Trained
from splatbatch.store import retention
from splatbatch.store.attempt_folder import Attempt, AttemptFolder
from splatbatch.store.hashes import file_fact, sha256_of, short_hash
from splatbatch.store.layout import OutputFolder, PatchFolder
from splatbatch.store.records.attempt import AttemptFacts
from splatbatch.store.records.fingerprint import Fingerprint
from splatbatch.store.records.result import Result, SplatFacts

Depth = Literal["time", "content", "every byte"]
"""How closely a product is looked at: its size and time; its content where these have moved; its content always."""

CHANGED = "changed on disk"


def manifest(attempt: Attempt, trained: Trained, facts: AttemptFacts) -> Result:
    """Return what result.json says of a splat that an attempt has left."""
    splat = trained.splat
    record = {
        **facts.to_record(),
        **attempt.depends_on.to_record(),
        "patch": attempt.patch,
        "attempt": attempt.folder.path.name,
        "attempts": attempt.folder.number,
        "changes": attempt.changes,
        "num_gaussians": splat.num_gaussians,
        "sh_degree": splat.sh_degree,
        "step": splat.step,
        "bytes": splat.path.stat().st_size,
        "splat": splat_facts(splat.path, splat.num_gaussians).to_record(),
        "metrics": splat.metrics,
        "warnings": list(trained.warnings),
        "version": __version__,
    }
    return Result.from_record(record)


def keep(attempt: Attempt, trained: Trained, facts: AttemptFacts) -> Result:
    """Give the splat of an attempt its name in the attempt's folder and a manifest beside it; return the manifest."""
    if trained.splat.path != attempt.folder.splat:
        link_whole(trained.splat.path, attempt.folder.splat, within=attempt.folder.path)
    result = manifest(attempt, trained, facts)
    write_json(attempt.folder.result, result.to_record())
    return result


def accept(folder: PatchFolder, attempt: AttemptFolder, result: Result) -> None:
    """Make the splat of an attempt the patch's product; the attempt keeps its own name of it.

    At every moment result.json, if it is there, belongs to the splat.ply beside it: a kill between any two steps
    leaves a finished attempt that the next run accepts again.
    """
    folder.result.unlink(missing_ok=True)
    link_whole(attempt.splat, folder.splat, within=attempt.path, is_ours=True)
    # a copy, where links are not possible, has a time of its own
    splat = replace(result.splat or SplatFacts(), mtime_ns=file_fact(folder.splat).mtime_ns)
    write_json(folder.result, result.but(splat=splat).to_record())


def pin(folder: PatchFolder, result: Result, now: Fingerprint) -> None:
    """Hold an accepted splat against other settings and inputs than it was trained from: somebody chose it for them."""
    write_json(folder.result, result.but(pinned=now).to_record())


def splat_facts(path: Path, num_gaussians: int) -> SplatFacts:
    """Return what tells a splat file from any other."""
    fact = file_fact(path)
    return SplatFacts(sha256_of(path), fact.num_bytes, fact.mtime_ns, num_gaussians)


def why_not_the_splat(folder: PatchFolder, result: Result, depth: Depth) -> str:
    """Say why splat.ply is not what result.json speaks of; empty if it is, as far as this depth can tell."""
    fact = file_fact(folder.splat)
    if fact.num_bytes < 0:
        return "missing"
    if (written := result.splat) is None:  # by 0.1.0
        return _why_unlike_of_old(folder, result, fact.num_bytes, depth)
    if fact[:2] == (written.bytes, written.mtime_ns) and depth != "every byte":
        return ""
    if depth == "time":
        return CHANGED
    return "" if sha256_of(folder.splat) == written.sha256 else CHANGED


def _why_unlike_of_old(folder: PatchFolder, result: Result, num_bytes: int, depth: Depth) -> str:
    if depth == "time":
        return "" if result.bytes in (None, num_bytes) else f"cut: {num_bytes} of {result.bytes} bytes"
    from splatbatch.splats import check_splat  # which loads numpy: `status` does without

    splat = check_splat(folder.splat)
    if isinstance(splat, Rejected):
        return splat.reason
    return "" if result.num_gaussians in (None, splat.num_gaussians) else CHANGED


def restore(folder: PatchFolder) -> str:
    """Mend a product whose splat or manifest is gone or was replaced, from the attempt that made it.

    Returns:
        The name of the attempt; empty if nothing had to be mended, or nothing fits.
    """
    result = folder.read_result()
    if result is not None and (result.splat is None or not why_not_the_splat(folder, result, "content")):
        return ""
    for attempt in reversed(folder.attempts()):
        left = attempt.read_result()
        if left is None or (result is not None and left.attempt != result.attempt):
            continue
        if result is None and sha256_of(folder.splat) != left.sha256:
            continue  # only what was accepted comes back by itself, and the splat says which that was
        if left.sha256 and sha256_of(attempt.splat) == left.sha256:
            accept(folder, attempt, result or left)
            return attempt.path.name
    return ""


def forget_superseded(folder: PatchFolder, *kept: str) -> None:
    """Remove the splats of attempts that are not named: neither accepted, nor before, nor the latest."""
    for attempt in folder.attempts():
        if attempt.path.name not in kept and attempt.splat.exists():
            retention.remove(retention.splat_files(attempt))


def batch_name(output: OutputFolder) -> str:
    """Return a name for everything this output folder starts: stable, and unlike that of any other folder."""
    return short_hash(str(output.path.resolve()))
