"""Checks of what photographs show: whether pairs of photographs look alike at the model's points.

If they do not, the audit looks for the mistake that explains it: turned, exchanged, displaced or other photographs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from pathlib import Path

import numpy as np

from splatbatch.groups import grouped
from splatbatch.scene.audit.findings import AuditFinding, FindingWriter
from splatbatch.scene.colmap.files import shown
from splatbatch.scene.colmap.types import PINHOLE_MODELS, Camera
from splatbatch.scene.geometry import limits
from splatbatch.scene.image_match import relabelings
from splatbatch.scene.image_match.displacement_field import DisplacementField
from splatbatch.scene.image_match.match_context import ALIKE, AS_IS, UNLIKE, MatchContext, Relabeling
from splatbatch.scene.image_match.ncc_patches import MatchView, sharpness
from splatbatch.scene.photos.headers import SameSize, ScaledSize, relate
from splatbatch.text import list_some, plural

DISPLACED, DISPLACED_PX = 0.0012, 0.4
"""A displacement that all photographs, or all of a camera, share is reported from this size on, if it is certain.

Displacement: how far photographs show points from where the model puts them. The size is a root mean square over the
points that are compared, as a share of the longer side and in pixels of the reduced picture. Both limits must be
reached. Intact: 0.0001. A zoom of 1 % is up to 0.003.
"""
DISPLACED_ONE, UNUSUAL = 0.002, 5.0
"""A single displaced photograph is reported from this displacement on; both limits must be reached.

The first is a root mean square as a share of the longer side. The second is a multiple of the median displacement of
all single photographs. `DISPLACED_PX` must be reached, too. Intact: 0.0002, in a few photographs 0.0008.
"""
_BLACK, _FLAT = 12.0, 1.0  # of 255: mean of a black photograph, standard deviation of one that shows nothing
_BLURRED = 0.4  # of the fine structure that others show; intact: 0.87 at least
_COARSE_TO_FINE = (8, 4, 4, 2, 1)
_CONVERGED = (2, 1, 1)  # for the figure that is told: one step at full size leaves 7 % of a zoom of 1 %
_ERRORS = 2.0  # standard errors that a figure must reach to name something
_RISE = 0.004  # in likeness, for a field to be believed
_Tried = tuple[float, float, DisplacementField | None]
"""By how much the correlations of all pairs rise with a field; its size in focal lengths; and the field, if any.

The rise is 0 where the field is too small to be reported, not certain, or hardly makes pairs more alike.
"""


@dataclass(frozen=True, eq=False)
class ImageMatchFindings:
    """Findings about the photographs of one model, from comparing pairs of photographs at the model's points."""

    compared: MatchContext
    """Images of the model with their photographs, and the pairs to compare."""
    folder: Path
    """Folder of the photographs; folders beside it are searched for photographs that match better."""
    sparse: Path
    """Folder of the model; other models near it are tried where the lens does not match."""
    writer: FindingWriter
    """Makes the findings, under the name of the patch."""

    def findings(self) -> Iterator[AuditFinding]:
        """Yield the findings; none without pairs to compare. The first 256 photographs to compare are decoded at once.

        Order: blank photographs, sets that do not match their points, displaced ones, single ones that do not match,
        then blurred ones. If at least half are blank, one error stands for these.

        If at least half have another shape than their camera, even by a few pixels, less is reported. That is the blank
        ones, and at most one finding about all.

        Raises:
            PermissionError: a folder beside that of the photographs must not be entered.
        """
        compared = self.compared
        if not compared.pairs:
            return
        compared.decode()
        if self._blank and len(self._blank) >= limits.HALF * len(compared.rows):
            what = next(iter(self._blank.values()))
            message = f"{len(self._blank)} of {len(compared.rows)} photographs that were compared are {what}"
            yield replace(self.writer.note("blank", "photographs", message), severity="error")
        else:
            yield from (self.writer.note("blank", self._name(row), f"is {what}") for row, what in self._blank.items())
        others = [relate(self._camera(row).size, size) for row, size in compared.sizes.items()]
        num_odd = sum(not isinstance(relation, SameSize | ScaledSize) for relation in others)
        if num_odd >= limits.HALF * max(1, len(others)):  # which `check_sizes` reports
            yield from self._of_another_shape()
            return
        wrong = set()
        for rows in self._sets():
            wrong |= self._of_cameras(rows)
            yield self._of_set(rows)
        for rows, finding in self._displaced(wrong):
            wrong |= rows
            yield finding
        yield from filter(None, map(self._of_one, sorted(self._bad - wrong)))
        yield from self._blurred(wrong | self._bad)

    @cached_property
    def _blank(self) -> dict[int, str]:
        found = {}
        for row in self.compared.rows:
            view = self.compared.view(row)
            if view is not None and view.picture.std() < _FLAT and not self._known[row] >= UNLIKE:
                found[row] = "black" if view.picture.mean() < _BLACK else "of one colour"
        return found

    @cached_property
    def _known(self) -> dict[int, float]:
        return self.compared.values()

    @cached_property
    def _values(self) -> dict[int, float]:
        """Correlation of each photograph that can be judged, by row: known, and not blank."""
        return {row: value for row, value in self._known.items() if np.isfinite(value) and row not in self._blank}

    @cached_property
    def _bad(self) -> set[int]:
        return {row for row, value in self._values.items() if value < UNLIKE}

    def _of_another_shape(self) -> Iterator[AuditFinding]:
        """Yield a finding about photographs of another shape: of the wrong lens, or showing none of their points.

        The latter is tried only if they match neither as stored nor when read as cropped about the centre.
        """
        rows = set(self._values)
        means = [self.compared.mean(dict.fromkeys(rows, reading)) for reading in (AS_IS, relabelings.CROPPED)]
        alike = float(np.nanmax([*means, -1.0]))
        if rows and (mixed := self._mixed(rows, alike)):
            yield mixed
        elif rows and alike < ALIKE and (chosen := self._best(rows, self._hypotheses())):
            message = f"{self._counted(rows)} none of the points that they should show; they are {chosen[0].words}"
            yield self.writer.note("other_pictures", self._subject(rows), message, chosen[0].remedy)

    def _sets(self) -> Iterator[set[int]]:
        """Yield sets of failing photographs: all if most fail, else those of each camera where most do."""
        if len(self._bad) >= max(2, limits.HALF * len(self._values)):
            yield set(self._bad)
            return
        for rows in self._by_camera(self._values):
            if len(rows & self._bad) >= max(2, limits.HALF * len(rows)):
                yield rows & self._bad

    def _of_cameras(self, rows: Iterable[int]) -> set[int]:
        """Return all judged photographs of the cameras of the given rows."""
        numbers = {self._camera_id(row) for row in rows}
        return {row for row in self._values if self._camera_id(row) in numbers}

    def _by_camera(self, rows: Iterable[int]) -> list[set[int]]:
        groups = grouped((self._camera_id(row), row) for row in rows)
        return [set(groups[number]) for number in sorted(groups)]

    def _of_set(self, rows: set[int]) -> AuditFinding:
        """Return the finding about failing photographs; one camera alone is named if that explains it better."""
        chosen, subject = self._best(rows, self._hypotheses()), rows
        for part in self._by_camera(rows) if len(self._by_camera(self._values)) > 1 else ():
            of_part = self._best(rows, self._hypotheses(), part)
            if of_part and (chosen is None or of_part[1] > chosen[1] + _RISE):
                chosen, subject = of_part, part
        if chosen is None and (mixed := self._mixed(rows)):
            return mixed
        if chosen is None and (moved := self._field_of(rows)):
            return self._note_field(rows, moved)
        usual = float(np.median([self._values[row] for row in rows]))
        seen = f"{self._counted(subject)} none of the points that they should show (correlation {usual:.2f}); "
        if chosen is None:
            seen += "turned, mirrored, shifted or of another folder they fit no better: they show another scene"
            return self.writer.note("other_pictures", self._subject(rows), seen)
        seen += f"they are {chosen[0].words} (read that way, their correlation is {chosen[1]:.2f})"
        return self.writer.note("other_pictures", self._subject(subject), seen, chosen[0].remedy)

    def _hypotheses(self) -> Iterator[Relabeling]:
        yield from relabelings.TURNED
        yield from relabelings.of_names(self.compared)
        yield from relabelings.of_folders(self.compared, self.folder)

    def _best(
        self, rows: Collection[int], candidates: Iterable[Relabeling], part: Collection[int] | None = None
    ) -> tuple[Relabeling, float] | None:
        """Return the relabeling under which most photographs match, and their median correlation; None: there is none.

        Args:
            rows: photographs to be judged.
            candidates: relabelings to try.
            part: photographs that are relabeled; None: all of `rows`.
        """
        found = []
        for reading in candidates:
            values = self.compared.values(dict.fromkeys(rows if part is None else part, reading), rows)
            known = np.nan_to_num([values[row] for row in rows], nan=-1.0)
            if (known >= ALIKE).mean() >= limits.MOST:
                found.append((float(np.median(known)), reading))
        if not found:
            return None
        value, reading = max(found, key=lambda pair: pair[0])
        return reading, value

    def _of_one(self, row: int) -> AuditFinding | None:
        """Return the finding about one photograph that does not match its points while most do.

        None if nothing explains it, and all photographs that it was compared with fail, too: they may be at fault.
        """
        name, seen = self._name(row), f"shows none of its points (correlation {self._values[row]:.2f}), others do"
        beside = {row + step for step in (-2, -1, 1, 2)} & self.compared.paths.keys() - self._values.keys()
        partners = {
            relabelings.of_image(self.compared, other): self._name(other)
            for other in sorted((self._bad | beside) - {row})
        }
        if chosen := self._best([row], partners):
            message = f"{seen}; {partners[chosen[0]]} shows them: the two photographs are exchanged"
            return self.writer.note("photos_exchanged", name, message, chosen[0].remedy)
        if chosen := self._best([row], relabelings.TURNED):
            return self.writer.note("other_content", name, f"{seen}; it is {chosen[0].words}", chosen[0].remedy)
        if moved := self._field_of({row}):
            return self._note_field({row}, moved)
        if self._bad.issuperset(self.compared.touching([row]).rows):
            return None
        return self.writer.note(
            "other_content", name, f"{seen}: it is another photograph, or something was before the lens"
        )

    def _field_of(self, rows: set[int]) -> DisplacementField | None:
        """Return a displacement under which the photographs match their points; None if there is none."""
        everyone = self._of_cameras(rows) if len(rows) > 1 else rows
        field = self.compared.of(everyone).displacement(everyone, levels=_COARSE_TO_FINE)
        return field if field and self._best(everyone, [Relabeling("", displacement=field)]) else None

    def _displaced(self, wrong: set[int]) -> Iterator[tuple[set[int], AuditFinding]]:
        """Yield findings about photographs that show their points displaced, even by pixels only.

        All of them, those of each camera and single ones are tried. What explains most of how unlike pairs are comes
        first, so that photographs beside a displaced one are not blamed for it.
        """
        left, known = self.compared.without(wrong | self._bad), dict[frozenset[int], _Tried]()
        while True:
            rest = set(self._values) & set(left.rows)
            groups = {frozenset(rows) for rows in (rest, *self._by_camera(rest)) if len(rows) > limits.FEW}
            groups |= {frozenset({row}) for row in rest}
            known = {rows: known.get(rows) or self._tried(left, rows) for rows in groups}
            ones = [size for rows, (_, size, _) in known.items() if len(rows) == 1]
            least = UNUSUAL * float(np.median(ones or [0.0]))
            sure = [
                (gain, rows, field)
                for rows, (gain, size, field) in known.items()
                if field and gain and (len(rows) > 1 or size >= least)
            ]
            if not sure:
                return
            _, rows, field = max(sure, key=itemgetter(0))
            everyone = self._of_cameras(rows) - wrong if len(rows) > 1 else set(rows)
            yield everyone, self._note_field(everyone, left.displacement(rows, levels=_CONVERGED) or field)
            beside = set(left.touching(rows).rows)
            known = {one: tried for one, tried in known.items() if not one & beside}
            left = left.without(rows)

    def _tried(self, left: MatchContext, rows: frozenset[int]) -> _Tried:
        """Return what the displacement of some photographs explains, if the others are not displaced."""
        pairs = left.touching(rows)
        if not (field := pairs.displacement(rows)):
            return 0.0, 0.0, None
        view, size = self._view(rows), field.size(pairs.places(rows))
        least = max(DISPLACED_PX, max(view.picture.shape) * (DISPLACED if len(rows) > 1 else DISPLACED_ONE))
        if size * view.focal < least or size < _ERRORS * pairs.displacement_error(rows):
            return 0.0, size, field
        rise = pairs.mean(dict.fromkeys(rows, Relabeling("", displacement=field))) - pairs.mean()
        return rise * len(pairs.pairs) if rise >= _RISE else 0.0, size, field

    def _note_field(self, rows: set[int], field: DisplacementField) -> AuditFinding:
        """Return the finding about displaced photographs, worded after the largest part of the field."""
        view, places = self._view(rows), self.compared.places(rows)
        parts, size = field.parts(places), field.size(places) * view.focal / max(view.picture.shape)
        if max(parts, key=lambda name: parts[name]) == "lens" and (mixed := self._mixed(rows)):
            return mixed
        far = f"elsewhere, by {size * max(self.compared.sizes[min(rows)]):.2g} px on average"
        message = f"{self._counted(rows)} their points {far}: they are {field_in_words(field, view, parts)}"
        if len(rows) == 1:
            message = f"shows its points {far}: it is {field_in_words(field, view, parts)}"
        found = self.writer.note("displaced", self._subject(rows), message)
        return found if len(rows) > 2 else replace(found, severity="warning")

    def _mixed(self, rows: set[int], alike: float | None = None) -> AuditFinding | None:
        """Return the finding about undistorted photographs with the distorted model, or the reverse; None if neither.

        Also None for fewer than three photographs.

        Args:
            rows: the photographs.
            alike: correlation to be exceeded; None: the correlation of the photographs as stored.
        """
        part = self.compared.of(rows)
        if len(rows) < 3:
            return None
        before = part.mean() if alike is None else alike
        enough = max(ALIKE, before + _RISE)
        near = [(model.mean(), folder) for folder, model in relabelings.models_near(self.sparse, part)]
        near = [(value, folder) for value, folder in near if value >= enough]
        is_bent = any(self._camera(row).model not in PINHOLE_MODELS for row in rows)
        others = (dict.fromkeys(rows, reading) for reading in relabelings.UNDISTORTED)
        fits = any(part.mean(other) >= enough for other in others) if is_bent else self._is_bent(part, rows, enough)
        if not near and not fits:
            return None
        words = "undistorted already, but the camera in the model still has its distortion"
        message = f"{self._counted(rows)} their points elsewhere (correlation {before:.2f}): they are"
        message += f" {words if is_bent else 'still distorted, but the model is for undistorted photographs'}"
        remedy = f"{relabelings.UNDISTORT_BOTH}."
        if near:
            value, folder = max(near)
            message += f"; the model in {shown(str(folder))} fits them (correlation {value:.2f})"
            remedy = f"Train with the model in {folder}."
        return self.writer.note("lens_mix", self._subject(rows), message, remedy)

    def _is_bent(self, part: MatchContext, rows: set[int], enough: float) -> bool:
        """Return whether the displacement of a pinhole's photographs is mostly lens distortion."""
        field = part.displacement(rows, levels=_COARSE_TO_FINE)
        parts = field.parts(part.places(rows)) if field else {"lens": 0.0}
        if field is None or parts["lens"] < max(parts.values()):
            return False
        return part.mean(dict.fromkeys(rows, Relabeling("", displacement=field))) >= enough

    def _blurred(self, wrong: set[int]) -> Iterator[AuditFinding]:
        finer: dict[int, list[float]] = {}
        for pair in self.compared.pairs:
            one, other = self.compared.view(pair.one), self.compared.view(pair.other)
            if one and other and not {pair.one, pair.other} & (wrong | set(self._blank)):
                ratio = sharpness(pair, one, other)
                finer.setdefault(pair.one, []).append(ratio)
                finer.setdefault(pair.other, []).append(1 / ratio if ratio else float("nan"))
        for row, ratios in sorted(finer.items()):
            if len(ratios) > 1 and (np.array(ratios) < _BLURRED).all():
                message = f"is blurred: it has {100 * max(ratios):.0f} % of the fine detail that its neighbours show"
                yield self.writer.note("blurred", self._name(row), message)

    def _camera_id(self, row: int) -> int:
        """Return the camera that an image is judged with."""
        own = self.compared.images[row].camera_id
        return self.writer.alike.get(own, own)

    def _camera(self, row: int) -> Camera:
        return self.compared.cameras[self.compared.images[row].camera_id]

    def _view(self, rows: Collection[int]) -> MatchView:
        view = self.compared.view(min(rows))
        assert view is not None  # noqa: S101 - it was compared
        return view

    def _counted(self, rows: Collection[int]) -> str:
        return f"{len(rows)} of {plural(len(self._values), 'photograph')} that were compared show"

    def _name(self, row: int) -> str:
        return shown(self.compared.images[row].name)

    def _subject(self, rows: Collection[int]) -> str:
        numbers = {self._camera_id(row) for row in rows}
        if len(rows) > 3 and len(numbers) < len({self._camera_id(row) for row in self._values}):
            return ", ".join(map(self.writer.camera, sorted(numbers)))
        return "photographs" if len(rows) > 3 else list_some(map(self._name, sorted(rows)))


def is_left_behind(compared: MatchContext, rows: Collection[int]) -> bool | None:
    """Return whether photographs fit their points only with the K from before a resize or crop.

    If so, the photographs were changed, and K was left as it was. None: no pair of photographs can be compared.

    Args:
        compared: images of the model with the pairs that are compared.
        rows: images to judge, as indices of `compared.images`.

    Raises:
        SceneError: one of these images has a camera without a principal point.
    """
    seen = compared.of(rows)
    as_is = seen.mean()
    if not np.isfinite(as_is):
        return None
    return as_is < ALIKE <= max(seen.mean(dict.fromkeys(rows, reading)) for reading in relabelings.LEFT_BEHIND)


def field_in_words(field: DisplacementField, view: MatchView, parts: Mapping[str, float]) -> str:
    """Return what a displacement field does to photographs in words, the largest part first.

    Parts of 30 % of the largest or less are left out. The text is empty for a field without displacement.

    Args:
        field: the displacement.
        view: a displaced photograph, whose size and focal length turn the field's numbers into shares.
        parts: how far each number displaces the photograph, of which the largest are told.
    """
    height, width = view.picture.shape
    zoom, stretch, turn = 100 * field.zoom, 200 * field.stretch, np.degrees(field.turn)
    right, down = (100 * share * view.focal / side for share, side in ((field.right, width), (field.down, height)))
    words = {
        "zoom": f"{'enlarged' if zoom > 0 else 'shrunk'} by {abs(zoom):.2g} % about the centre",
        "stretch": f"stretched by {abs(stretch):.2g} % in {'x' if stretch > 0 else 'y'}",
        "right": f"shifted by {abs(right):.2g} % to the {'right' if right > 0 else 'left'}",
        "down": f"shifted {'down' if down > 0 else 'up'} by {abs(down):.2g} %",
        "turn": f"turned {'' if turn > 0 else 'counter'}clockwise by {abs(turn):.2g} degrees",
        "lens": f"bent as by a lens with k1 = {field.lens:.2g}",
    }
    most = max(parts.values())
    return " and ".join(
        words[name] for name in sorted(parts, key=lambda name: -parts[name]) if parts[name] > 0.3 * most
    )
