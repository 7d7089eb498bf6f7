"""Decides whether the accepted splat of each patch is up to date, for status, plan, train, report and metrics.

The settings, inputs and files recorded with the splat are compared with the present ones. Nothing is written. Products
that are no splats are judged by `tasks.product`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from splatbatch import __version__
from splatbatch.config import Config, Recipe
from splatbatch.hashing import FileFacts, Stamp, Stamps, stamp_of
from splatbatch.output.endings import TaskHistory
from splatbatch.output.events import PatchRejected
from splatbatch.output.folders import ACCEPTED, RESULT, SPLAT
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
"""Seconds between two looks at the files of the shared decisions, since each of thousands of patches asks for them."""
CORE = "patch/"
"""Begin of the key of patch.json, which holds the core; a changed core makes a patch stale.

Where contents are not compared, only another size shows the change.
"""


class Observation(NamedTuple):
    """Differences between the input files of a patch and those of its accepted splat, its rejection and its giving up.

    During a run a reader process makes the observation, since files of the scene may hang. An observation is valid for
    the attempt and the events that its first three fields name.
    """

    attempt: str = ""
    """Attempt whose accepted splat was compared, as "attempt-01"; empty: there is none."""
    given_up_at: float | None = None
    """Time of the event by which the patch was given up, in s since 1970; None: it was not, or for one run only."""
    rejected_at: float | None = None
    """Time of the event by which the audit rejected it, in s since 1970; None: it did not, or it was tried since."""
    inputs: str = ""
    """Words on the files that have changed since the compared splat was trained.

    Empty: none is known to have, or there is no splat. Empty, too, for the backdrop, whose inputs are frozen.
    """
    is_uncompared: bool = False
    """Whether files or lists have another time than recorded, or are new, and their contents were not compared."""
    is_outdated: bool = False
    """Whether the record differs from the input files: another size or time, or a file that is missing or new.

    This alone makes no splat stale; see `InputFiles.list_moved`.
    """
    given_up: str = ""
    """Reason why the patch was given up, if that still holds; else empty."""
    rejected: str = ""
    """Reason why the audit rejected the patch, if its files have not changed since; else empty."""


class FreshnessChecker:
    """Tells the state of each task of a batch, as often as asked; `patch_state` has the states.

    Each input file is looked at once, until `forget` is called; files of the output folder again whenever they change.
    """

    def __init__(
        self,
        config: Config,
        file: Path,
        tasks: Sequence[Task],
        shared: SharedDecisions,
        *,
        depth: Depth = "time",
    ) -> None:
        """Prepare the comparison; files are only read when a state is asked for.

        Args:
            config: config of the batch.
            file: path of its YAML.
            tasks: tasks to judge.
            shared: shared decisions of the batch.
            depth: how thoroughly to compare: "time": size and time; "content": contents, too, where these have changed;
                "every byte": splats are read in full.
        """
        self.output = OutputFolder(config.output.folder)
        self.config, self.config_file = config, file
        self.tasks = {task.name: task for task in tasks}
        """Tasks by name, under the settings and shared decisions of now."""
        self._shared = shared
        self._depth = depth
        self.endings = TaskHistory(self.output)
        """Latest event of each patch in the ledgers, such as its end or its rejection."""
        self._stamps = Stamps()
        self._facts = FileFacts(self._stamps, reads=depth != "time")

        self._observations: dict[str, Observation] = {}
        self._is_scene_closed = False
        self._look_again()

    def observe(self, name: str) -> Observation:
        """Return the differences between the input files of a patch and those of its accepted splat.

        Call it in a reader process, since reading the files may hang.

        Raises:
            LaterFormatError: a later version of splatbatch wrote a manifest (result.json).
        """
        return self._observed(
            name, self.output.patch(name).read_result() if isinstance(self.tasks[name], TrainTask) else None
        )

    def close_scene(self, found: Mapping[str, Observation]) -> None:
        """Read no more input files: use these observations, made by reader processes, until `forget` is called.

        Args:
            found: observations by task name; tasks without one count as unchanged.
        """
        self._observations, self._is_scene_closed = dict(found), True
        self._look_again()

    def forget(self) -> None:
        """Drop all observations, known files and shared decisions, so that every file is looked at again.

        Raises:
            SceneError: a split was interrupted, or partition.json is broken.
            LaterFormatError: a later version of splatbatch wrote a record that is read.
        """
        self._facts = FileFacts(self._stamps, reads=self._depth != "time")
        self._observations, self._is_scene_closed = {}, False
        self._share_anew()
        self._look_again()

    def _share_anew(self) -> None:
        """Read the shared decisions again, and apply them to the tasks."""
        self._shared = SharedDecisions.known(self.config, self.output)
        self.tasks = {task.name: task for task in self._shared.apply([*self.tasks.values()])}

        self._products.clear()

    def _look_again(self) -> None:
        """Drop all states, so that the files of the output folder are read again."""
        self._next_look = float("-inf")
        self._products: dict[str, tuple[tuple[Stamp, ...], PatchState]] = {}
        """State of each product, with the stamps of the files that it was read from."""
        self._backdrop: tuple[tuple[Stamp, ...], str] = ((), "")
        """Hash of the accepted backdrop, with the stamps of the files that it was read from."""

    def state(self, name: str, rejection: str = "") -> PatchState:
        """Return the state of a task; `assess` says how product, rejection and giving up are weighed.

        Args:
            name: name of the task.
            rejection: reason why the audit rejects it; empty: it is not rejected.

        Raises:
            SceneError: the shared decisions have changed, and a split was interrupted or partition.json is broken.
            LaterFormatError: a later version of splatbatch wrote a record that is read.
        """
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
        """Return why the latest audit rejected a patch; empty if it did not, or if files have changed since.

        Raises:
            LaterFormatError: a later version of splatbatch wrote a record that is read.
        """
        if not isinstance(event := self.endings.last(name), PatchRejected):
            return ""
        found = self._observed(name, self._product(name).result)
        return found.rejected if event.t == found.rejected_at else event.reason

    def is_due(self, name: str) -> bool:
        """Return whether `train` would make a task: the product is missing, stale or damaged.

        False for a task that was given up; a rejection by the audit is not looked at.

        Raises:
            SceneError: the shared decisions have changed, and a split was interrupted or partition.json is broken.
            LaterFormatError: a later version of splatbatch wrote a record that is read.
        """
        return is_due(self.state(name))

    def is_up_to_date(self, name: str) -> bool:
        """Return whether the product of a task is up to date, also if file contents were not compared.

        Raises:
            SceneError: the shared decisions have changed, and a split was interrupted or partition.json is broken.
            LaterFormatError: a later version of splatbatch wrote a record that is read.
        """
        return isinstance(self.state(name), UpToDate)

    def _product(self, name: str) -> PatchState:
        """Return the state of a product, compared again only if its files have changed; asked every second in a run."""
        task = self.tasks[name]
        if (product := task.product()) is not None:
            return product
        place = f"{self.output.path}/patches/{name}"
        stamps = [stamp_of(f"{place}/{file}") for file in (RESULT, SPLAT, ACCEPTED)]
        stamps_now = (*stamps, *_backdrop_stamps(task.patch.behind))
        if name not in self._products or self._products[name][0] != stamps_now:
            self._products[name] = (stamps_now, self._compared(name, *stamps))
        return self._products[name][1]

    def _compared(self, name: str, manifest: Stamp, splat: Stamp, accepted: Stamp) -> PatchState:
        """Return the state of a splat, by its manifest."""
        if (manifest.num_bytes < 0 and accepted.num_bytes < 0) or (
            result := self.output.patch(name).read_result()
        ) is None:
            return Missing()
        task, folder, held = self.tasks[name], self.output.patch(name), result.held_against
        facts = FileFacts(self._stamps, reads=self._depth != "time") if self._is_scene_closed else self._facts
        found, other_records = self._observed(name, result), self._shared.why_stale(result, task)
        damage = why_not_the_splat(folder, result, self._depth, facts)
        is_seen = found.attempt == result.attempt  # else it was trained in this run, from the files of now
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
        """Return the observation of a patch: that of `close_scene` if the scene is closed, else one made now."""
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
        held = result.held_against
        if not task.yaml_settings.acceptable_hashes.isdisjoint((held.recipe, held.effective)):
            return ""
        recipes = task.recipe.acceptable()
        changes = min(
            (changed_settings(held.settings, settings_of(one), settings_of(Recipe())) for one in recipes), key=len
        )
        if held.settings and changes:
            return f"settings have changed: {', '.join(changes)}"
        hashes = {held.recipe, held.effective}.intersection(one for each in recipes for one in earlier_hashes(each))
        if held.settings and (result.version != __version__ or hashes):
            return ""  # another version that knows more or fewer settings makes no splat stale
        return "settings have changed"

    def _compare_inputs(self, held: Fingerprint, task: Task) -> tuple[str, bool, bool]:
        """Return words on changed files, whether contents were not compared, and whether any size or time differs."""
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
        return f"model, patch borders or hold-out have changed{f': {list_some(lists)}' if lists else ''}", False, True

    def _behind(self, task: Task) -> str:
        """Return the hash of the accepted backdrop, if it is drawn behind this task; else empty."""
        if not is_drawn_behind(task.patch, task.recipe):
            return ""
        if (stamps_now := _backdrop_stamps(task.patch.behind)) != self._backdrop[0]:
            self._backdrop = (stamps_now, backdrop_hash(task.patch, task.recipe))
        return self._backdrop[1]


def _backdrop_stamps(place: Path | None) -> tuple[Stamp, ...]:
    """Return the stamps of the backdrop's manifest and records, which change with its splat; empty without backdrop."""
    return tuple(stamp_of(f"{place}/{name}") for name in (RESULT, ACCEPTED)) if place else ()
