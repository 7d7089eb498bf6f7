"""The audit's deep end: every photograph and mask is decoded to its last pixel, and shows what its image sees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from splatbatch.scene.audit.audit import Audit
from splatbatch.scene.audit.files.content import check_content
from splatbatch.scene.audit.findings import Finding, Sink, TrainerRules
from splatbatch.scene.audit.geometry import measure
from splatbatch.scene.audit.photos import Shot
from splatbatch.scene.colmap.files import ModelError, shown
from splatbatch.scene.colmap.reconstruction import read_images, read_reconstruction
from splatbatch.scene.patches import Patch
from splatbatch.scene.photos.decoding import undecodable
from splatbatch.scene.photos.folders import Folders, Found, find_masks
from splatbatch.scene.photos.header_cache import Headers
from splatbatch.scene.photos.resolution import stored_photographs

_OF_CONTENT = frozenset({"photos_exchanged", "other_content"})
_KNOWN = frozenset({"truncated_image", "unreadable_image", "empty_image", "unreadable_mask"})


def decoded_too(audit: Audit, patches: Sequence[Patch], rules: TrainerRules) -> Audit:
    """Return the audit with the photographs and masks that cannot be decoded; a shared file is read once."""
    files = {patch.name: _files(patch) for patch in patches}
    faults = {fault.path: fault.what for fault in undecodable(path for group in files.values() for path in group)}
    known = {(finding.patch, finding.subject) for finding in audit.findings if finding.kind in _KNOWN}
    looked_at = {(finding.patch, finding.subject) for finding in audit.findings if finding.kind in _OF_CONTENT}
    by_name = {patch.name: patch for patch in patches}
    found: list[Finding] = []
    for name, group in files.items():
        scribe = Sink(name, rules)
        found += [one for one in _content(by_name[name], scribe) if (name, one.subject) not in looked_at]
        for path, subject in group.items():
            if path in faults and (name, subject) not in known:
                remedy = "Copy the file again; the original may be whole."
                message = f"cannot be decoded: {shown(faults[path])}"
                found.append(scribe.note("undecodable", subject, message, remedy))
    return replace(audit, findings=(*audit.findings, *found))


def _content(patch: Patch, scribe: Sink) -> list[Finding]:
    """Return the photographs that do not show what their images see: all of them are looked at."""
    try:
        model = read_reconstruction(patch.sparse)
        found = measure(model, None, most_looks=None)
    except ModelError:
        return []
    folders, headers, (images, _) = Folders(), Headers(), stored_photographs(patch.images)
    places = [folders.locate(images, image.name) for image in model.images]
    headers.read(place.path for place in places if isinstance(place, Found))
    shots = [
        Shot(image, model.cameras[image.camera_id], place, headers.of(place.path) if isinstance(place, Found) else None)
        for image, place in zip(model.images, places, strict=True)
    ]
    return list(check_content(found.looks if found else (), shots, scribe))


def _files(patch: Patch) -> dict[str, str]:
    """Return the photographs and masks of a patch that are there: path -> name in findings."""
    try:
        names = [image.name for image in read_images(patch.sparse)]
    except ModelError:
        return {}  # the audit has said so
    return dict(_photographs(patch, names)) | {
        str(path): shown(f"{path.parent.name}/{path.name}") for path in find_masks(patch.masks, names).values()
    }


def _photographs(patch: Patch, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    folders, (images, _) = Folders(), stored_photographs(patch.images)
    for name in names:
        place = folders.locate(images, name)
        if isinstance(place, Found):
            yield place.path, shown(name)
