"""Notifies people that a batch has ended or a patch has failed for good; delivery never fails the batch.

It delays only the end of the batch, by at most `sinks.BUDGET_S` seconds.

The command of `notify.command` gets one JSON object on stdin:

    schema       1
    event        "patches_failed" or "batch_ended"
    output       the output folder; host: where the batch runs
    summary      one line
    patches      patches that failed since the last message, or at the end all: [{"patch", "state", "cause", "advice",
                 "psnr_covered", "psnr", "num_gaussians", "seconds", "in_words"}]; in_words: the line of `status`;
                 a figure is null where it is unknown
    stopped      why the batch was stopped, such as "SIGTERM"; empty if it was not
    afterwards   follow-ups of the training: [{"what", "state", "words", "command", "at"}]; what: inspect, merge,
                 evaluate, publish; state: done, partly, left out; command: the command that completes it
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec

from splatbatch.config import Notify
from splatbatch.errors import TrainerError
from splatbatch.files import Record
from splatbatch.machine.limited_program import Hook
from splatbatch.monitor.sinks import BatchOutcome, Sink
from splatbatch.outcome import Diagnosis
from splatbatch.output.events import AttemptEnded, Event, GaveUp, PatchRejected
from splatbatch.output.layout import OutputFolder
from splatbatch.tasks.freshness import FreshnessChecker
from splatbatch.tasks.status import MADE, PatchStatus, read_status

SCHEMA = 1
"""Version of the JSON message; it changes if a key changes its meaning."""
TIMEOUT_S = 30.0
"""Time limit of a command or delivery in seconds; a mail server that greylists answers within some seconds."""
PATIENCE_S = 5.0
"""Longest time in seconds that the last message waits for an earlier message that is still being delivered."""
SHOWN = ("patch", "state", "cause", "advice", "psnr_covered", "psnr", "num_gaussians", "seconds")
"""Fields of the status of a patch that the message holds."""


class Notifier(Sink):
    """Sends messages by `notify.command` and `notify.urls`, one message at a time; the last waits only `PATIENCE_S`.

    Patches that fail during a delivery are named together in the next message. Without either setting nothing is sent.
    """

    name = "notify"

    def __init__(
        self, settings: Notify, output: OutputFolder, names: Sequence[str], standing: FreshnessChecker | None = None
    ) -> None:
        """Prepare without sending.

        Args:
            settings: section `notify` of the YAML.
            output: the output folder.
            names: names of the patches of the batch; messages name no others.
            standing: freshness checker of the batch; None: any existing splat counts as up to date.

        Raises:
            TrainerError: `notify.urls` has URLs, but Apprise is not installed.
        """
        if settings.urls and find_spec("apprise") is None:
            raise TrainerError("notify.urls: Apprise is not installed", "pip install 'splatbatch[notify]'")
        self._settings, self._output, self._names, self._standing = settings, output, names, standing
        self._failed: dict[str, None] = {}
        self._running: list[tuple[str, Hook]] = []
        self._last: Record | None = None
        """The message that the batch has ended, until its delivery starts."""
        self._last_at = 0.0

    def tell(self, event: Event) -> None:
        """Note a patch that has failed for good or was rejected; other events are ignored."""
        match event:
            case GaveUp(patch=patch) | PatchRejected(patch=patch):
                self._failed[patch] = None
            # a failure before the first step, as for a missing file, gives no retry and no GaveUp event
            case AttemptEnded(patch=patch, diagnosis=Diagnosis(action="fail")):
                self._failed[patch] = None
            case _:
                pass

    def tick(self) -> Iterator[str]:
        """Start deliveries that are due and check running deliveries; yield why a delivery failed.

        Raises:
            LaterFormatError: a later version of splatbatch wrote the output folder.
        """
        verdicts = [(way, hook, hook.verdict()) for way, hook in self._running]
        self._running = [(way, hook) for way, hook, verdict in verdicts if verdict is None]
        yield from (f"{way}: {verdict}" for way, _, verdict in verdicts if verdict)
        if self._last is not None:
            if not self._running or time.monotonic() > self._last_at:
                last, self._last = self._last, None
                yield from self._start(last)
        elif self._failed and not self._running:
            failed = tuple(one for one in self._statuses() if one.patch in self._failed)
            self._failed.clear()
            if failed:  # other products are named in the last message
                names = ", ".join(one.patch for one in failed)
                yield from self._start(self._message("patches_failed", f"failed: {names}", failed, BatchOutcome("")))

    def close(self, end: BatchOutcome) -> None:
        """Prepare the last message.

        `tick` sends it, after at most `PATIENCE_S` seconds even if an earlier delivery hangs.

        Raises:
            LaterFormatError: a later version of splatbatch wrote the output folder.
        """
        self._failed.clear()  # the last message names these patches, too
        self._last = self._message("batch_ended", end.summary, self._statuses(), end) if self._ways() else None
        self._last_at = time.monotonic() + PATIENCE_S

    def is_done(self) -> bool:
        """Return whether every message is delivered or has failed; True if there are none."""
        return self._last is None and not self._running

    def give_up(self) -> Iterator[str]:
        """End all running deliveries; yield a message for each way by which a message was not delivered in time."""
        ways = dict.fromkeys([way for way, _ in self._running] or self._ways())
        for _, hook in self._running:
            hook.end()
        self._running, self._last = [], None
        yield from (f"{way}: the message was not delivered in time: no answer" for way in ways)

    def _statuses(self) -> tuple[PatchStatus, ...]:
        if not self._ways():
            return ()
        found = read_status(self._output, self._names, standing=self._standing)
        return tuple(one for one in found if one.patch in set(self._names))

    def _message(self, event: str, summary: str, patches: Sequence[PatchStatus], end: BatchOutcome) -> Record:
        shown = [{**{key: getattr(one, key) for key in SHOWN}, "in_words": one.in_words()} for one in patches]
        place = {"output": str(self._output.path), "host": socket.gethostname()}
        told = {"stopped": end.stopped, "afterwards": [one.to_record() for one in end.afterwards]}
        return {"schema": SCHEMA, "event": event, **place, "summary": summary, "patches": shown, **told}

    def _ways(self) -> dict[str, tuple[str, ...]]:
        """Return the configured commands that deliver a message, by the setting that asks for each."""
        command = tuple(word.get_secret_value() for word in self._settings.command)
        ours = (sys.executable, "-m", "splatbatch.supervisor.apprise_urls")
        ways = {"notify.command": command, "notify.urls": ours if self._settings.urls else ()}
        return {way: argv for way, argv in ways.items() if argv}

    def _start(self, message: Record) -> Iterator[str]:
        for way, argv in self._ways().items():
            told = message if way == "notify.command" else self._letter(message)
            try:
                hook = Hook(argv, json.dumps(told, default=str).encode(), TIMEOUT_S)
                self._running.append((way, hook))
            except (OSError, ValueError) as error:  # the error's text could quote the command
                yield f"{way}: cannot be started ({type(error).__name__})"

    def _letter(self, message: Record) -> Record:
        """Return the input of the Apprise process: URLs, title and text of the message."""
        urls = [url.get_secret_value() for url in self._settings.urls]
        lines = [f"{one['patch']}: {one['in_words']}" for one in message["patches"] if one["state"] not in MADE]
        lines += [f"{one['words']}. {one['command']}".strip() for one in message["afterwards"]]
        place = f"{message['host']}: {message['output']}"
        return {"urls": urls, "title": f"splatbatch: {message['summary']}", "body": "\n".join([place, *lines])}
