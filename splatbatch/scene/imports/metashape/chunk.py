"""Which chunk of a Metashape file is meant, and what its transform and its coordinate system are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from splatbatch.plain_text import counted
from splatbatch.scene.imports.capture import Notes
from splatbatch.scene.imports.metashape.document import Document, cameras_below, is_enabled, numbers
from splatbatch.scene.imports.mistakes import Mistakes
from splatbatch.scene.imports.pose import IDENTITY, NoPose, Similarity, similarity_of

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_ECEF = (6.2e6, 6.6e6)
"""Metres between the middle of the Earth and what lies on it, or is flown over it."""
_AGAIN = "Export the cameras again, as Agisoft XML."


@dataclass(frozen=True, eq=False)
class World:
    """Where a chunk's coordinates lead."""

    placed: Similarity
    """From the chunk (or its component) to the world."""
    words: str
    crs: str


def chosen_chunk(document: Document, label: str, notes: Notes, mistakes: Mistakes) -> Element | None:
    """Return the chunk that is meant; None, with a mistake, where that is not clear."""
    chunks = [chunk for chunk in document.root.iter("chunk") if chunk.find("cameras") is not None]
    if not chunks:
        what = f"<{document.root.tag}> holds no chunk with cameras"
        mistakes.add(document.where(document.root), what, "Export the cameras of an aligned chunk, as Agisoft XML.")
        return None
    aligned = [chunk for chunk in chunks if is_enabled(chunk) and _num_posed(chunk)]
    named = [chunk for chunk in chunks if label and chunk.get("label", "") == label]
    candidates = named if label else aligned or chunks
    if len(candidates) == 1:
        for other in chunks:
            if other is not candidates[0]:
                notes.leave_out(f"chunk {_in_words(other)}")
        return candidates[0]
    known = "; ".join(_in_words(chunk) for chunk in chunks)
    what = f"{len(candidates)} chunks are meant by it" if label else f"{len(candidates)} chunks with poses"
    remedy = "Name one with --chunk LABEL and import each into a folder of its own, or merge them in Metashape."
    mistakes.add(document.where(document.root), f"{what}: {known}", remedy)
    return None


def _num_posed(chunk: Element) -> int:
    return sum(camera.find("transform") is not None for camera, _ in cameras_below(chunk.find("cameras")))


def _in_words(chunk: Element) -> str:
    state = "" if is_enabled(chunk) else ", disabled"
    return f'"{chunk.get("label", "")}" ({counted(_num_posed(chunk), "camera")} with a pose{state})'


def world_of(document: Document, chunk: Element, component: str | None, mistakes: Mistakes) -> World:
    """Return where the poses of a chunk lead, given the id of the component that its cameras belong to."""
    crs = next((text for name in ("reference", "crs", "projection") if (text := _text(chunk.find(name)))), "")
    element = chunk.find("transform")
    components = [one for one in chunk.findall("components/component") if one.find("transform") is not None]
    own = [one for one in components if one.get("id") == component] if component is not None else components
    if len(own) == 1:
        element = own[0].find("transform")
    elif element is None and components:
        known = ", ".join(one.get("id", "?") for one in components)
        what = f"cameras name the component {component or '(none)'}; transforms are there for {known}"
        mistakes.add(document.where(chunk, "components"), what, _AGAIN)
    if element is None:
        return World(IDENTITY, "the chunk's own coordinates: it has no transform, so their unit is nobody's", crs)
    placed = _similarity(document, element, mistakes)
    is_local = not crs or crs.upper().startswith(("LOCAL_CS", "ENGCRS", "LOCAL"))
    is_geocentric = _ECEF[0] < float(np.linalg.norm(placed.translation)) < _ECEF[1]
    where = "geocentric coordinates (ECEF) in metres" if is_geocentric and not is_local else "local coordinates"
    return World(placed, f"{where}, after the chunk's transform", crs)


def _similarity(document: Document, element: Element, mistakes: Mistakes) -> Similarity:
    """Return the transform of a chunk: rotation, translation and scale, or one matrix of 16 numbers."""
    where = document.where(element, "transform of the chunk")
    try:
        if element.find("rotation") is None and (matrix := numbers(element, 16)) is not None:
            return similarity_of(matrix.reshape(4, 4)[:3])
        rotation, translation = numbers(element.find("rotation"), 9), numbers(element.find("translation"), 3)
        scale = numbers(element.find("scale"), 1) if element.find("scale") is not None else np.ones(1)
        if rotation is None or translation is None or scale is None or not scale[0] > 0:
            raise NoPose("is not a rotation of 9 numbers, a translation of 3 and a scale above 0")
        turned = similarity_of(np.column_stack([rotation.reshape(3, 3), translation]))
        return Similarity(turned.rotation, turned.translation, float(scale[0]) * turned.scale)
    except NoPose as error:
        mistakes.add(where, str(error), _AGAIN)
        return IDENTITY


def _text(element: Element | None) -> str:
    return " ".join((element.text or "").split()) if element is not None else ""
