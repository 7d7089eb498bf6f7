"""Which of two splats of a patch becomes its product: the newer one, or after a retry the better one. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from splatbatch.fields import mapping, number
from splatbatch.files import Record

CLEARLY_DB = 0.05
"""A loss of hold-out PSNR that is worth a word when a patch is trained anew; less is the noise of the last digit."""


@dataclass(frozen=True)
class Choice:
    """Whether the new splat becomes the product, and what to say of it; empty if there is nothing to say."""

    takes_new: bool
    words: str = ""


def choose(new: Record, accepted: Record | None, *, is_retry: bool, keeps_better: bool = True) -> Choice:
    """Choose between a splat that was just trained and the one that is accepted.

    Args:
        new: manifest of the new one.
        accepted: manifest of the accepted one; None if there is none that is whole.
        is_retry: whether somebody asked for another try at what was trained already.
        keeps_better: `retry.keep: better`.
    """
    if accepted is None or accepted.get("attempt") == new.get("attempt"):
        return Choice(takes_new=True)
    earlier = _spoken(accepted)
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
    back = f"`splatbatch accept {new.get('patch')} --attempt {_number(accepted)}` brings it back"
    return Choice(
        takes_new=True, words=f"{figures}, which was trained otherwise: {back}" if gain_db < -CLEARLY_DB else ""
    )


def why_not_comparable(one: Record, other: Record) -> str:
    """Say why the hold-out PSNR of two splats says nothing about which is better; empty if it does."""
    if one.get("inputs") != other.get("inputs") or _contents(one) != _contents(other):
        return "their photographs, masks, model or hold-out differ"
    if _resolution(one) != _resolution(other):
        return f"measured at {_resolution(one) or 'an unknown size'} and at {_resolution(other) or 'an unknown size'}"
    if _trainer(one) != _trainer(other):
        return f"trained by {_trainer(one)} and by {_trainer(other)}"
    return ""


def psnr_of(record: Record) -> float | None:
    """Return the hold-out PSNR of a manifest, in dB; None if it has none."""
    return number(mapping(mapping(record.get("metrics")).get("final")).get("psnr"))


def _difference_db(new: Record, accepted: Record) -> float | None:
    ours, theirs = psnr_of(new), psnr_of(accepted)
    return None if ours is None or theirs is None else ours - theirs


def _contents(record: Record) -> Any:
    """Return sizes and times of the photographs and masks: `inputs` does not hold what is in them."""
    files = mapping(record.get("files")).items()
    return {key: entry[:2] for key, entry in files if isinstance(entry, list) and not key.startswith("sparse/")} or None


def _resolution(record: Record) -> str:
    used = mapping(mapping(record.get("metrics")).get("resolution"))
    return " ".join(str(used[key]) for key in ("used", "largest") if key in used)


def _trainer(record: Record) -> str:
    settings = mapping(record.get("settings"))
    return str(mapping(settings.get("training")).get("trainer", ""))


def _spoken(record: Record) -> str:
    return f"attempt {_number(record)}"


def _number(record: Record) -> int:
    digits = str(record.get("attempt", "")).rpartition("-")[2]
    return int(digits) if digits.isdecimal() else 0
