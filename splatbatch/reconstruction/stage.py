"""Shared by all stages: the attempt's folder, products of earlier stages, progress, and COLMAP databases."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from splatbatch.caches import own_scratch
from splatbatch.errors import SceneError
from splatbatch.files import append_line
from splatbatch.hashing import short_hash
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.reconstruction.plan import (
    ReconstructionPlan,
    StageMetrics,
    StageSettings,
    product_of,
    record_of,
    stages,
)
from splatbatch.scene.photos.folders import link_numbers

if TYPE_CHECKING:
    import pycolmap

DATABASE = "database.db"


@dataclass(frozen=True)
class StageAttempt:
    """One attempt at a stage, as seen by its process: the folder, the settings, and everything derived from them."""

    folder: AttemptFolder
    told: StageSettings

    @cached_property
    def plan(self) -> ReconstructionPlan:
        """Return the plan of the reconstruction, read at the first use.

        Raises:
            SceneError: the file of the plan cannot be read, or holds no JSON object.
            LaterFormatError: a later version of splatbatch wrote the file.
        """
        found = ReconstructionPlan.read(Path(self.told.plan))
        if found is None:
            raise SceneError(
                f"{self.told.plan}: the plan of the reconstruction cannot be read", "Run splatbatch reconstruct again."
            )
        return found

    @property
    def images(self) -> Path:
        """Return the absolute path of the folder of photographs.

        Raises:
            SceneError: the file of the plan cannot be read.
            LaterFormatError: a later version of splatbatch wrote the plan.
        """
        return Path(self.plan.images)

    @property
    def threads(self) -> int:
        """Return the number of threads that the stage may use, at least 1."""
        return max(1, self.told.threads)

    @property
    def product(self) -> Path:
        """Return the folder in the attempt's folder that the stage writes its product to; the stage creates it.

        The process that started the attempt moves the folder into place once the stage has ended well.
        """
        return self.folder.path / "product"

    def linked(self, scratch: Path) -> Path:
        """Make the folder "images" in `scratch` with links to the photographs; return its path.

        The links are named as `ReconstructionPlan.numbers` says.

        Raises:
            OSError: the folder cannot be written, has these links already, or its file system has no links.
            SceneError: the file of the plan cannot be read.
            LaterFormatError: a later version of splatbatch wrote the plan.
        """
        link_numbers([self.images / one.name for one in self.plan.photographs], scratch / "images")
        return scratch / "images"

    def of(self, stage: str) -> Path:
        """Return the path of the folder of a stage's product, by the stage's name, as "matching-2"."""
        return product_of(Path(self.told.products), stage)

    def made(self, what: str) -> list[tuple[str, StageMetrics]]:
        """Return the names of all stages of one kind in order, each with the metrics of its product.

        Metrics are blank if the product has not been made, or if its made.json cannot be read.

        Args:
            what: kind of stage, as "matching".

        Raises:
            SceneError: the file of the plan cannot be read.
            LaterFormatError: a later version of splatbatch wrote the plan or the metrics.
        """
        names = [one.name for one in stages(self.plan) if one.what == what]
        return [
            (name, StageMetrics.read(record_of(Path(self.told.products), name)) or StageMetrics()) for name in names
        ]

    def tell(self, phase: str, step: int, of: int) -> None:
        """Append a line with the progress to the attempt's progress.jsonl, which `status` shows.

        Args:
            phase: name of the work, as "matching".
            step: number of pieces done.
            of: number of all pieces.

        Raises:
            OSError: the file cannot be written.
        """
        line = {"t": round(time.time(), 3), "phase": phase, "step": step, "max_steps": of}
        append_line(self.folder.progress, line, durable=False)

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Yield an empty folder on a local disk, which is removed at the end, also after an error.

        Leftovers of a killed attempt at the same stage are removed first.

        Raises:
            OSError: the folder cannot be created.
        """
        home = own_scratch() / short_hash(str(self.folder.path.parent))
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(mode=0o700)
        try:
            yield home
        finally:
            shutil.rmtree(home, ignore_errors=True)


def with_device(options: Any) -> tuple[Any, Any]:
    """Return options of pycolmap, changed to use the GPU or not, and the device for its calls.

    The GPU is used if pycolmap has CUDA and the environment variable CUDA_VISIBLE_DEVICES is set and not empty.

    Args:
        options: options for finding or matching features, whose `use_gpu` is set.
    """
    import pycolmap

    options.use_gpu = bool(pycolmap.has_cuda and os.environ.get("CUDA_VISIBLE_DEVICES"))
    return options, pycolmap.Device.cuda if options.use_gpu else pycolmap.Device.cpu


def open_database(path: Path, plan: ReconstructionPlan, places: Iterable[int]) -> pycolmap.Database:
    """Create a COLMAP database with the cameras and images of some photographs; return it open.

    An existing file is replaced. An image's id is its index in the plan + 1; its name is that in
    `ReconstructionPlan.numbers`.

    Args:
        path: path of the database file.
        plan: plan of the reconstruction.
        places: indices into the plan's photographs.

    Raises:
        OSError: an existing file cannot be removed.
    """
    import pycolmap

    path.unlink(missing_ok=True)
    database = pycolmap.Database.open(path)
    chosen = list(places)
    with pycolmap.DatabaseTransaction(database):
        for number in sorted({plan.photographs[place].camera for place in chosen}):
            told = plan.cameras[number - 1]
            camera = pycolmap.Camera.create_from_model_name(number, told.model, told.focal_px, told.width, told.height)
            camera.has_prior_focal_length = told.is_known
            database.write_camera(camera, True)
            rig = pycolmap.Rig()
            rig.rig_id = number
            rig.add_ref_sensor(camera.sensor_id)
            database.write_rig(rig, True)
        for place in chosen:
            one = plan.photographs[place]
            image = pycolmap.Image(name=plan.numbers[place], camera_id=one.camera, image_id=place + 1)
            database.write_image(image, True)
            frame = pycolmap.Frame()
            frame.frame_id, frame.rig_id = place + 1, one.camera
            frame.add_data_id(image.data_id)
            database.write_frame(frame, True)
    return database
