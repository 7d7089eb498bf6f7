"""What was chosen for a deadline, as its file says: it may be chosen, or corrected, while a batch is watched."""

from __future__ import annotations

from splatbatch.identity import stamp_of
from splatbatch.store.layout import OutputFolder
from splatbatch.store.records.deadline.choice import Pace


class KeptChoice:
    """Looks at deadline.json, again and again; where the YAML has no deadline, never."""

    def __init__(self, output: OutputFolder, asked: str | None) -> None:
        self._output, self._asked = output, asked
        self._seen = stamp_of(str(output.deadline)) if asked else None

    def news(self) -> tuple[Pace, ...] | None:
        """Return the paces that it names, if it is another file than when it was looked at last; else None."""
        if self._asked is None or (seen := stamp_of(str(self._output.deadline))) == self._seen:
            return None
        self._seen = seen
        choice = self._output.read_deadline()
        return choice.paces if choice and choice.asked == self._asked else ()
