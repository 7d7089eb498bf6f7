"""Photographs decoded to the last pixel while the first patches train: a patch is refused before its turn comes."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from splatbatch.errors import SceneError
from splatbatch.plain_text import counted
from splatbatch.scene.colmap.reconstruction import read_cameras, read_images
from splatbatch.scene.photos.other_formats import decode_problem
from splatbatch.scene.photos.photographs import choose_photographs
from splatbatch.tasks.task import Task

LOWEST_PRIORITY = 19
"""Of threads that decode: what trains goes first."""
CORES_PER_THREAD = 4


class Decoding:
    """Decodes, in the order of the tasks, each photograph once; a context manager, after which nothing runs any more.

    Nobody waits for it: what it has not seen by its turn is trained, and fails as it would have failed.
    """

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._tasks = tuple(tasks)
        self._found: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._problems: dict[Path, str] = {}
        self._end = threading.Event()
        self._pool = ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // CORES_PER_THREAD), initializer=_step_back)
        self._thread = threading.Thread(target=self._decode_all, daemon=True)

    def __enter__(self) -> Decoding:
        if len(self._tasks) > 1:  # the photographs of a lone patch are decoded by its training
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end.set()  # whatever waits in the pool is over at once
        if self._thread.is_alive():
            self._thread.join()
        self._pool.shutdown()

    def refused(self) -> Mapping[str, str]:
        """Return the tasks whose photographs were found wanting since it was asked last, each with the reason."""
        found = {}
        with contextlib.suppress(queue.Empty):
            while True:
                name, reason = self._found.get_nowait()
                found[name] = reason
        return found

    def _decode_all(self) -> None:
        for task in self._tasks:
            if self._end.is_set():
                return
            if bad := list(self._undecodable(task)):
                name, problem = bad[0]
                more = f", and {counted(len(bad) - 1, 'photograph')} more" if bad[1:] else ""
                self._found.put((task.name, f"{name}: cannot be decoded: {problem}{more}"))

    def _undecodable(self, task: Task) -> Iterator[tuple[str, str]]:
        """Yield the photographs of a task that are there and cannot be decoded, with what is wrong with each."""
        try:
            images, folder = read_images(task.patch.sparse), _folder(task)
        except (SceneError, KeyError):  # its training will say so
            return
        paths = {name: folder / name for name in sorted(image.name for image in images)}
        unseen = [path for path in paths.values() if path not in self._problems]
        self._problems |= zip(unseen, self._pool.map(self._problem, unseen), strict=True)
        yield from ((name, problem) for name, path in paths.items() if (problem := self._problems[path]))

    def _problem(self, path: Path) -> str:
        return decode_problem(path) if not self._end.is_set() and path.is_file() else ""


def _folder(task: Task) -> Path:
    """Return where the photographs lie that a training will load: smaller copies, where it takes those."""
    patch, recipe = task.patch, task.recipe
    if recipe.program is not None:
        return patch.images
    images, cameras = read_images(patch.sparse), read_cameras(patch.sparse)
    return choose_photographs(patch.images, images, cameras, recipe.training.resolution).folder


def _step_back() -> None:
    """Give a thread the lowest priority: on Linux each has its own."""
    with contextlib.suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST_PRIORITY)
