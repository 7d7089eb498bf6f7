"""Decoding all photographs while the first patches train, so that a broken patch is refused before its turn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

from splatbatch import isolated
from splatbatch.errors import SceneError
from splatbatch.isolated import CallQueue, Returned
from splatbatch.scene.colmap.reconstruction import read_cameras, read_images
from splatbatch.scene.photos.folders import choose_photographs
from splatbatch.scene.photos.headers import decode_problem
from splatbatch.tasks.task import Task
from splatbatch.text import plural


def start_decoding(tasks: Iterable[Task]) -> CallQueue[str]:
    """Start a background process that decodes the photographs of each task, in order, each photograph once.

    The process runs at low priority until `end` of the returned queue. A task does not wait for it: photographs not
    decoded by then fail in the task's own training. For a single task nothing is decoded.
    """
    named = {task.name: task for task in tasks}
    problems: dict[Path, str] = {}  # by photograph, since patches share them
    names = [*named] if len(named) > 1 else []  # a single patch decodes them in its training
    return isolated.start(partial(_why_refused, named, problems), names, is_low=True)


def take_undecodable(decoding: CallQueue[str]) -> Mapping[str, str]:
    """Return the tasks for which undecodable photographs were found since the last call, each with the reason."""
    return {name: found.value for name, found in decoding.look() if isinstance(found, Returned) and found.value}


def _why_refused(tasks: Mapping[str, Task], problems: dict[Path, str], name: str) -> str:
    """Return a sentence on the photographs of a task that exist but cannot be decoded; empty if there are none."""
    try:
        patch, recipe = tasks[name].patch, tasks[name].recipe
        images, folder = read_images(patch.sparse), patch.images
        if recipe.program is None:  # the built-in trainer may load smaller copies
            folder = choose_photographs(folder, images, read_cameras(patch.sparse), recipe.training.resolution).folder
    except (SceneError, KeyError):  # the training reports it
        return ""
    bad = []
    for photograph in sorted(image.name for image in images):
        path = folder / photograph
        if path not in problems:
            problems[path] = decode_problem(path) if path.is_file() else ""
        bad += [(photograph, problems[path])] if problems[path] else []
    if not bad:
        return ""
    more = f", and {plural(len(bad) - 1, 'more photograph')}" if bad[1:] else ""
    return f"{bad[0][0]}: cannot be decoded: {bad[0][1]}{more}"
