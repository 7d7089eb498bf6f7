"""How every patch of a batch stands: what lies there, held against what would be trained today. Reads, never writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from splatbatch import __version__
from splatbatch.config import Config, Recipe
from splatbatch.hashing import FileFact, FileFacts, Stamp, Stamps, stamp_of
from splatbatch.output.endings import TaskHistory
from splatbatch.output.events import GaveUp, PatchRejected, TaskUnit
from splatbatch.output.folders import ACCEPTED, RESULT, SPLAT
from splatbatch.output.index import Index
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.fingerprint import MODEL, Fingerprint, is_content
from splatbatch.output.records.result import Result
from splatbatch.output.results import Depth, compare_splat, has_moved, why_not_the_splat
from splatbatch.scene.patches import Patch
from splatbatch.scene.photos.folders import stored_photographs
from splatbatch.tasks import given_up, plan
from splatbatch.tasks.fingerprints.fingerprint import (
    backdrop_hash,
    border_hash,
    earlier_hashes,
    is_drawn_behind,
    recipe_hash,
    settings_of,
)
from splatbatch.tasks.fingerprints.inputs import (
    Inputs,
    differences,
    files_now,
    inputs_of,
    locate,
    moved,
    moved_model,
    moved_others,
    places,
    state_of,
)
from splatbatch.tasks.product import Damaged, Stale, UpToDate
from splatbatch.tasks.shared_decisions.registry import Records, SharedRecordsWatcher
from splatbatch.tasks.task import Task
from splatbatch.text import list_some

ResultStamps = tuple[Stamp, Stamp, Stamp]
"""Of result.json, of splat.ply, and of the folder of the accepted records: its time is that of the newest in it."""


BackdropStamp = tuple[Stamp, ...]
"""Of what says which splat is drawn behind a patch; empty where none is."""
CORE = "patch/"
"""What the name of patch.json begins with: another core is another patch, whatever its model holds."""


class Observation(NamedTuple):
    """What the files of the scene say of a patch, which may hang when somebody asks them again."""

    attempt: str = ""
    """Whose splat was accepted."""
    inputs: str = ""
    """Which files have changed since it was trained."""
    uncompared: bool = False
    outdated: bool = False
    given_up_at: float | None = None
    given_up: str = ""
    """Why it was given up then, if that is still so."""
    refused_at: float | None = None
    refused: str = ""
    """Why the audit refused it then, if that is still so."""


class FreshnessChecker:
    """Says in what condition patches are, and decides on each; looks at every file once, as of when it was made."""

    def __init__(  # noqa: PLR0913 - what a batch is made of
        self,
        config: Config,
        file: Path,
        tasks: Sequence[Task],
        records: Records,
        *,
        depth: Depth = "time",
        index: Index | None = None,
    ) -> None:
        """Look at sizes and times only, at content where these have moved, or at every byte of the splats.

        Args:
            config: of the batch.
            file: that it was read from.
            tasks: those that are looked at.
            records: of what is settled for the batch.
            depth: how closely.
            index: of what was read of them before, for a look at sizes and times.
        """
        self._output = OutputFolder(config.output.folder)
        self.patches_folder, self.config_file = config.scene.patches, file
        """Where the patches lie, a partition beside them; the YAML."""
        self._config = config
        self._settled = SharedRecordsWatcher(config, self._output, records)
        self._tasks = {task.name: task for task in tasks}
        self._places = {name: f"{self._output.path}/patches/{name}" for name in self._tasks}
        self._depth = depth
        self._index = index if depth == "time" else None
        self.endings = TaskHistory(self._output)
        """What the ledger says of the patches."""
        if self._index:
            self.endings.resume(self._index.ledger)
        self._stamps = Stamps()
        self._facts = FileFacts(self._stamps, reads=depth != "time")
        self._hashes: dict[int, str] = {}
        self._others: dict[tuple[Any, ...], bool] = {}
        self._kept: dict[str, tuple[ResultStamps, BackdropStamp, plan.PatchState]] = {}
        self._given_up_now: dict[str, tuple[GaveUp, str]] = {}
        self._behind = _BackdropHash()
        self._of_scene: Mapping[str, Observation] | None = None

    def of_scene(self, name: str) -> Observation:
        """Return what the files of its scene say of a patch now."""
        condition, last, given = self.condition(name), self.endings.last(name), self.endings.given_up(name)
        attempt, inputs, uncompared, outdated = "", "", False, False
        if (result := condition.result) is not None:
            held, task = result.held_against, self._tasks[name]
            inputs, uncompared, outdated = self._compared(name, result, held, task)
            attempt = result.attempt
        refused_at = last.t if isinstance(last, PatchRejected) else None
        why = condition.given_up, self.refusal(name)
        return Observation(
            attempt, inputs, uncompared, outdated, given.t if given else None, why[0], refused_at, why[1]
        )

    def settle(self, found: Mapping[str, Observation]) -> None:
        """Ask the scene nothing more: what a reader has found of it counts until somebody forgets it."""
        self._of_scene = found
        self._look_again()

    def forget(self) -> None:
        """Look at every file anew from now on."""
        self._facts, self._of_scene = FileFacts(self._stamps, reads=self._depth != "time"), None
        self._settled.forget()
        self._take(self._settled.applied([*self._tasks.values()]))
        self._look_again()

    def _take(self, tasks: Iterable[Task]) -> None:
        """Go by other tasks: something was settled."""
        self._tasks = {task.name: task for task in tasks}
        self._hashes.clear()
        self._kept.clear()

    def _look_again(self) -> None:
        """Look at what lies in the output folder anew."""
        self._settled.look_again()
        self._others.clear()
        self._kept.clear()
        self._given_up_now.clear()
        self._behind = _BackdropHash()

    def decide(self, name: str, refusal: str = "", *, force: bool = False, insist: bool = False) -> plan.Decision:
        """Decide on a patch; see `plan.decide`."""
        return plan.decide(name, self.condition(name), refusal, force=force, insist=insist)

    def condition(self, name: str) -> plan.PatchState:
        """Return in what condition a task and its product are."""
        if self._settled.has_news():
            self._take(self._settled.applied([*self._tasks.values()]))
        task = self._tasks[name]
        if (product := task.kind.product(task, self._output)) is not None:
            return plan.PatchState(product.state(), given_up=self._given_up(name))
        place, around = self._places[name], self._behind.seen(task)
        seen = (stamp_of(f"{place}/{RESULT}"), stamp_of(f"{place}/{SPLAT}"), stamp_of(f"{place}/{ACCEPTED}"))
        if name not in self._kept or self._kept[name][:2] != (seen, around):  # asked every second while a batch runs
            self._kept[name] = (seen, around, self._fresh(name, seen) or self._look(name, seen))
        found = self._kept[name][2]
        return replace(found, given_up=why) if (why := self._given_up(name)) else found

    def keep(self) -> None:
        """Bring the index up to date."""
        if self._index and self._index.has_news:
            self._index.keep(self.endings.digest())

    def _fresh(self, name: str, seen: ResultStamps) -> plan.PatchState | None:
        """Return the condition of a patch that nothing speaks against, by the index; None: its manifest is needed."""
        result, splat, accepted = seen
        if self._index is None or (brief := self._index.brief(name, result, accepted)) is None:
            return None
        task = self._tasks[name]
        is_as_it_was = (
            brief.splat == [splat.num_bytes, splat.mtime_ns]
            and any(self.hash_of(one) in brief.recipes for one in task.yaml_settings.acceptable_recipes)
            and not moved_model(brief.model, task.patch, self._facts)
            and not self._have_others_moved(self._index, brief.others, task)
            and brief.settled == self._key(task)
        )
        return plan.PatchState(UpToDate(), Result(name, brief.attempt)) if is_as_it_was else None

    def _have_others_moved(self, index: Index, others: int, task: Task) -> bool:
        patch, recipe = task.patch, task.recipe
        key = (others, patch.images, patch.masks, patch.source, patch.partition and patch.sparse, id(recipe))
        if key not in self._others:
            self._others[key] = bool(moved_others(index.others[others], patch, recipe, self._facts))
        return self._others[key]

    def _look(self, name: str, seen: ResultStamps) -> plan.PatchState:
        task = self._tasks[name]
        folder = self._output.patch(name)
        is_there = seen[0].num_bytes >= 0 or seen[2].num_bytes >= 0
        result = folder.read_result() if is_there else None
        if result is None:
            return plan.PatchState()
        held = result.held_against
        inputs, is_unread, is_elsewhere = self._compared(name, result, held, task)
        other_records = self._settled.why_stale(result, task)
        facts = self._facts if self._of_scene is None else FileFacts(self._stamps, reads=self._depth != "time")
        splat = why_not_the_splat(folder, result, self._depth, facts)
        beheld = compare_splat(folder, result, facts)
        if self._index and not result.is_ahead and not splat:
            self._index.learn(name, (seen[0], seen[2]), result, "" if other_records else self._key(task))
        why = self._why_other_settings(result, held, task) or inputs or other_records
        why = why or self._why_other_surroundings(held, task)
        return plan.PatchState(
            Damaged(SPLAT, splat) if splat else Stale(why) if why else UpToDate(),
            result,
            uncompared=is_unread or beheld == "unread",
            outdated=not held.files or is_elsewhere or has_moved(folder, result, facts),
        )

    def _compared(self, name: str, result: Result, held: Fingerprint, task: Task) -> tuple[str, bool, bool]:
        """Return which files of a patch have changed, whether some were not compared, and whether times have moved."""
        if self._of_scene is not None:
            found = self._of_scene.get(name, Observation())
            is_same = found.attempt == result.attempt  # a splat of tonight is trained from what lies there now
            return (found.inputs, found.uncompared, found.outdated) if is_same else ("", False, False)
        elsewhere = moved(held.files, task.patch, task.recipe, self._facts)
        inputs, is_unread = self._why_other_inputs(held, elsewhere, task)
        return inputs, is_unread, bool(elsewhere)

    def refusal(self, name: str) -> str:
        """Return why the latest audit refused a patch, if nothing has changed since; empty if it did not."""
        event = None if self.endings.went_well(name) else self.endings.last(name)
        if not isinstance(event, PatchRejected):
            return ""
        if self._of_scene is not None:
            found = self._of_scene.get(name, Observation())
            return found.refused if event.t == found.refused_at else event.reason
        is_same = event.inputs in (None, state_of(self._inputs(self._tasks[name]).files))
        return event.reason if is_same else ""

    def knows(self, name: str) -> bool:
        """Return whether a patch belongs to the batch."""
        return name in self._tasks

    def current(self, name: str) -> Task:
        """Return a task with what would train it today."""
        return self._tasks[name]

    def noun(self, name: str) -> TaskUnit:
        """Return what a task is counted in; what does not belong to the batch is a patch."""
        return self._tasks[name].kind.noun if name in self._tasks else "patch"

    def patches_in_one_world(self) -> tuple[Patch, ...]:
        """Return the patches, each once, whose models share their coordinates; none of a list of scenes."""
        if self._config.scene.scenes:
            return ()
        return tuple({task.patch.name: task.patch for task in self._tasks.values()}.values())

    def photograph_folders(self, scene: str) -> tuple[Path, ...]:
        """Return where the photographs of a scene lie; "": those of all patches."""
        patches = [task.patch for task in self._tasks.values() if scene in ("", task.patch.name)]
        return tuple(stored_photographs(images)[0] for images in dict.fromkeys(patch.images for patch in patches))

    def hash_of(self, recipe: Recipe) -> str:
        """Return the hash of a recipe; patches that are trained alike share it."""
        if id(recipe) not in self._hashes:
            self._hashes[id(recipe)] = recipe_hash(recipe)
        return self._hashes[id(recipe)]

    def _why_other_settings(self, result: Result, held: Fingerprint, task: Task) -> str:
        recipe = task.recipe
        if any(self.hash_of(one) in (held.recipe, held.effective) for one in task.yaml_settings.acceptable_recipes):
            return ""
        if not held.settings:
            return "settings have changed"
        changed = plan.changed_settings(held.settings, settings_of(recipe), self._defaults)
        is_as_before = result.version != __version__ or {held.recipe, held.effective}.intersection(
            earlier_hashes(recipe)
        )
        if not changed and is_as_before:
            return ""  # a version of ours that knows more or fewer settings changes nothing by itself
        return f"settings have changed: {', '.join(changed)}" if changed else "settings have changed"

    @cached_property
    def _defaults(self) -> Mapping[str, Any]:
        return settings_of(Recipe())

    def _why_other_inputs(self, held: Fingerprint, elsewhere: tuple[str, ...], task: Task) -> tuple[str, bool]:
        """Say in what the inputs differ, empty if in nothing; and whether some have moved that were not read."""
        then, patch, recipe = held.files, task.patch, task.recipe
        if not elsewhere or patch.is_whole:  # frozen with the partition
            return "", False
        if self._depth == "time":
            found = differences(then, files_now(then, patch, recipe, self._facts), places(patch, recipe), self._facts)
            cut_anew = [key for key in elsewhere if key.startswith(CORE) and self._is_resized(key, then, task)]
            others = (*found.changed, *found.unknown, *cut_anew)
            is_unread = bool(found.unread) or not all(is_content(key.rstrip("/")) for key in elsewhere)
            return f"changed on disk: {list_some(others)}" if others else "", is_unread
        now = self._inputs(task)
        found = differences(then, now.files, places(patch, recipe), self._facts)
        if others := (*found.changed, *found.unknown):
            what = "model or photographs" if any(key.startswith(MODEL) for key in others) else "photographs"
            return f"{what} have changed: {list_some(others)}", False
        if now.hash == held.inputs:
            return "", False
        lists = [key for key in elsewhere if key in then and not is_content(key.rstrip("/"))]
        return f"model, core or hold-out have changed{f': {list_some(lists)}' if lists else ''}", False

    def _is_resized(self, key: str, then: Mapping[str, FileFact], task: Task) -> bool:
        now = self._facts.of(locate(key, task.patch, task.recipe))
        return key in then and now.num_bytes != then[key].num_bytes

    def _why_other_surroundings(self, held: Fingerprint, task: Task) -> str:
        return held.why_other_surroundings(border_hash(task.patch, task.recipe), self._behind.sha256(task))

    def _key(self, task: Task) -> str:
        """Return what says what is settled for a task, and what lies around it."""
        border, settled = border_hash(task.patch, task.recipe), self._settled.key(task)
        return f"{settled} {border} {self._behind.sha256(task)}" if border else settled

    def _given_up(self, name: str) -> str:
        """Say why a patch was given up for good, if what it was given up for is still the same."""
        event = self.endings.given_up(name)
        if event is None:
            return ""
        if self._of_scene is not None:
            found = self._of_scene.get(name, Observation())
            return found.given_up if event.t == found.given_up_at else event.reason
        if self._given_up_now.get(name, (None, ""))[0] is not event:
            task = self._tasks[name]
            is_same = event.key == given_up.key_of(task.yaml_settings, self._inputs(task).files)
            self._given_up_now[name] = (event, event.reason if is_same else "")
        return self._given_up_now[name][1]

    def _inputs(self, task: Task) -> Inputs:
        facts = self._facts if self._facts.reads else FileFacts(self._stamps)  # a model is read in any case
        return inputs_of(task.patch, task.recipe, facts)


class _BackdropHash:
    """Reads the hash of the splat behind, again where another one was accepted since."""

    def __init__(self) -> None:
        self._kept: tuple[BackdropStamp, str] = ((), "")

    def seen(self, task: Task) -> BackdropStamp:
        """Return what tells the splat behind a task from a later one; one look at its files."""
        place = task.patch.behind
        return tuple(stamp_of(f"{place}/{name}") for name in (RESULT, ACCEPTED)) if place else ()

    def sha256(self, task: Task) -> str:
        """Return the hash of the splat behind a task, which is that behind all; empty where none is drawn."""
        if not is_drawn_behind(task.patch, task.recipe):
            return ""
        if (seen := self.seen(task)) != self._kept[0]:
            self._kept = (seen, backdrop_hash(task.patch, task.recipe))
        return self._kept[1]
