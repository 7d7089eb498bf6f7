"""The workers of a batch that engines were asked for and that are not known to have ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from splatbatch.cluster import open_engine
from splatbatch.cluster.engine import Ended, Engine, Handle, JobState, Pending, Running, Unknown
from splatbatch.config import Executor
from splatbatch.output.layout import OutputFolder
from splatbatch.output.submissions import Submission, open_submissions
from splatbatch.text import list_some, plural

MOST_NODES = 4
"""Named in a line."""
RETIRED = "ray"
"""An engine of 0.2.0: nobody can ask it any more what became of its workers, so they are taken to be gone."""


class EngineWorkers:
    """What was asked of engines for one output folder, and how it is by the latest look."""

    def __init__(self, settings: Executor, output: OutputFolder) -> None:
        self._settings, self._output = settings, output
        self._engines: dict[str, Engine] = {}
        self.seen: dict[Handle, JobState] = {}
        """Each worker, as its engine said."""
        self.submissions: list[Submission] = [one for one in open_submissions(output) if one.record.engine != RETIRED]

    def engine(self, name: str = "") -> Engine:
        """Return an engine by its name, or the one of the YAML.

        Raises:
            ExecutorError: this version cannot use it.
        """
        name = name or self._settings.engine
        if name not in self._engines:
            self._engines[name] = open_engine(self._settings, name)
        return self._engines[name]

    def settle(self) -> None:
        """Find the workers of starts that were cut off; only who holds the output lock may: nobody is starting any."""
        for number, one in enumerate(self.submissions):
            if not one.handles and (found := self.engine(one.record.engine).find(one)) is not None:
                self.submissions[number] = one.taken(found)
                if not found:
                    one.close()

    def add(self, submission: Submission) -> None:
        """Take in workers that were just asked for."""
        self.submissions.append(submission)

    def look(self) -> bool:
        """Ask each engine, once; return whether it says otherwise than before."""
        before, now = self.seen, dict[Handle, JobState]()
        for name, found in self._by_engine():
            now |= self.engine(name).look(found)
        self.seen = now
        return now != before

    def lives(self) -> bool:
        """Return whether one may still run or start: those not looked at yet may, and those of a start cut off."""
        return any(not one.handles or not all(map(self.is_dead, one.handles)) for one in self.submissions)

    def has(self, kind: type[Pending | Running | Unknown]) -> bool:
        """Return whether one of them is so, by the latest look."""
        return any(isinstance(seen, kind) for seen in self.seen.values())

    def ended(self) -> list[tuple[Submission, Handle, Ended]]:
        """Return those that have ended, with how."""
        found = ((one, handle, self.seen.get(handle)) for one in self.submissions for handle in one.handles)
        return [(one, handle, seen) for one, handle, seen in found if isinstance(seen, Ended)]

    def is_dead(self, handle: Handle) -> bool:
        """Return whether an engine says that a worker has ended."""
        return isinstance(self.seen.get(handle), Ended)

    def cancel(self) -> None:
        """Write down that nobody wants them any more, and take back those that wait; those that run are not touched."""
        for one in self.submissions:
            one.cancel()
        self.drop()

    def drop(self) -> None:
        """Take back those that wait."""
        for one in self.submissions:
            self.engine(one.record.engine).drop(one)

    def stop(self) -> list[str]:
        """End all by their engines; return what went wrong."""
        return [words for name, found in self._by_engine() if (words := self.engine(name).stop(found))]

    def close(self) -> None:
        """Write down of which submissions every worker has ended; they are not looked at any more.

        What an engine holds back for good is taken back from it: nobody would know of it any more.
        """
        for one in self.submissions:
            if one.handles and all(self.is_dead(handle) for handle in one.handles):
                self.engine(one.record.engine).drop(one)
                one.close()
        self.submissions = [one for one in self.submissions if not one.ended.exists()]

    def in_words(self) -> list[str]:
        """Return a line for each engine: how many workers run, and where, how many wait, and why."""
        return [f"{name}: {_summary(self.seen[handle] for handle in handles)}" for name, handles in self._handles()]

    def _handles(self) -> Iterable[tuple[str, list[Handle]]]:
        for name, found in self._by_engine():
            handles = [handle for one in found for handle in one.handles if handle in self.seen]
            if handles:
                yield name, handles

    def _by_engine(self) -> Iterable[tuple[str, list[Submission]]]:
        names = dict.fromkeys(one.record.engine for one in self.submissions)
        return [(name, [one for one in self.submissions if one.record.engine == name]) for name in names if name]


def _summary(workers: Iterable[JobState]) -> str:
    groups: dict[str, Counter[str]] = {}
    for seen in workers:
        match seen:
            case Running(where=where):
                groups.setdefault("running on", Counter())[where or "a node that it does not name"] += 1
            case Pending(reason=reason):
                groups.setdefault("waiting", Counter())[reason or "for no reason that it gives"] += 1
            case Unknown(why=why):
                groups.setdefault("unknown", Counter())[why] += 1
            case Ended(how=how):
                groups.setdefault("ended", Counter())[how] += 1
    return "; ".join(
        f"{plural(sum(those.values()), 'worker')} {group} {_spell(those)}" for group, those in groups.items()
    )


def _spell(those: Mapping[str, int]) -> str:
    named = [f"{name} ({number})" if number > 1 else name for name, number in sorted(those.items())]
    return list_some(named, MOST_NODES)
