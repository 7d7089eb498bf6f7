"""Which of two splats of a patch becomes its product: the newer one, or after a retry the better one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from splatbatch.identity import FileFacts, difference
from splatbatch.plain_text import spell_some
from splatbatch.store.records.fingerprint import is_content
from splatbatch.store.records.metrics import Figures
from splatbatch.store.records.result import Result

CLEARLY_DB = 0.05
"""A loss of hold-out PSNR that is worth a word when a patch is trained anew; less is the noise of the last digit."""


@dataclass(frozen=True)
class Choice:
    """Whether the new splat becomes the product, and what to say of it; empty if there is nothing to say."""

    takes_new: bool
    words: str = ""


@dataclass(frozen=True)
class Rules:
    """What decides between two splats."""

    is_retry: bool = False
    """What is accepted was trained already."""
    keeps_better: bool = True
    """`retry.keep: better`."""


def choose(new: Result, accepted: Result | None, rules: Rules, differ: Sequence[str] = ()) -> Choice:
    """Choose between a splat that was just trained and the one that is accepted.

    Args:
        new: the manifest of the new one.
        accepted: None if there is no splat that is whole.
        rules: of this choice.
        differ: the files that are not those that the accepted one was trained from; see `other_files`.
    """
    if accepted is None or accepted.attempt == new.attempt:
        return Choice(takes_new=True)
    earlier = f"attempt {accepted.number}"
    gain_db = _difference_db(new, accepted)
    if gain_db is None or (unlike := why_not_comparable(new, accepted, differ)):
        reason = unlike if gain_db is not None else "one of them has no hold-out PSNR"
        return Choice(
            takes_new=True, words=f"replaces {earlier}; they cannot be compared: {reason}" if rules.is_retry else ""
        )
    figures = f"{_better_or_worse(gain_db)} than {earlier}{_of_all_pixels(new, accepted)}"
    if rules.is_retry and rules.keeps_better and gain_db < 0:
        return Choice(takes_new=False, words=f"{figures}: kept {earlier}")
    if rules.is_retry:
        return Choice(takes_new=True, words=figures)
    back = f"`splatbatch accept {new.patch} --attempt {accepted.number}` brings it back"
    return Choice(
        takes_new=True, words=f"{figures}, which was trained otherwise: {back}" if gain_db < -CLEARLY_DB else ""
    )


def better_than(accepted: Result, others: Iterable[Result]) -> Result | None:
    """Return the splat that was measured best of those that are better than the accepted one, from the same inputs.

    Nothing is read: where times alone have moved inputs count as the same, since it is to be kept, not to be chosen.
    """
    known = [(gain_db, one) for one in others if (gain_db := _difference_db(one, accepted)) and gain_db > 0]
    same = [pair for pair in known if not why_not_comparable(pair[1], accepted, other_files(pair[1], accepted))]
    return max(same, key=lambda pair: pair[0])[1] if same else None


def other_files(
    one: Result, other: Result, place: Callable[[str], str] | None = None, facts: FileFacts | None = None
) -> tuple[str, ...]:
    """Return which files a splat was trained from do not hold what those of another one held.

    Args:
        one: the earlier one.
        other: the later one.
        place: where the file of a name lies.
        facts: what is known of files, and whether more may be read; None: what the manifests say is all.
    """
    then, now = (
        {key: fact for key, fact in each.trained_from.files.items() if is_content(key)} for each in (one, other)
    )
    if not then or not now:  # by 0.1.0
        return ()
    return difference(then, now, place or (lambda _: ""), facts or FileFacts(reads=False)).changed


def why_not_comparable(one: Result, other: Result, differ: Sequence[str] = ()) -> str:
    """Say why the hold-out PSNR of two splats says nothing about which is better; empty if it does."""
    ours, theirs = one.trained_from, other.trained_from
    if differ:
        return f"other files than then: {spell_some(differ)}"
    if ours.inputs != theirs.inputs:
        return "their model or hold-out differ"
    if _has_measured(one, other) or _has_measured(other, one):
        return _other_trainer(ours.trainer, theirs.trainer)  # measured on the very same photographs and pixels
    if _resolution(one) != _resolution(other):
        return f"measured at {_resolution(one) or 'an unknown size'} and at {_resolution(other) or 'an unknown size'}"
    if one.metrics.covered.hash and other.metrics.covered.hash and not _is_same_set(one, other):
        return "measured on other covered pixels"
    return _other_trainer(ours.trainer, theirs.trainer)


def _other_trainer(one: str, other: str) -> str:
    return f"trained by {one} and by {other}" if one != other else ""


def _difference_db(new: Result, accepted: Result) -> float | None:
    """Return by how much the new one is better: on covered pixels where both were measured on the same ones."""
    ours, theirs = on_one_set(new, accepted)
    covered = _less(ours.psnr_covered, theirs.psnr_covered)
    return _less(ours.psnr, theirs.psnr) if covered is None else covered


def on_one_set(one: Result, other: Result) -> tuple[Figures, Figures]:
    """Return the figures of two splats of which the covered ones are of the same pixels, or absent.

    Where the later one was measured on other pixels, its training has measured the earlier one on those, too.
    """
    ours, theirs = one.metrics, other.metrics
    if _has_measured(one, other):
        return ours.final, ours.earlier.final
    if _has_measured(other, one):
        return theirs.earlier.final, theirs.final
    if _is_same_set(one, other):
        return ours.final, theirs.final
    return ours.final.of_all_pixels(), theirs.final.of_all_pixels()


def _has_measured(one: Result, other: Result) -> bool:
    return bool(other.sha256) and one.metrics.earlier.sha256 == other.sha256


def _is_same_set(one: Result, other: Result) -> bool:
    return one.metrics.covered.hash == other.metrics.covered.hash


def _less(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def _better_or_worse(gain_db: float) -> str:
    return f"{abs(gain_db):.1f} dB {'better' if gain_db >= 0 else 'worse'}"


def _of_all_pixels(new: Result, accepted: Result) -> str:
    """Return, where covered pixels decide, what all pixels say: " on covered pixels (0.3 dB worse on all)"."""
    ours, theirs = on_one_set(new, accepted)
    if _less(ours.psnr_covered, theirs.psnr_covered) is None:
        return ""
    on_all = _less(ours.psnr, theirs.psnr)
    return " on covered pixels" + ("" if on_all is None else f" ({_better_or_worse(on_all)} on all)")


def _resolution(result: Result) -> str:
    said = result.metrics.resolution
    if said is None:
        return ""
    return " ".join(filter(None, (said.used, f"{list(said.largest)}" if said.largest else "")))
