"""Where results may go: neither among the photographs, nor over the scene, nor into the root of the disk."""

from __future__ import annotations

from collections.abc import Iterator
from os.path import normpath
from pathlib import Path

from splatbatch.config.sections import Output, Scene
from splatbatch.config.yaml.mistakes import Mistake

KEY = ("output", "folder")


def place_mistakes(scene: Scene, output: Output) -> Iterator[Mistake]:
    """Yield what is wrong with the place of the results; all paths are absolute."""
    folder = Path(normpath(output.folder))
    patches = Path(normpath(scene.patches))
    if folder == folder.parent:
        yield KEY, f"{folder}: is the root of the disk: name a folder of its own"
        return
    for what, place in {"photographs": scene.images, "masks": scene.masks}.items():
        if place and folder.is_relative_to(normpath(place)):
            yield KEY, f"{folder}: lies among the {what} ({place}): name a folder of its own"
            return
    if folder.is_relative_to(patches) and {"images", "masks", "sparse"} & set(folder.relative_to(patches).parts):
        yield KEY, f"{folder}: lies inside the scene: name a folder of its own"
    elif folder == patches:
        yield KEY, f"{folder}: is the folder of the patches (scene.patches): name a folder of its own"
    elif scene.source and folder == Path(normpath(scene.source)):
        yield KEY, f"{folder}: is the scene itself (scene.source): name a folder of its own"
    elif folder / "patches" == patches:
        yield KEY, f"{folder}: the splats would be written among the patches of the scene: name a folder of its own"
