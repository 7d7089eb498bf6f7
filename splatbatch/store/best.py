"""Which of two splats of a patch becomes its product: the newer one, or after a retry the better one. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from splatbatch.identity import Files
from splatbatch.store.records.result import Result

CLEARLY_DB = 0.05
"""A loss of hold-out PSNR that is worth a word when a patch is trained anew; less is the noise of the last digit."""


@dataclass(frozen=True)
class Choice:
    """Whether the new splat becomes the product, and what to say of it; empty if there is nothing to say."""

    takes_new: bool
    words: str = ""


def choose(new: Result, accepted: Result | None, *, is_retry: bool, keeps_better: bool = True) -> Choice:
    """Choose between a splat that was just trained and the one that is accepted.

    `accepted` is None if there is no splat that is whole; a retry is of what was trained already.
    """
    if accepted is None or accepted.attempt == new.attempt:
        return Choice(takes_new=True)
    earlier = f"attempt {accepted.number}"
    gain_db = _difference_db(new, accepted)
    if gain_db is None or (unlike := why_not_comparable(new, accepted)):
        reason = unlike if gain_db is not None else "one of them has no hold-out PSNR"
        return Choice(
            takes_new=True, words=f"replaces {earlier}; they cannot be compared: {reason}" if is_retry else ""
        )
    figures = f"{abs(gain_db):.1f} dB {'better' if gain_db >= 0 else 'worse'} than {earlier}"
    if is_retry and keeps_better and gain_db < 0:
        return Choice(takes_new=False, words=f"{figures}: kept {earlier}")
    if is_retry:
        return Choice(takes_new=True, words=figures)
    back = f"`splatbatch accept {new.patch} --attempt {accepted.number}` brings it back"
    return Choice(
        takes_new=True, words=f"{figures}, which was trained otherwise: {back}" if gain_db < -CLEARLY_DB else ""
    )


def why_not_comparable(one: Result, other: Result) -> str:
    """Say why the hold-out PSNR of two splats says nothing about which is better; empty if it does."""
    ours, theirs = one.trained_from, other.trained_from
    if ours.inputs != theirs.inputs or _contents(ours.files) != _contents(theirs.files):
        return "their photographs, masks, model or hold-out differ"
    if _resolution(one) != _resolution(other):
        return f"measured at {_resolution(one) or 'an unknown size'} and at {_resolution(other) or 'an unknown size'}"
    if ours.trainer != theirs.trainer:
        return f"trained by {ours.trainer} and by {theirs.trainer}"
    return ""


def _difference_db(new: Result, accepted: Result) -> float | None:
    ours, theirs = new.metrics.final.psnr, accepted.metrics.final.psnr
    return None if ours is None or theirs is None else ours - theirs


def _contents(files: Files) -> dict[str, tuple[int, int]]:
    """Return sizes and times of the photographs and masks: `inputs` does not hold what is in them."""
    return {key: (fact.num_bytes, fact.mtime_ns) for key, fact in files.items() if not key.startswith("sparse/")}


def _resolution(result: Result) -> str:
    said = result.metrics.resolution
    if said is None:
        return ""
    return " ".join(filter(None, (said.used, f"{list(said.largest)}" if said.largest else "")))
