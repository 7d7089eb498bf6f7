"""What report.json holds, schema 1. Keys are only ever added within a schema.

schema, version         of this file; of the splatbatch that wrote it
written_at, output      local time with its zone; the output folder
summary, counts         one line; the number of patches in each state
patches                 one object per patch, in natural order:
  patch, state          trained, running, failed, stopped, refused, stale, waiting
  attempt, phase, step, max_steps, loss, seconds, splat
  psnr, ssim, lpips, initial_psnr, num_gaussians  of the product; PSNR in dB on held-out photographs
  psnr_even             `psnr` compares photographs as they are, this one evened ones; null where none has a tone
  training_psnr         on a few photographs it was trained on
  cause, advice, evidence                     of the last failure; evidence: lines of the log
  changes, warnings                           settings that differ from the config; what was odd
  outliers                                    how it differs from the other patches
  gain_db                                     of its PSNR by the latest run; null where that has not replaced it
  node, worker                                where and by whom it is, or was, trained or tried last
  attempts                                    see `splatbatch.report.attempts.attempts_of`
  versions                                    of what trained it, as far as its files say
  of_patch, variant                           its parts in a sweep; else the patch, and nothing
  bytes, resolution                           of the splat file; used, folder and largest of what it was trained on
sweep                   null, or see `splatbatch.report.comparison.compare`
runs                    [{"started_at", "ended_at", "slots", "changes", "worker"}]: one per `train`, `retry` or worker
workers                 see `splatbatch.report.workers.workers_of`
frame                   null, or {"offset", "scenes", "note"}: what to add to the splats' coordinates for the models'
colors                  one object per scene whose photographs were looked at, "" for all patches together:
  scene, is_even, residual_before, residual_after, words      residuals in percent
  photographs           those that differ most: [{"name", "gain", "tone", "words"}], tone: as in colors.json
scene                   null, or see `splatbatch.report.scene.merged.scene_facts`
map                     null, or patches and cameras from above where no partition says it; as in scene
afterwards              what followed the training: [{"what", "state", "words", "command", "at"}]; what: inspect, merge,
                        evaluate, publish; state: done, partly, left out; command: what makes it good
todo                    [{"kind", "patches", "what", "command"}]: see `splatbatch.report.todo`
config_file             the YAML; empty where it is not known
deadline                null, or deadline.json with `ended_at` and what to say of it, `words`
audit                   the latest: verified, refused, warnings; null if there was none
config                  batch.yaml, the resolved settings of the latest run
events                  the ledgers; `worker` says whose ledger it is, if it is not that of `train`
"""

from __future__ import annotations

import math
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import TypeVar

from splatbatch import __version__
from splatbatch.config import TaskId, Variant
from splatbatch.files import Record, read_tail
from splatbatch.report.attempts import OfAttempt, attempts_of, gain_db
from splatbatch.report.comparison import compare
from splatbatch.report.deadline import deadline_of
from splatbatch.report.outliers import outliers
from splatbatch.report.quality import quality_of
from splatbatch.report.scene.colors import colors_of
from splatbatch.report.scene.merged import scene_facts
from splatbatch.report.scene.overview import overview
from splatbatch.report.todo import todo
from splatbatch.report.workers import starts_of, workers_of
from splatbatch.store.events import Audited, BatchEnded, BatchStarted, Event, event_of
from splatbatch.store.layout import OutputFolder
from splatbatch.store.ledger import lines
from splatbatch.store.records.result import Result
from splatbatch.tasks.evidence import Standing
from splatbatch.tasks.frame import note
from splatbatch.tasks.status import STATES, PatchStatus, read_status, summary

SCHEMA = 1
"""Version of report.json; it rises when a field changes its meaning or goes."""
MOST_CONFIG_BYTES = 1 << 18


def build(
    output: OutputFolder, names: Sequence[str], variants: Sequence[Variant] = (), standing: Standing | None = None
) -> Record:
    """Return the facts of a batch."""
    statuses, said = read_status(output, names, standing=standing), _said(output)
    history = [event for record in said if (event := event_of(record))]
    runs = _runs(said)
    patches = _patches(output, statuses, history, max(starts_of(runs), default=0.0))
    audits = [record for record in said if record["event"] == Audited.name]
    scene = scene_facts(output, standing.patches_folder) if standing else None
    report = {
        "schema": SCHEMA,
        "version": __version__,
        "python": platform.python_version(),
        "written_at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "output": str(output.path),
        "summary": summary(statuses),
        "counts": {state: sum(status.state == state for status in statuses) for state in STATES},
        "patches": patches,
        "sweep": compare(patches, variants),
        "runs": runs,
        "workers": workers_of(output, patches),
        "frame": _frame(output, statuses),
        "colors": colors_of(output),
        "scene": scene,
        "map": overview(output, standing.patches_in_one_world()) if standing and not scene else None,
        "deadline": deadline_of(output, history, standing),
        "afterwards": [one.to_record() for one in output.read_afterwards()],
        "audit": _audit(audits[-1], statuses) if audits else None,
        "config": read_tail(output.config, MOST_CONFIG_BYTES),
        "config_file": str(standing.config_file.absolute()) if standing else "",
        "events": said,
    }
    return {**report, "todo": todo(report)}


T = TypeVar("T")


def _said(output: OutputFolder) -> list[Record]:
    """Return all lines of the ledger; they share their keys and words, which weigh more than all else that they say."""
    return [
        {sys.intern(key): sys.intern(value) if type(value) is str else value for key, value in event.items()}
        for event in lines(output)
    ]


def _patches(
    output: OutputFolder, statuses: Sequence[PatchStatus], history: Sequence[Event], since: float
) -> list[Record]:
    by_patch = _by_patch(history)
    attempts: dict[str, list[Record]] = {}
    for one in statuses:
        look = partial(attempts_of, output.patch(one.patch), by_patch.get(one.patch, []))
        attempts[one.patch] = _walled(look, [])
    odd = outliers(statuses, {one.patch: _training_s(one, attempts[one.patch]) for one in statuses})
    return [
        {
            **_finite(asdict(status)),
            "outliers": list(odd[status.patch]),
            "gain_db": gain_db(attempts[status.patch], since),
            "attempts": attempts[status.patch],
            **dict(zip(("of_patch", "variant"), TaskId.of_folder(status.patch), strict=True)),
            **product_of(result := _walled(output.patch(status.patch).read_result, None) or Result()),
            "quality": _walled(partial(quality_of, output.patch(status.patch), result.sha256), None),
        }
        for status in statuses
    ]


def _walled(look: Callable[[], T], nothing: T) -> T:
    """Return what the files of one patch say; nothing of those that cannot be read: the others are reported."""
    try:
        return look()
    except Exception:  # noqa: BLE001 - they may be whatever they are; its status names the fault
        return nothing


def _training_s(status: PatchStatus, attempts: Sequence[Record]) -> float | None:
    """Return what the steps of a product took; where nobody has told of steps, its whole time but for its set-up."""
    kept = next((one for one in attempts if one["is_kept"]), None)
    if kept and kept["pace_s"] is not None:
        return float(kept["pace_s"]) * status.step
    return None if status.seconds is None else status.seconds - ((kept and kept["setup_s"]) or 0.0)


def product_of(result: Result) -> Record:
    """Return what report.json says of an accepted splat besides its figures; all empty if there is none."""
    said = result.metrics.resolution
    ours = {"splatbatch": result.version} if result.version else {}
    return {
        "bytes": result.bytes,
        "resolution": said.to_record() if said else None,
        "versions": ours | result.metrics.made_with,
    }


def _by_patch(history: Sequence[Event]) -> dict[str, list[OfAttempt]]:
    found: dict[str, list[OfAttempt]] = {}
    for event in history:
        if isinstance(event, OfAttempt):
            found.setdefault(event.patch, []).append(event)
    return found


def _runs(said: Sequence[Record]) -> list[Record]:
    runs: list[Record] = []
    latest: dict[str, Record] = {}
    for record in said:
        worker = str(record.get("worker", ""))
        match event_of(record):
            case BatchStarted() as event:
                facts = {"slots": list(event.slots), "changes": event.changes, "worker": worker}
                latest[worker] = {"started_at": event.t, "ended_at": None, **facts}
                runs.append(latest[worker])
            case BatchEnded() as event if worker in latest:
                latest[worker]["ended_at"] = event.t
            case _:
                pass
    return runs


def _frame(output: OutputFolder, statuses: Sequence[PatchStatus]) -> Record | None:
    frame = output.read_frame()
    names = {TaskId.of_folder(status.patch)[0] for status in statuses}
    return {**frame.to_record(), "note": note(frame, names)} if frame else None


def _audit(said: Record, statuses: Sequence[PatchStatus]) -> Record:
    """Return the latest audit with every patch that is refused now: it may have been about some patches alone."""
    refused = {one.patch: one.advice for one in statuses if one.state == "refused"}
    event = Audited.from_record(said)
    return {**said, "verified": event.verified, "refused": refused, "warnings": list(event.warnings)}


def _finite(record: Record) -> Record:
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in record.items()
    }
