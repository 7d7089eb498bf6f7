"""How every patch of a batch stands: what lies there, held against what would be trained today. Reads, never writes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from splatbatch import __version__
from splatbatch.config import Config, Recipe
from splatbatch.hashing import FileFacts, Stamp, Stamps, stamp_of
from splatbatch.output.endings import TaskHistory
from splatbatch.output.events import PatchRejected
from splatbatch.output.folders import ACCEPTED, RESULT, SPLAT
from splatbatch.output.index import Index
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.fingerprint import MODEL, Fingerprint, is_content
from splatbatch.output.records.result import Result
from splatbatch.output.results import Depth, compare_splat, has_moved, why_not_the_splat
from splatbatch.tasks.fingerprint import (
    backdrop_hash,
    border_hash,
    changed_settings,
    earlier_hashes,
    is_drawn_behind,
    settings_of,
)
from splatbatch.tasks.given_up import key_of
from splatbatch.tasks.input_files import state_of
from splatbatch.tasks.patch_state import UNCOMPARED, Damaged, Missing, PatchState, Stale, UpToDate, assess, is_due
from splatbatch.tasks.shared_decisions.decisions import SharedDecisions, stamps_of
from splatbatch.tasks.task import Task, TrainTask
from splatbatch.text import list_some

LOOK_S = 0.05
"""Between two looks at the files of what is shared: of thousands of patches each asks."""
CORE = "patch/"
"""What the name of patch.json begins with: another core is another patch, whatever its model holds."""


class Observation(NamedTuple):
    """What the files of the scene say of a patch: of its splat, of its rejection and of its having been given up.

    A reader asks them, for they may hang; it counts as long as splat and events are those that it names.
    """

    attempt: str = ""
    """Whose accepted splat was compared."""
    given_up_at: float | None = None
    rejected_at: float | None = None
    inputs: str = ""
    """Which files have changed since that splat was trained; empty for none."""
    is_uncompared: bool = False
    is_outdated: bool = False
    given_up: str = ""
    """Why it was given up, if that is still so."""
    rejected: str = ""
    """Why the audit rejected it, if that is still so."""


class FreshnessChecker:
    """Says how tasks stand: observes what lies there, each file once, and assesses it."""

    def __init__(  # noqa: PLR0913 - what a batch is made of
        self,
        config: Config,
        file: Path,
        tasks: Sequence[Task],
        shared: SharedDecisions,
        *,
        depth: Depth = "time",
        index: Index | None = None,
    ) -> None:
        """Look at sizes and times only, at content where these have moved, or at every byte of the splats.

        Args:
            config: of the batch.
            file: that it was read from.
            tasks: those that are looked at.
            shared: what is decided for the batch.
            depth: how closely.
            index: of what was read of them before, for a look at sizes and times.
        """
        self.output = OutputFolder(config.output.folder)
        self.config, self.config_file = config, file
        self.tasks = {task.name: task for task in tasks}
        """By name, each with what would train it today."""
        self._shared = shared
        self._depth = depth
        self._index = index if depth == "time" else None
        self.endings = TaskHistory(self.output)
        """What the ledger says of the patches."""
        if self._index:
            self.endings.resume(self._index.ledger)
        self._stamps = Stamps()
        self._facts = FileFacts(self._stamps, reads=depth != "time")

        self._observations: dict[str, Observation] = {}
        self._is_scene_closed = False
        self._look_again()

    def observe(self, name: str) -> Observation:
        """Ask the files of its scene how a patch stands."""
        return self._observed(
            name, self.output.patch(name).read_result() if isinstance(self.tasks[name], TrainTask) else None
        )

    def close_scene(self, found: Mapping[str, Observation]) -> None:
        """Ask the scene nothing more: what readers have found of it counts until `forget` is called."""
        self._observations, self._is_scene_closed = dict(found), True
        self._look_again()

    def forget(self) -> None:
        """Look at every file anew from now on."""
        self._facts = FileFacts(self._stamps, reads=self._depth != "time")
        self._observations, self._is_scene_closed = {}, False
        self._share_anew()
        self._look_again()

    def _share_anew(self) -> None:
        """Go by what is decided for the batch by now."""
        self._shared = SharedDecisions.known(self.config, self.output)
        self.tasks = {task.name: task for task in self._shared.apply([*self.tasks.values()])}

        self._products.clear()

    def _look_again(self) -> None:
        """Look at what lies in the output folder anew."""
        self._next_look = float("-inf")
        self._others: dict[tuple[Any, ...], bool] = {}
        self._products: dict[str, tuple[tuple[Stamp, ...], PatchState]] = {}
        """How each product stands, and the files that say so."""
        self._backdrop: tuple[tuple[Stamp, ...], str] = ((), "")
        """The hash of the splat that is drawn behind patches, and the files that say it."""

    def state(self, name: str, rejection: str = "") -> PatchState:
        """Return how a task stands; see `assess`."""
        if (now := time.monotonic()) >= self._next_look:
            self._next_look = now + LOOK_S
            if stamps_of(self.config, self.output) != self._shared.stamps:
                self._share_anew()
        product, event = self._product(name), self.endings.given_up(name)
        if event is None:
            return assess(product, rejection)
        found = self._observed(name, product.result)
        return assess(product, rejection, found.given_up if event.t == found.given_up_at else event.reason)

    def rejection(self, name: str) -> str:
        """Return why the latest audit rejected a patch, if nothing has changed since; empty if it did not."""
        if not isinstance(event := self.endings.last(name), PatchRejected):
            return ""
        found = self._observed(name, self._product(name).result)
        return found.rejected if event.t == found.rejected_at else event.reason

    def is_due(self, name: str) -> bool:
        """Return whether a task is to be made."""
        return is_due(self.state(name))

    def is_up_to_date(self, name: str) -> bool:
        """Return whether the product of a task is what would be made now."""
        return isinstance(self.state(name), UpToDate)

    def keep(self) -> None:
        """Bring the index up to date."""
        if self._index and self._index.has_news:
            self._index.keep(self.endings.digest())

    def _product(self, name: str) -> PatchState:
        """Return how the product of a task stands; asked every second while a batch runs."""
        task = self.tasks[name]
        if (product := task.product()) is not None:
            return product
        place = f"{self.output.path}/patches/{name}"
        stamps = [stamp_of(f"{place}/{file}") for file in (RESULT, SPLAT, ACCEPTED)]
        stamps_now = (*stamps, *_backdrop_stamps(task.patch.behind))
        if name not in self._products or self._products[name][0] != stamps_now:
            self._products[name] = (stamps_now, self._indexed(name, *stamps) or self._compared(name, *stamps))
        return self._products[name][1]

    def _indexed(self, name: str, manifest: Stamp, splat: Stamp, accepted: Stamp) -> UpToDate | None:
        """Return how a splat stands that nothing speaks against, by the index; None: its manifest is needed."""
        if self._index is None or (brief := self._index.brief(name, manifest, accepted)) is None:
            return None
        task = self.tasks[name]
        is_as_it_was = (
            brief.splat == [splat.num_bytes, splat.mtime_ns]
            and not task.yaml_settings.acceptable_hashes.isdisjoint(brief.recipes)
            and not task.input_files(self._facts).list_moved_of_model(brief.model)
            and not self._have_others_moved(self._index, brief.others, task)
            and brief.settled == self._key(task)
        )
        return UpToDate(result=Result(name, brief.attempt)) if is_as_it_was else None

    def _have_others_moved(self, index: Index, others: str, task: Task) -> bool:
        patch, recipe = task.patch, task.recipe
        key = (others, patch.images, patch.masks, patch.source, patch.partition and patch.sparse, id(recipe))
        if key not in self._others:
            self._others[key] = bool(task.input_files(self._facts).list_moved_others(index.others[others]))
        return self._others[key]

    def _compared(self, name: str, manifest: Stamp, splat: Stamp, accepted: Stamp) -> PatchState:
        """Return how a splat stands, by its manifest."""
        if (manifest.num_bytes < 0 and accepted.num_bytes < 0) or (
            result := self.output.patch(name).read_result()
        ) is None:
            return Missing()
        task, folder, held = self.tasks[name], self.output.patch(name), result.held_against
        facts = FileFacts(self._stamps, reads=self._depth != "time") if self._is_scene_closed else self._facts
        found, other_records = self._observed(name, result), self._shared.why_stale(result, task)
        damage = why_not_the_splat(folder, result, self._depth, facts)
        if self._index and not result.is_ahead and not damage:
            self._index.learn(name, (manifest, accepted), result, "" if other_records else self._key(task))
        is_seen = found.attempt == result.attempt  # else it is of tonight: trained from what lies there now
        inputs = found.inputs if is_seen else ""
        surroundings = held.why_other_surroundings(border_hash(task.patch, task.recipe), self._behind(task))
        if damage:
            return Damaged(f"{SPLAT} {damage}", result, SPLAT)
        if why := self._why_other_settings(result, task) or inputs or other_records or surroundings:
            return Stale(why, result)
        is_uncompared = (is_seen and found.is_uncompared) or compare_splat(folder, result, facts) == "unread"
        return UpToDate(
            f"trained, {UNCOMPARED}" if is_uncompared else "trained",
            result,
            is_uncompared=is_uncompared,
            is_outdated=(is_seen and found.is_outdated) or not held.files or has_moved(folder, result, facts),
        )

    def _observed(self, name: str, result: Result | None) -> Observation:
        """Return what the scene says of a patch: what readers have found if it is closed, else what it says now."""
        given_up, last = self.endings.given_up(name), self.endings.last(name)
        rejected = last if isinstance(last, PatchRejected) else None
        asked = (
            result.attempt if result else "",
            given_up.t if given_up else None,
            rejected.t if rejected else None,
        )
        found = self._observations.get(name, Observation())
        if not self._is_scene_closed and found[:3] != asked:
            task = self.tasks[name]
            compared = self._compare_inputs(result.held_against, task) if result else ("", False, False)
            files = task.input_files(self._facts).now().files if given_up or rejected else {}
            reasons = (
                given_up.reason if given_up and given_up.key == key_of(task.yaml_settings, files) else "",
                rejected.reason if rejected and rejected.inputs in (None, state_of(files)) else "",
            )
            self._observations[name] = found = Observation(*asked, *compared, *reasons)
        return found

    def _why_other_settings(self, result: Result, task: Task) -> str:
        held, recipe = result.held_against, task.recipe
        if not task.yaml_settings.acceptable_hashes.isdisjoint((held.recipe, held.effective)):
            return ""
        changed = held.settings and changed_settings(held.settings, settings_of(recipe), settings_of(Recipe()))
        if changed:
            return f"settings have changed: {', '.join(changed)}"
        hashes = {held.recipe, held.effective}.intersection(earlier_hashes(recipe))
        if held.settings and (result.version != __version__ or hashes):
            return ""  # a version of ours that knows more or fewer settings changes nothing by itself
        return "settings have changed"

    def _compare_inputs(self, held: Fingerprint, task: Task) -> tuple[str, bool, bool]:
        """Return which files have changed, whether contents were not compared, and whether any has moved."""
        then, inputs = held.files, task.input_files(self._facts)
        elsewhere = inputs.list_moved(then)
        if not elsewhere or task.patch.is_whole:  # the whole scene is frozen with the partition
            return "", False, bool(elsewhere)
        if self._depth == "time":
            found = inputs.compare(then, inputs.known_now(then))
            cores = [key for key in elsewhere if key.startswith(CORE) and key in then]
            cut_anew = [key for key in cores if self._facts.of(inputs.place(key)).num_bytes != then[key].num_bytes]
            others = (*found.changed, *found.unknown, *cut_anew)
            is_unread = bool(found.unread) or not all(is_content(key.rstrip("/")) for key in elsewhere)
            return f"changed on disk: {list_some(others)}" if others else "", is_unread, True
        now = inputs.now()
        found = inputs.compare(then, now.files)
        if others := (*found.changed, *found.unknown):
            what = "model or photographs" if any(key.startswith(MODEL) for key in others) else "photographs"
            return f"{what} have changed: {list_some(others)}", False, True
        if now.inputs == held.inputs:
            return "", False, True
        lists = [key for key in elsewhere if key in then and not is_content(key.rstrip("/"))]
        return f"model, core or hold-out have changed{f': {list_some(lists)}' if lists else ''}", False, True

    def _key(self, task: Task) -> str:
        """Return what tells what is decided for a task, and what lies around it."""
        border, shared = border_hash(task.patch, task.recipe), self._shared.key(task)
        return f"{shared} {border} {self._behind(task)}" if border else shared

    def _behind(self, task: Task) -> str:
        """Return the hash of the splat behind a task, which is that behind all; empty where none is drawn."""
        if not is_drawn_behind(task.patch, task.recipe):
            return ""
        if (stamps_now := _backdrop_stamps(task.patch.behind)) != self._backdrop[0]:
            self._backdrop = (stamps_now, backdrop_hash(task.patch, task.recipe))
        return self._backdrop[1]


def _backdrop_stamps(place: Path | None) -> tuple[Stamp, ...]:
    """Return what tells the splat behind patches from a later one; empty where none is."""
    return tuple(stamp_of(f"{place}/{name}") for name in (RESULT, ACCEPTED)) if place else ()
