"""What `view` shows at once: the merged scene, or several patches as one splat, with their photographs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from splatbatch.errors import OutputError, SceneError
from splatbatch.publish.page import PageFacts, PhotoView, facts_of
from splatbatch.publish.source import PublishedSplat
from splatbatch.publish.stage import images_of
from splatbatch.scene.colmap.reconstruction import read_cameras
from splatbatch.scene.frame import shifted_image
from splatbatch.scene.photos.folders import FolderListings, FoundPhotograph, stored_photographs
from splatbatch.splats.merge import MergeSource, at_degree, common_mode, read_accepted
from splatbatch.splats.ply import degree_of, encode_header, mode_comments, names_at, read_header

MOST_PHOTOS = 2000
"""Most photographs that the page of `view` offers; of a larger set every n-th by name is taken."""


@dataclass(frozen=True)
class JointScene:
    """Splats that the viewer shows as one, with the facts for its page; all splats have the same offset."""

    splats: tuple[PublishedSplat, ...]
    facts: PageFacts

    def mode(self) -> bool | None:
        """Return whether the splats are to be drawn antialiased; None if no header of their files says so.

        Raises:
            OutputError: some splats are drawn antialiased and others are not.
        """
        return common_mode([splat.name for splat in self.splats], [splat.header for splat in self.splats])

    def ply(self) -> tuple[int, Iterator[bytes]]:
        """Return one PLY of all splats: its size in bytes, and its content piece by piece, read when asked for.

        Colour coefficients that a splat of a lower degree lacks are zeros.

        Raises:
            OutputError: some splats are drawn antialiased and others not; or, while pieces are read, a splat's file is
                truncated, is not the accepted one, or has Gaussians that cannot be rendered.
            ValueError: a file is no splat.
            OSError: a file cannot be read.
        """
        headers = [read_header(splat.path) for splat in self.splats]
        degree = max(degree_of(header) for header in headers)
        names = names_at(degree)
        head = encode_header(self.facts.splat.num_gaussians, names, mode_comments(self.mode()))

        def pieces() -> Iterator[bytes]:
            yield head
            for splat, header in zip(self.splats, headers, strict=True):
                for rows in read_accepted(MergeSource(splat.path, splat.name, splat.sha256), header):
                    yield at_degree(rows, header, degree).tobytes()

        return len(head) + 4 * len(names) * self.facts.splat.num_gaussians, pieces()


def view_together(splats: Sequence[PublishedSplat], crs: str) -> JointScene:
    """Return several splats as one scene for `splatbatch view`, with the facts that the page shows.

    Photographs are those of all splats, each once, by name, at most MOST_PHOTOS. Those that are missing or have no
    readable camera are left out.

    Args:
        splats: at least one splat.
        crs: coordinate reference system of the scene, as "EPSG:32632"; empty: the place on Earth is unknown.

    Raises:
        OutputError: the splats have different offsets, some are drawn antialiased and others not, or one cannot be
            read.
        ConfigError: the CRS is not known, is not usable, or does not fit the place of the scene.
        TrainerError: a CRS is given, and pyproj is not installed.
    """
    if len({splat.offset for splat in splats}) > 1:
        raise OutputError(
            "view: the coordinates of these patches have different offsets", "View the patches one by one."
        )
    first = splats[0] if len(splats) == 1 else _joined(splats)
    found = JointScene(tuple(splats), replace(facts_of(first, crs), photos=_photos(splats), is_as_trained=True))
    found.mode()  # raises its error now, not when a browser asks
    return found


def _joined(splats: Sequence[PublishedSplat]) -> PublishedSplat:
    """Return several splats as one for the page: joined names and parts, all Gaussians, no figures of quality."""
    header = replace(splats[0].header, num_gaussians=sum(splat.num_gaussians for splat in splats))
    parts = tuple(part for splat in splats for part in splat.parts)
    return replace(splats[0], name=", ".join(splat.name for splat in splats), header=header, parts=parts, figures={})


def _photos(splats: Sequence[PublishedSplat]) -> tuple[PhotoView, ...]:
    """Return the photographs of splats, each once and at most MOST_PHOTOS, by name."""
    found, folders = dict[str, PhotoView](), FolderListings()
    for splat in splats:
        folder = stored_photographs(Path(splat.views.images))[0]
        try:
            cameras = read_cameras(Path(splat.views.sparse))
        except (SceneError, OSError, ValueError):
            continue
        for image in images_of(splat):
            place, camera = folders.locate(folder, image.name), cameras.get(image.camera_id)
            if image.name in found or camera is None or not isinstance(place, FoundPhotograph):
                continue
            fov = math.degrees(2 * math.atan(camera.height / (2 * camera.fy)))
            eye = shifted_image(image, splat.offset).center()
            found[image.name] = PhotoView(image.name, Path(place.path), eye, image.rotation()[2], fov)
    every = max(1, math.ceil(len(found) / MOST_PHOTOS))
    return tuple(found[name] for name in sorted(found)[::every])
