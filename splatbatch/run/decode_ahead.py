"""Decoding all photographs while the first patches train: a broken patch is refused before its turn."""

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
    """Begin to decode, in the order of the tasks, each photograph once; nothing runs any more once it is ended.

    No task waits for it: what it has not seen by its turn is trained, and fails as it would have failed.
    """
    named = {task.name: task for task in tasks}
    problems: dict[Path, str] = {}  # of all photographs that were seen: patches share them
    names = [*named] if len(named) > 1 else []  # those of a lone patch are decoded by its training
    return isolated.start(partial(_why_refused, named, problems), names, is_low=True)


def take_undecodable(decoding: CallQueue[str]) -> Mapping[str, str]:
    """Return the tasks whose photographs were found wanting since it was asked last, each with the reason."""
    return {name: found.value for name, found in decoding.look() if isinstance(found, Returned) and found.value}


def _why_refused(tasks: Mapping[str, Task], problems: dict[Path, str], name: str) -> str:
    """Return which photographs of a task are there and cannot be decoded; empty if all can."""
    try:
        patch, recipe = tasks[name].patch, tasks[name].recipe
        images, folder = read_images(patch.sparse), patch.images
        if recipe.program is None:  # our trainer loads smaller copies, where it takes those
            cameras = read_cameras(patch.sparse)
            folder = choose_photographs(folder, images, cameras, recipe.training.resolution).folder
    except (SceneError, KeyError):  # its training will say so
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
