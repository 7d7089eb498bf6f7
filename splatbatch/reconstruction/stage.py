"""What all stages share: their folder, the products that they read, how far they are, and databases of COLMAP."""

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
from splatbatch.scene.photos.numbers import link_numbers

if TYPE_CHECKING:
    import pycolmap

DATABASE = "database.db"


@dataclass(frozen=True)
class StageAttempt:
    """One attempt at a stage."""

    folder: AttemptFolder
    told: StageSettings

    @cached_property
    def plan(self) -> ReconstructionPlan:
        """The plan; a SceneError if it is gone."""
        found = ReconstructionPlan.read(Path(self.told.plan))
        if found is None:
            raise SceneError(f"{self.told.plan}: the plan cannot be read", "Run splatbatch reconstruct again.")
        return found

    @property
    def images(self) -> Path:
        """The folder of the photographs."""
        return Path(self.plan.images)

    @property
    def threads(self) -> int:
        """Return how many threads it may use."""
        return max(1, self.told.threads)

    @property
    def product(self) -> Path:
        """What it makes goes there, and is put in place once it is whole."""
        return self.folder.path / "product"

    def linked(self, scratch: Path) -> Path:
        """Return a folder of the photographs under their numbers."""
        link_numbers([self.images / one.name for one in self.plan.photographs], scratch / "images")
        return scratch / "images"

    def of(self, stage: str) -> Path:
        """Return the product of another stage."""
        return product_of(Path(self.told.products), stage)

    def made(self, what: str) -> list[tuple[str, StageMetrics]]:
        """Return the names of all stages of a kind, with the figures of each."""
        names = [one.name for one in stages(self.plan) if one.what == what]
        return [
            (name, StageMetrics.read(record_of(Path(self.told.products), name)) or StageMetrics()) for name in names
        ]

    def tell(self, phase: str, step: int, of: int) -> None:
        """Say how far it is."""
        line = {"t": round(time.time(), 3), "phase": phase, "step": step, "max_steps": of}
        append_line(self.folder.progress, line, durable=False)

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Give a folder on a local disk; what an attempt that was killed has left there goes first."""
        home = own_scratch() / short_hash(str(self.folder.path.parent))
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(mode=0o700)
        try:
            yield home
        finally:
            shutil.rmtree(home, ignore_errors=True)


def gpu_options(options: Any) -> Any:
    """Return options of pycolmap that take the GPU where its CUDA wheel is installed and one may be used."""
    import pycolmap

    options.use_gpu = bool(pycolmap.has_cuda and os.environ.get("CUDA_VISIBLE_DEVICES"))
    return options


def device(options: Any) -> Any:
    """Return the device that the options name."""
    import pycolmap

    return pycolmap.Device.cuda if options.use_gpu else pycolmap.Device.cpu


def open_database(path: Path, plan: ReconstructionPlan, places: Iterable[int]) -> pycolmap.Database:
    """Return a new database of some photographs; an image's id is its place in the plan + 1, its name is its number."""
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
