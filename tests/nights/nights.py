"""The twelve nights: each is a list of commands, and of changes of files between them."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from player import Player

INVALID = "CUDA error: invalid configuration argument"
NO_GSPLAT = "ModuleNotFoundError: No module named 'gsplat'"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has 23.6 GiB, 100.0 MiB is free"
BAD_PHOTO = "splatbatch: images/a.jpg: cannot identify image file, or it is truncated"
OURS = {"trainer": "gsplat", "max_steps": 4, "strategy": "default", "cap_max": 100}
"""Our own trainer, as quick as it can be."""
RECORDED = Path(__file__).with_name("recorded")
QUARRY = Path(__file__).parents[2] / "examples/quarry"


def fresh(night: Player) -> None:
    """Two patches that nobody has trained are trained by our own trainer, and all goes well."""
    night.scene("p0", "p1", training=OURS)
    night.run("plan")
    night.run("train")
    night.run("status")
    night.run("explain", "p0")
    night.look("p0")
    night.run("verify-dims", "--json")
    night.run("train")


def failures(night: Player) -> None:
    """Each action of a diagnosis once: ok, retry, degrade, fail."""
    night.scene("p0", "p1", "p2", "p3")
    night.script(
        p0=["train-then-die SIGSEGV"],
        p1=["die SIGSEGV", "train"],
        p2=[f"needs 500 {OOM}"],
        p3=[f"exit 1 {NO_GSPLAT}"],
    )
    night.run("train", "p0", "p1")
    night.run("train")
    night.run("status")
    for patch in ("p0", "p1", "p2", "p3"):
        night.run("explain", patch)
    night.look("p0", "p1", "p2", "p3")


def retry(night: Player) -> None:
    """What failed is tried again with other settings, which are then written into the YAML."""
    night.scene("p0", "p1")
    night.script(p1=[f"exit 1 {NO_GSPLAT}", "train"])
    night.run("train")
    night.run("retry", "p1", "--set", "setting.cap=300")
    night.run("plan")
    night.run("train")
    night.run("retry", "p0", "--force", "--set", "setting.cap=400", "--save")
    night.run("explain", "p0", "--json")
    night.run("accept", "p0", "--attempt", "1")
    night.run("clean", "--dry-run", "--json")
    night.look("p0", "p1")
    night.keep("batch.yaml", "metrics.prom", "../splat_config.yml")


def resume(night: Player) -> None:
    """`train` is killed while p1 trains, whose supervisor ends it; then with p2 all of its processes are."""
    night.scene("p0", "p1", "p2")
    night.script(p1=["await never", "train"], p2=["await nor", "train"])
    night.run("train", "p0")
    train = night.start("train")
    night.await_file("never.reached")
    night.kill(train.process.pid)
    night.finish(train)
    night.await_file("output/patches/p1/attempt-01/exit.json")
    night.run("status")
    night.run("train", "p1")
    train = night.start("train")
    trainer = int(night.await_file("nor.reached").read_text())
    night.kill(train.process.pid, night.supervisor("p2"), trainer)
    night.finish(train)
    night.run("status")
    night.run("train")
    night.look("p1", "p2")


def sweep(night: Player) -> None:
    """Two patches under two settings each; one of the four fails, and one more setting is added."""
    night.scene("p0", "p1", sweep={"matrix": {"setting.cap": [100, 200]}})
    night.run("plan")
    night.run("train", "--only", "patch=p0")
    night.change(sweep={"matrix": {"setting.cap": [100, 200, 300]}})
    night.run("train")
    night.run("status")
    night.look()


def cut_scene(night: Player) -> None:
    """A scene is cut into two patches, trained by our own trainer, merged, measured, inspected and published."""
    night.copy(QUARRY / "images", "images")
    night.copy(QUARRY / "sparse", "sparse")
    night.run("split", "--source", "sparse/0", "--out", "patches", "--grid", "1x2", "--json")
    training = {"max_steps": 4, "strategy": "default", "cap_max": 4000, "resolution": "1/8", "device": "cpu"}
    night.change(scene={"images": "images"}, training=training, limits={"free_disk_mib": 0}, output={"previews_mib": 0})
    night.run("plan")
    night.run("train")
    night.run("merge", "--json")
    night.run("merge")
    night.run("evaluate", "--json")
    night.run("inspect", "p0", "--json")
    night.run("publish", "scene", "--as", "ply,tiles", "--no-measure", "--to", "handed", "--json")
    night.run("publish", "p0", "--as", "ply", "--to", "handed")
    night.look("p0")


def workers(night: Player) -> None:
    """Two workers share an output folder; one that is told to stop lets its patch go to the other."""
    night.scene("p0", "p1", "p2")
    night.script(p0=["await never", "train"])
    first = night.start("work")
    night.await_file("never.reached")
    night.run("work", "p1")
    night.run("status")
    night.finish(first, by=signal.SIGTERM)
    night.run("work")
    night.run("train")
    night.look("p0")


def store(night: Player) -> None:
    """Three patches travel through a store: p0 comes home trained, p1 failed; p2 has changed at home meanwhile."""
    others = {"p1": {"training": {"trainer": "scripted"}}}
    night.scene("p0", "p1", "p2", training=OURS, patches=others)
    night.script(p1=[f"exit 3 {BAD_PHOTO}"])
    night.run("pack", "--to", "store", "--json")
    night.run("status", "store")
    night.run("work", "store")
    night.run("status", "store")
    night.change(patches=others | {"p2": {"training": {"seed": 43}}})
    night.run("adopt", "store")
    night.look("p0", "p1", "p2")


def external(night: Player) -> None:
    """An external trainer: a viewer that stays up, a question, a secret, a splat that is cut, and wrong settings."""
    night.scene("p0", "p1", "p2", "p3")
    artifact = {"ply": "point_cloud_*.ply", "finished_after_s": 0.3}
    program = dict(night.settings["trainers"]["scripted"], artifact=artifact, env={"NIGHT_KEY": "$NIGHT_SECRET"})
    night.change(trainers={"scripted": program})
    night.script(p0=["linger"], p1=["ask"], p2=["tell NIGHT_KEY"], p3=["spoil cut"])
    night.run("train", NIGHT_SECRET="a-word-of-many-letters")
    night.run("explain", "p2", "--log")
    night.run("status")
    night.look("p0", "p1", "p2", "p3")
    night.run("train", "--set", "setting.nonsense=1")
    night.change(training={"trainer": "unknown"})
    night.run("plan")


def deadline(night: Player) -> None:
    """A deadline that asks nothing, then one that cannot be met, then none."""
    night.scene("p0", deadline="400h", training=OURS | {"max_steps": 1500})
    night.run("plan")
    night.change(deadline="1s")
    night.run("train")
    night.look("p0")
    night.drop("deadline")
    night.run("plan")
    night.change(deadline="25:00")
    night.run("train")


def damaged(night: Player) -> None:
    """Files are damaged on the disk, and told, and mended."""
    night.scene("p0", "p1", "p2", "p3")
    night.run("train")
    night.flip("output/patches/p0/splat.ply")
    night.write("output/patches/p1/result.json", "{")
    night.flip("images/img3.bmp")
    (night.folder / "output/patches/p2/splat.ply").unlink()
    night.settle("images/img3.bmp")
    night.run("status", "--verify")
    night.run("plan")
    night.run("train")
    night.look("p0", "p1", "p2")


def cancelled(night: Player) -> None:
    """A patch is cancelled, then the batch; a second `train` beside it is refused; a third one goes on."""
    night.scene("p0", "p1", "p2")
    night.script(p0=["await never", "train"], p1=["await nor", "train"])
    train = night.start("train")
    night.await_file("never.reached")
    night.run("train")
    night.run("cancel", "p0")
    night.await_file("nor.reached")
    night.run("cancel")
    night.finish(train)
    night.run("status")
    night.run("train")
    night.look("p0", "p1")


@dataclass(frozen=True)
class Night:
    """A night, and what of it depends on the machine."""

    play: Callable[[Player], None]
    is_trained: bool = False

    def record(self) -> dict[str, str]:
        """Play it in a folder of its own; return what was recorded, texts by name."""
        with tempfile.TemporaryDirectory(prefix="night-") as folder:
            player = Player(Path(folder), self.is_trained)
            try:
                self.play(player)
                return player.collect()
            finally:
                player.close()


NIGHTS: Mapping[str, Night] = {
    night.play.__name__: night
    for night in (
        Night(fresh, is_trained=True),
        Night(failures),
        Night(retry),
        Night(resume),
        Night(sweep),
        Night(cut_scene, is_trained=True),
        Night(workers),
        Night(store, is_trained=True),
        Night(external),
        Night(deadline, is_trained=True),
        Night(damaged),
        Night(cancelled),
    )
}


def read(folder: Path) -> dict[str, str]:
    """Return the recording that lies in a folder: texts by the name of their file; none if it is not there."""
    return {path.name: path.read_text() for path in folder.glob("*")}


def write(texts: Mapping[str, str], folder: Path) -> list[str]:
    """Write a recording into its folder, and remove what is not of it; return the names of texts that have changed."""
    folder.mkdir(parents=True, exist_ok=True)
    before = read(folder)
    changed = sorted(name for name in before.keys() | texts.keys() if before.get(name) != texts.get(name))
    for name in changed:
        if name in texts:
            (folder / name).write_text(texts[name])
        else:
            (folder / name).unlink()
    return changed
