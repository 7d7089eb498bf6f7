"""What lies in the target folder, kept in step with publish.json: nothing is put there that nobody knows for ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from splatbatch.publish.rows import put as put_whole
from splatbatch.publish.source import Published
from splatbatch.publish.target import Target
from splatbatch.store.records.publication import Output, Publication, SplatRecord
from splatbatch.tasks.product import Damaged, Fresh, Product


@dataclass
class Kept:
    """A target folder and its publish.json."""

    target: Target
    known: Publication
    say: Callable[[str], None] = lambda _: None
    """Told what was found damaged."""

    def place(self, name: str) -> Path:
        """Return where an output goes.

        Raises:
            OutputError: somebody else's file stands there.
        """
        return self.target.check_place(name, self.known)

    def is_there(self, name: str, key: str) -> bool:
        """Return whether the very same lies there already, every byte of it."""
        known, place = self.known.outputs.get(name, Output()), self.target.folder / name
        state = Product.of_files(key, known.key if place.exists() else None, place, known.sha256).state()
        if isinstance(state, Damaged):
            self.say(f"{name}: damaged on disk: written anew" + (f" ({state.part})" if state.part != name else ""))
        return state == Fresh()

    def remember(self, splat: Published) -> None:
        """Keep what is known of a splat, to be written with the next output."""
        record = SplatRecord(
            splat.sha256,
            splat.num_gaussians,
            splat.header.file_bytes,
            splat.header.sh_degree,
            tuple(splat.offset),
            dict(splat.figures),
            splat.warnings,
        )
        self.known = replace(self.known, splats={**self.known.splats, splat.name: record})

    def put(self, aside: Path, name: str, begun: Output) -> Path:
        """Put what was written in its place; return that."""
        self.begin(name, begun)
        place = self.target.folder / name
        put_whole(aside, place)
        return place

    def begin(self, name: str, output: Output) -> None:
        """Write down that something will be ours, so that who comes after a kill knows it."""
        if name not in self.known.outputs:
            self.note(name, output)

    def forget(self, name: str) -> None:
        """Write down that something is not there."""
        left = {other: output for other, output in self.known.outputs.items() if other != name}
        self.known = replace(self.known, outputs=left)
        self.known.write(self.target.folder)

    def note(self, name: str, output: Output) -> None:
        """Write down what is known of an output."""
        self.known = replace(self.known, outputs={**self.known.outputs, name: output})
        self.known.write(self.target.folder)
