"""images/ beside images_2, images_4, images_8: does every photograph have exactly one smaller copy of its own name?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from splatbatch.scene.audit.findings import Finding, Sink
from splatbatch.scene.colmap.files import shown
from splatbatch.scene.photos.folders import is_folder, photographs_below

_SIBLINGS = ("_2", "_4", "_8")


def check_pairing(images: Path, scribe: Sink) -> Iterator[Finding]:
    """Yield clashes and shifts between a folder of photographs and its downscaled siblings."""
    siblings = [path for path in (images.with_name(images.name + end) for end in _SIBLINGS) if is_folder(path)]
    if not siblings:
        return
    originals = photographs_below(images)
    yield from _check_clashes(images, originals, scribe)
    for sibling in siblings:
        copies = photographs_below(sibling)
        yield from _check_clashes(sibling, copies, scribe)
        yield from _check_shift((images, originals), (sibling, copies), scribe)


def _check_clashes(folder: Path, names: list[str], scribe: Sink) -> Iterator[Finding]:
    stems = Counter(map(_stem, names))
    for stem in sorted(stem for stem, count in stems.items() if count > 1):
        alike = ", ".join(shown(name) for name in names if _stem(name) == stem)
        subject = f"{folder.name}/{shown(stem)}"
        yield scribe.note("name_clash", subject, f"several files share this stem: {alike}", "Rename all but one.")


def _check_shift(ours: tuple[Path, list[str]], theirs: tuple[Path, list[str]], scribe: Sink) -> Iterator[Finding]:
    (images, originals), (sibling, copies) = ours, theirs
    stems, copied = set(map(_stem, originals)), set(map(_stem, copies))
    if stems == copied:
        return
    flat = Counter(PurePosixPath(stem).name for stem in stems)
    merged = sorted(name for name, count in flat.items() if count > 1 and name in copied and name not in stems)
    for name in merged:
        message = f"{flat[name]} photographs of {images.name}/ have this name in different sub-folders, but one copy"
        remedy = f"Make {sibling.name}/ again with the sub-folders of {images.name}/."
        yield scribe.note("name_clash", f"{sibling.name}/{shown(name)}", message, remedy)
    lacks, extra = sorted(stems - copied), sorted(copied - stems)
    message = (
        f"{len(copies)} files beside {len(originals)} in {images.name}/: {_spell(lacks, 'lacks')}{_spell(extra, 'has')}"
    )
    message += _first_pair(originals, copies)
    remedy = f"Make {sibling.name}/ again from {images.name}/, or remove it; pair by name, never by position."
    yield scribe.note("shifted_pairing", f"{sibling.name}/", message, remedy)


def _first_pair(originals: list[str], copies: list[str]) -> str:
    for original, copy in zip(originals, copies, strict=False):
        if _stem(original) != _stem(copy):
            return f"by position, {shown(original)} is paired with {shown(copy)}"
    return "the last ones have no partner"


def _spell(stems: list[str], verb: str) -> str:
    if not stems:
        return ""
    more = f" and {len(stems) - 3} more" if len(stems) > 3 else ""
    return f"{verb} {', '.join(map(shown, stems[:3]))}{more}; "


def _stem(name: str) -> str:
    return str(PurePosixPath(name).with_suffix(""))
