"""`scene`: one scene in, one scene out: split, train, merge and evaluate, each left out where nothing has changed."""

from __future__ import annotations

import contextlib
import shlex
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import typer

from splatbatch import config as configuration
from splatbatch import terminal
from splatbatch.commands.scene import evaluate as evaluating
from splatbatch.commands.scene import merge as merging
from splatbatch.commands.scene import split as splitting
from splatbatch.commands.train import train as training
from splatbatch.commands.train.afterwards import After, Night, guarded, left_out, publish_after
from splatbatch.config.yaml.edit import save_settings
from splatbatch.errors import ConfigError, SplatbatchError
from splatbatch.files import MOST_JSON_BYTES, read_regular, write_text
from splatbatch.machine.gpu import presence
from splatbatch.night.interruption import Interruption
from splatbatch.plain_text import moment, one_line
from splatbatch.scene.partition.output.shared import find_source
from splatbatch.scene.partition.record import partition_of
from splatbatch.scene.partition.split import Asked
from splatbatch.scene.partition.wish import Wish
from splatbatch.scene.template import config_for
from splatbatch.store.records.afterwards import DONE, Afterwards
from splatbatch.store.records.evaluation import SceneEvaluation
from splatbatch.tasks.batch import Batch, open_batch
from splatbatch.tasks.scene.evaluation import order
from splatbatch.tasks.scene.partition import check_scene

NOT_WHOLE = 1
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class SceneOptions:
    """What is to become of a scene."""

    source: Path
    images: Path | None
    out: Path
    """Patches, YAML and output go into this folder."""
    max_images: int | None = None
    settings: tuple[str, ...] = ()
    """As "training.max_steps=7000", written into the YAML."""
    allow_missing: bool = False
    clean: bool = False

    @property
    def config(self) -> Path:
        """Return where its YAML lies."""
        return self.out / configuration.DEFAULT_CONFIG


def scene(options: SceneOptions) -> None:
    """Make one splat of a scene, and say how good it is; exit with 0 if it is whole, with 1 if a patch is missing.

    Raises:
        SplatbatchError: a step cannot be done; the same command goes on from there.
    """
    terminal.never_block()
    changes = dict(configuration.parse_change(assignment) for assignment in options.settings)
    _cut(options)
    _write_config(options, changes)
    _say("train: 2 of 4")
    rest = Rest(options)
    code = _trained(options.config, rest.follow)
    if rest.error:
        raise rest.error
    raise typer.Exit(code or rest.code)


@dataclass
class Rest:
    """What follows the training of a scene: merged, measured, and published as its YAML says."""

    options: SceneOptions
    error: SplatbatchError | None = None
    """Why a step could not be done."""
    code: int = 0

    def follow(self, night: Night) -> Sequence[Afterwards]:
        """Do it as far as it can be done; return what came of each."""
        done: list[Afterwards] = []
        for what, make in (("merge", self._merge), ("evaluate", self._evaluate)):
            asks = what == "evaluate"  # its supervisor is to end the process that measures
            found = guarded(what, night.interruption, partial(self._kept, make, night), asks=asks)
            night.batch.output.note_afterwards(what, found)
            done.append(found)
            if not found.is_done:
                return [*done, *self._nothing_published(night, found)]
        allow_missing = self.options.allow_missing
        return [*done, *publish_after(night, merges=False, allow_missing=allow_missing)]

    def _kept(self, make: Callable[[Night], Afterwards], night: Night) -> Afterwards:
        try:
            return make(night)
        except SplatbatchError as error:
            self.error = error
            raise

    def _merge(self, night: Night) -> Afterwards:
        code, options = night.code, self.options
        if code not in (0, NOT_WHOLE) or (code and not options.allow_missing):
            return left_out("merge", "not merged: a patch is missing; --allow-missing merges the others", self._again)
        _say("merge: 3 of 4")
        merged = merging.MergeOptions(allow_missing=options.allow_missing, clean=options.clean)
        merging.merge(options.config, merged, as_json=False)
        return _done("merge", f"merged: {night.batch.output.scene.splat}")

    def _evaluate(self, night: Night) -> Afterwards:
        _say("evaluate: 4 of 4")
        batch = open_batch(self.options.config)
        found = _evaluated(batch, night.interruption)
        evaluating.show(found)
        self.code = NOT_WHOLE if found.lacking else 0
        how = shlex.quote(str(self.options.config))
        typer.echo(one_line(f"{batch.output.scene.splat}; again, step by step: see {how}"))
        return _done("evaluate", "evaluated: the merged scene")

    def _nothing_published(self, night: Night, found: Afterwards) -> Sequence[Afterwards]:
        """Return that nothing was published, if the YAML asks for it."""
        output, is_asked = night.batch.output, bool(night.batch.config.publish.formats)
        said = left_out("publish", f"not published: the scene is {found.words}", self._again) if is_asked else None
        output.note_afterwards("publish", said)
        return [said] if said else []

    @property
    def _again(self) -> str:
        return "splatbatch train"


def _done(what: str, words: str) -> Afterwards:
    return Afterwards(what, DONE, one_line(words), "", time.time())


def _cut(options: SceneOptions) -> None:
    """Cut the scene, unless it is cut already as it was asked for."""
    patches = options.out / "patches"
    before = partition_of(patches) if patches.is_dir() else None
    if before is not None and options.max_images is None and _is_same(before.source, find_source(options.source)):
        check_scene(before)
        _say("split: 1 of 4: the scene is cut already")
        return
    _say("split: 1 of 4")
    asked = Asked(options.source, options.images, patches, Wish(options.max_images), splitting.trained_in(patches))
    splitting.run(asked, splitting.Output(picture=None, dry_run=False, as_json=False))


def _is_same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


def _write_config(options: SceneOptions, changes: dict[str, object]) -> None:
    """Write the YAML with which every step can be repeated; one that is there gets the named settings alone.

    Raises:
        ConfigError: a setting is none, or its value does not fit; the YAML is as it was.
    """
    path = options.config
    try:
        before = read_regular(path, MOST_JSON_BYTES).decode() if path.exists() else None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error})", "Name a YAML file, or leave --config out.") from error
    if before is None:
        write_text(path, config_for(options.out, options.out.resolve(), has_gpu=presence().is_here()))
    try:
        if changes:
            save_settings(path, changes)
        configuration.load(path)
    except ConfigError:
        if before is None:
            path.unlink(missing_ok=True)
        else:
            write_text(path, before)
        raise


def _trained(config: Path, after: After) -> int:
    """Train what is not trained, and do the rest; return the exit code of `train`."""
    with _handlers_kept():
        try:
            training.train(config, (), (), verify=True, after=after)
        except typer.Exit as ended:
            return int(ended.exit_code)
    return 0


def _evaluated(batch: Batch, interruption: Interruption) -> SceneEvaluation:
    """Return how good the merged scene is: measured now, unless nothing has changed since it was."""
    settings = order(batch, batch.output.scene.splat)
    known = batch.output.scene.read_evaluation()
    if known is not None and known.inputs == settings.inputs:
        _say("measured already: nothing has changed")
        return known
    return evaluating.evaluated(batch, settings, interruption)


@contextlib.contextmanager
def _handlers_kept() -> Iterator[None]:
    """Put the handlers of signals back that a step sets for itself: the next one is to hear them, too."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(words: str) -> None:
    typer.echo(f"{moment(time.time())} {one_line(words)}", err=True)
