"""Decides whether a new splat of a patch replaces the accepted one, and which older splats may be removed.

The decision follows from the manifests of the splats. `finalize` calls it after a training, `results` before it removes
splats. With `keep: better` a retry that was measured worse on the same held-out photographs does not replace a splat.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from operator import itemgetter
from statistics import fmean

from splatbatch.hashing import FileFacts, difference
from splatbatch.output.records.fingerprint import is_content
from splatbatch.output.records.metrics import BY_ITSELF, QualityFigures, deciding, spell_figures
from splatbatch.output.records.result import Result
from splatbatch.text import list_some

ACCEPT = "`splatbatch accept"
"""Begin of the command, shown in messages, by which a user chooses another splat; a patch, an option and "`" follow."""
CLEARLY_DB = 0.05
"""Loss of hold-out PSNR in dB that is reported when a patch is trained anew; less is the noise of the last digit."""


@dataclass(frozen=True)
class Retention:
    """Decision on the splats of a patch: which splat is accepted, and which splats stay on disk."""

    product: Result | None
    """Manifest of the splat to accept; None: no splat can be accepted."""
    words: str = ""
    """Reason for the choice, as a clause for the report and the ledger; empty if there is nothing to report."""
    kept: frozenset[str] = frozenset()
    """Names of the attempts whose splats stay; all other splats may be removed."""


def other_files(
    one: Result, other: Result, place: Callable[[str], str] | None = None, facts: FileFacts | None = None
) -> tuple[str, ...]:
    """Return the names of the files whose content differs between the trainings of two splats, as recorded.

    Compared are models, photographs and masks; empty if none differs.

    Args:
        one: manifest of the earlier splat.
        other: manifest of the later splat.
        place: returns the path of a file by its name in the manifest; only needed if `facts` may read files.
        facts: known hashes of files, and whether more may be read; None: only the manifests are compared.
    """
    then, now = (
        {key: fact for key, fact in each.trained_from.files.items() if is_content(key)} for each in (one, other)
    )
    return difference(then, now, place or (lambda _: ""), facts or FileFacts(reads=False)).changed


def choose_splats(  # noqa: PLR0913 - all that decides, in one place
    splats: Sequence[Result],
    accepted: Result | None,
    new: Result | None = None,
    *,
    is_retry: bool = False,
    keeps_better: bool = True,
    differ: Callable[[Result, Result], tuple[str, ...]] = other_files,
    damaged: Sequence[Result] = (),
    spared: Collection[str] = (),
) -> Retention:
    """Decide which splat of a patch is accepted, and which stay on disk; nothing is written.

    Without a new splat the accepted one stays accepted; if its file is damaged, the best comparable splat replaces it.

    Args:
        splats: manifests of all splats whose files are whole.
        accepted: manifest of the splat accepted until now, even if its file is damaged; None: there is none.
        new: manifest of the splat that was just trained; None: nothing was trained.
        is_retry: a trained patch was trained again by `retry`.
        keeps_better: the setting `retry.keep` is `better`.
        differ: returns the files that differ between the trainings of a splat and a later one; see `other_files`.
        damaged: manifests of splats whose files have changed or cannot be read.
        spared: names of attempts whose splats stay in any case.
    """
    others = [one for one in splats if new is None or one.attempt != new.attempt]
    earlier = None
    if accepted and (new is None or accepted.attempt != new.attempt):
        whole = [one for one in others if one.attempt == accepted.attempt]
        earlier = whole[0] if whole else _best(others, accepted, differ)
    product, words = earlier, ""
    if new:
        takes_new, words = _choose(new, earlier, is_retry, keeps_better, differ(earlier, new) if earlier else ())
        product = new if takes_new else earlier
    return Retention(product, words, _attempts_to_keep(others, damaged, product, spared))


def compare(one: Result, other: Result, differ: Sequence[str] = ()) -> tuple[float | None, str]:
    """Compare two splats by the hold-out PSNR of the same photographs, on covered pixels where both have such.

    Args:
        one: manifest of the one splat.
        other: manifest of the splat that it is compared with.
        differ: files that differ between their trainings; see `other_files`.

    Returns:
        By how many dB `one` is better, negative if it is worse, and a sentence that says so. If the two cannot be
        compared: None, and the reason.
    """
    figures = _why_other_training(one, other, differ) or _comparable_figures(one, other)
    if isinstance(figures, str):
        return None, figures
    ours, theirs = figures
    covered, on_all = _less(ours.psnr_covered, theirs.psnr_covered), _less(ours.psnr, theirs.psnr)
    gain_db = on_all if covered is None else covered
    if gain_db is None:
        return None, "no hold-out PSNR of the same photographs is known for both"
    words = f"{_better_or_worse(gain_db)} than attempt {other.number}"
    if covered is not None:
        words += " on covered pixels" + ("" if on_all is None else f" ({_better_or_worse(on_all)} on all)")
    return gain_db, words


def is_measured(one: Result) -> bool:
    """Return whether a splat has a hold-out PSNR, by its manifest."""
    return deciding(one.metrics.final) is not None


def _choose(
    new: Result, earlier: Result | None, is_retry: bool, keeps_better: bool, differ: Sequence[str]
) -> tuple[bool, str]:
    """Return whether a splat that was just trained is accepted, and a sentence on the choice; "" if none is needed."""
    if earlier is None:
        return True, ""
    (gain_db, said), before = compare(new, earlier, differ), f"attempt {earlier.number}"
    back = f"{ACCEPT} {new.patch} --attempt {earlier.number}` brings {before} back"
    if gain_db is None:
        now, then, figures = (
            new.trained_from,
            earlier.held_against,
            f"{before} ({spell_figures(earlier.metrics.final)})",
        )
        is_due = not now.recipe or (now.recipe, now.surroundings, now.tones) != (
            then.recipe,
            then.surroundings,
            then.tones,
        )
        is_of_others = differ or now.inputs != then.inputs
        if keeps_better and is_measured(earlier) and not is_of_others and (is_retry or not is_due):
            take = f"{ACCEPT} {new.patch} --attempt {new.number}` accepts attempt {new.number} anyway"
            return False, f"cannot be compared with {figures}: {said}: kept {before}: {take}"
        if is_retry:
            return True, f"replaces {before}; the two cannot be compared: {said}"
        is_lost = is_measured(earlier) and not is_measured(new)
        return True, f"replaces {figures}: {said}: {back}" if is_lost else ""
    if is_retry:
        is_worse = keeps_better and gain_db < 0
        return not is_worse, f"{said}: kept {before}" if is_worse else said
    return True, f"{said}, which had other settings or files: {back}" if gain_db < -CLEARLY_DB else ""


def _attempts_to_keep(
    splats: Sequence[Result], damaged: Sequence[Result], product: Result | None, spared: Collection[str]
) -> frozenset[str]:
    """Return the attempts whose splats stay: the spared ones, and each that no staying splat is known to match.

    A splat trained from other files than the product is not kept. A damaged splat stays, but displaces no other.
    """
    names = {*spared, *({product.attempt} if product else ())}
    staying = [one for one in splats if one.attempt in names]
    staying += [product] if product and product not in staying else []
    left = [(psnr, one.number, one) for one in splats if (psnr := deciding(one.metrics.final)) is not None]
    ranked = [one for _, _, one in sorted(left, key=itemgetter(0, 1), reverse=True) if one not in staying]
    for one in (*ranked, *filter(is_measured, damaged)):
        if product and other_files(one, product):
            continue
        gains = (compare(other, one, other_files(one, other))[0] for other in staying)
        if all(gain is None or gain < 0 for gain in gains):
            names.add(one.attempt)
            staying += [one] if one in ranked else []
    return frozenset(names)


def _best(splats: Sequence[Result], than: Result, differ: Callable[[Result, Result], Sequence[str]]) -> Result | None:
    """Return the best measured splat that can be compared with `than`, whose own file may be lost; None: none can."""
    found = [
        (gain, one.number, one) for one in splats if (gain := compare(one, than, differ(one, than))[0]) is not None
    ]
    return max(found, key=itemgetter(0, 1))[2] if found else None


def _why_other_training(one: Result, other: Result, differ: Sequence[str]) -> str:
    """Return why the trainings of two splats differ too much to compare their figures; empty if they do not."""
    ours, theirs = one.trained_from, other.trained_from
    is_told = None not in (held_out(one), held_out(other)) and ours.files and theirs.files
    if differ:
        return f"other input files: {list_some(differ)}"
    if ours.inputs != theirs.inputs and (ours.border != theirs.border or not is_told):
        return "they differ in the model or the held-out photographs"
    if ours.trainer != theirs.trainer:
        return f"trained by {ours.trainer} and by {theirs.trainer}"
    if is_measured(one) and is_measured(other) and _is_by_itself(one) != _is_by_itself(other):
        return "one was measured by the program that trained it, the other by splatbatch"
    return ""


def _comparable_figures(one: Result, other: Result) -> tuple[QualityFigures, QualityFigures] | str:
    """Return figures of two splats on the same held-out photographs, or the reason why there are none.

    Where the later splat was measured on other pixels, its training has measured the earlier one on them, too.
    """
    ours, theirs, mine, its = one.metrics, other.metrics, held_out(one), held_out(other)
    if mine is None or its is None:
        mine = its = frozenset()
    if _has_measured(one, other) and mine <= its:
        return ours.final, ours.earlier.final
    if _has_measured(other, one) and its <= mine:
        return theirs.earlier.final, theirs.final
    if why := _why_not_measured_alike(one, other):
        return why
    if mine != its:
        return _mean_of(one, mine & its), _mean_of(other, mine & its)
    if ours.covered.hash == theirs.covered.hash:
        return ours.final, theirs.final
    if ours.covered.hash and theirs.covered.hash:
        return "measured on other covered pixels"
    return ours.final.of_all_pixels(), theirs.final.of_all_pixels()


def _why_not_measured_alike(one: Result, other: Result) -> str:
    mine, its = held_out(one), held_out(other)
    if mine is not None and its is not None and not (mine == its or (mine & its and mine & its in (mine, its))):
        trained, measured = (one, other) if its - mine else (other, one)
        return f"attempt {trained.number} was trained on photographs that attempt {measured.number} holds out"
    if lacking := [each.number for each in (one, other) if not is_measured(each)]:
        return f"attempt {lacking[0]} has no hold-out PSNR"
    sizes = [_resolution(each) or "an unknown size" for each in (one, other)]
    return f"measured at {sizes[0]} and at {sizes[1]}" if sizes[0] != sizes[1] else ""


def held_out(one: Result) -> frozenset[str] | None:
    """Return the names of the held-out photographs of a splat, on which it is measured; None if they are not known."""
    if measured := one.metrics.photos():
        return frozenset(measured)
    return None if one.photographs is None or _is_by_itself(one) else frozenset(one.photographs.held_out)


def _mean_of(one: Result, names: Collection[str]) -> QualityFigures:
    """Return the mean PSNR of a splat over some held-out photographs, on all pixels; blank if one was not measured."""
    photos = one.metrics.photos()
    known = [found.psnr for name in names if (found := photos.get(name)) and found.psnr is not None]
    return QualityFigures(psnr=fmean(known)) if len(known) == len(names) else QualityFigures()


def _is_by_itself(one: Result) -> bool:
    return one.metrics.measured_by == BY_ITSELF


def _has_measured(one: Result, other: Result) -> bool:
    return bool(other.sha256) and one.metrics.earlier.sha256 == other.sha256


def _less(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def _better_or_worse(gain_db: float) -> str:
    return f"{abs(gain_db):.1f} dB {'better' if gain_db >= 0 else 'worse'}"


def _resolution(result: Result) -> str:
    said = result.metrics.resolution
    if said is None:
        return ""
    return " ".join(filter(None, (said.used, f"{list(said.largest)}" if said.largest else "")))
