"""The section `trainers` of the YAML: external trainers, their commands, logs and files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_serializer

from splatbatch.config.section import HIDDEN, FilePath, Seconds, Section, as_list
from splatbatch.config.sections import LadderName, Rung
from splatbatch.config.yaml.source import Keys

LONGEST_PATTERN = 300
MOST_SETTINGS = 500
OUR_TRAINER = "gsplat"
"""The name of splatbatch's own trainer, which needs no entry under `trainers`."""
ARGUMENTS = "{arguments}"
ANYWHERE = ("patch", "steps", "seed")
"""Names of the placeholders that every template may have; setting.NAME may stand in each, too."""
IN_WORDS = (*ANYWHERE, "scene", "images", "sparse", "output", "gpu")
"""Names of the placeholders that commands and environment variables may have, besides setting.NAME."""
SETTINGS = {
    "steps": "training.max_steps",
    "seed": "training.seed",
    **dict.fromkeys(("images", "scene"), "training.colors"),
}
"""Full name of the setting on which the value of a placeholder depends; setting.NAME depends on itself."""
OF_MEASURING = ("evaluation.holdout_every", "evaluation.holdout_list", "evaluation.holdout", "evaluation.inspect")
"""Settings of measuring and inspecting the splat of an external trainer, which splatbatch does itself."""
_TOKEN = re.compile(r"\{\{|\}\}|\{([A-Za-z_][\w.]*)\}")  # {{ and }} are braces
RESERVED_VARIABLES = ("CUDA_VISIBLE_DEVICES", "SPLATBATCH_ATTEMPT")


def _one_group(pattern: str) -> str:
    """Check a regular expression: it compiles, is short, and captures one thing."""
    if len(pattern) > LONGEST_PATTERN:
        raise ValueError(f"should be at most {LONGEST_PATTERN} characters long")
    try:
        groups = re.compile(pattern).groups
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"no valid regular expression ({error})") from error
    if groups != 1:
        raise ValueError(
            f"should capture one value in ( ), but captures {groups}; a group written (?: ) captures nothing"
        )
    return pattern


def _ours_left_alone(env: dict[str, Any]) -> dict[str, Any]:
    for name in RESERVED_VARIABLES:
        if name in env:
            raise ValueError(f"{name} is set for each attempt by splatbatch: remove it from env")
    return env


Argv = tuple[str, ...]
Pattern = Annotated[str, AfterValidator(_one_group)]
MaybePattern = Annotated[str, AfterValidator(lambda pattern: _one_group(pattern) if pattern else pattern)]
Globs = Annotated[tuple[str, ...], BeforeValidator(as_list)]
SettingName = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")]
Scalar = bool | int | float | str
Metric = Literal["psnr", "ssim", "lpips"]


class ProgressLines(Section):
    """Regular expressions that find the progress in lines of the program's log.

    Each captures one number; the last match of a line counts. Empty: not read.
    """

    step: MaybePattern = ""
    """Regular expression for the training step."""
    loss: MaybePattern = ""
    """Regular expression for the loss."""
    num_gaussians: MaybePattern = ""
    """Regular expression for the number of Gaussians; thousands may be set apart by commas."""


class Artifact(Section):
    """Files that the program must leave behind, and when the program counts as done.

    {output} is the folder of the attempt for the program's files.
    """

    ply: Globs = ("**/*.ply",)
    """Where the splat lies below {output}: one glob or several. Of many matching files the one of the highest step
    counts."""
    step: MaybePattern = r"[_-](\d+)(?=[/.]|$)"
    """Regular expression for the step in the splat's path below {output}; the last match counts. A path without a match
    is of the last step. Empty: no path names a step."""
    first_step: Literal[0, 1] = 1
    """Number that the program gives its first step: 0 where the last of 30,000 steps is named 29999."""
    files: Globs = ()
    """Further files below {output} that must be there, and not empty, before the program counts as done. []: none."""
    export: Argv = ()
    """A second command, run after the first has ended, for programs that write no PLY themselves; `files` must then be
    set. []: none."""
    finished_after_s: Seconds = 60.0
    """Time without output, in seconds or as 60s, after which a program is ended once all its files are there. A program
    that goes on printing is ended later; 0: never."""
    trusted_after_crash: bool | Literal["proven"] = "proven"
    """Whether a complete splat counts, with a warning, although the program crashed afterwards. `proven`: if the log or
    a file's name shows the last step; true: also if neither tells a step; false: never."""


class Measures(Section):
    """Quality of the program's splat: whether splatbatch measures it, and where the program reports its own figures."""

    file: str = ""
    """Glob of a JSON file with figures below {output}; of many the one of the highest step counts. Empty: no such
    file."""
    keys: dict[Metric, str] = {}
    """Where each figure lies in `file`: names with dots between, numbers into lists, * for the only or the last member.
    {}: none is read."""
    evaluate: bool = True
    """Measure the finished splat as splatbatch measures its own: on held-out photographs and covered pixels."""
    log: dict[Metric, Pattern] = {}
    """Quality figures in the log, each captured by a regular expression; the last match counts. {}: none."""


class CameraSupport(Section):
    """Cameras and sizes of photographs that the program accepts; the audit reports all others as errors."""

    models: tuple[str, ...] = ("PINHOLE", "SIMPLE_PINHOLE")
    """COLMAP camera models that the program accepts."""
    absorbs_resize: bool = False
    """Whether the program works from the field of view, so that photographs of another size than the cameras' are
    right."""


class Program(Section):
    """An external trainer, run without a shell and with empty standard input, so that questions end at once.

    Placeholders in command, export and env: {patch} {scene} {images} {sparse} {output} {steps} {seed} {gpu}
    {setting.NAME}; in the globs {patch} {steps} {seed} {setting.NAME}. In command, {arguments} is where a rung's extra
    words go (else at the end). A brace itself is written twice.
    """

    command: Annotated[Argv, Field(min_length=1)]
    """The program and its arguments, one word each."""
    settings: Annotated[dict[SettingName, Scalar], Field(max_length=MOST_SETTINGS)] = {}
    """Values for {setting.NAME}; patches, ladders and --set change them as setting.NAME."""
    env: Annotated[dict[str, Scalar], AfterValidator(_ours_left_alone)] = {}
    """Environment variables besides those of splatbatch itself; values may be passwords, and are never shown."""
    working_folder: FilePath | None = None
    """Folder in which the program is started. Left out: {output}."""
    progress: ProgressLines = ProgressLines()
    """How the program's log tells its progress."""
    artifact: Artifact = Artifact()
    """Files that the program leaves behind."""
    metrics: Measures = Measures()
    """Where the program reports the quality of its splat, and whether splatbatch measures it."""
    cameras: CameraSupport = CameraSupport()
    """Cameras and sizes of photographs that the program accepts."""
    ladders: dict[LadderName, tuple[Rung, ...]] = {}
    """Settings to change, rung by rung, for causes that an unchanged attempt cannot mend: setting.NAME, slots
    (attempts that run at once), or `arguments: [--words]`. {}: none."""

    @field_serializer("env", when_used="json")
    def _named(self, env: dict[str, Scalar]) -> dict[str, str]:
        """Return the environment variables with `HIDDEN` in place of their values, for JSON and YAML."""
        return dict.fromkeys(env, HIDDEN)

    def templates(self) -> Iterator[tuple[Keys, str, bool]]:
        """Yield every text that may hold placeholders, with its place in the program's settings.

        The third value tells whether the text is a glob.
        """
        lists: tuple[tuple[Keys, Argv, bool], ...] = (
            (("command",), self.command, False),
            (("artifact", "export"), self.artifact.export, False),
            (("artifact", "ply"), self.artifact.ply, True),
            (("artifact", "files"), self.artifact.files, True),
        )
        for place, texts, is_glob in lists:
            yield from (((*place, index), text, is_glob) for index, text in enumerate(texts))
        yield from ((("env", name), str(value), False) for name, value in self.env.items())
        yield ("metrics", "file"), self.metrics.file, True

    def reads(self) -> frozenset[str]:
        """Return the full names of the settings that the program reads: those in its templates, and "training.trainer".

        With `metrics.evaluate` the settings of measuring belong to them. So does "arguments", since a rung may add
        words to every command.
        """
        named = names_in(template for _, template, _ in self.templates())
        ours = OF_MEASURING if self.metrics.evaluate else ()
        return frozenset((*(SETTINGS.get(name, name) for name in named), *ours, "arguments", "training.trainer"))

    def called_with(self, arguments: tuple[str, ...]) -> Program:
        """Return the program with words added to its command, in place of {arguments} or else at the end.

        Braces in the words are doubled, so that `fill` leaves them as they are.
        """
        words = tuple(word.replace("{", "{{").replace("}", "}}") for word in arguments)
        place = self.command.index(ARGUMENTS) if ARGUMENTS in self.command else len(self.command)
        return self.model_copy(update={"command": (*self.command[:place], *words, *self.command[place + 1 :])})


def names_in(templates: Iterable[str]) -> set[str]:
    """Return the names of all placeholders in templates; doubled braces are no placeholders."""
    return {match[1] for template in templates for match in _TOKEN.finditer(template) if match[1]}


def fill(template: str, values: Mapping[str, object]) -> str:
    """Return a template with its placeholders filled in, and doubled braces as single ones.

    Raises:
        KeyError: a placeholder has no value.
    """
    return _TOKEN.sub(lambda match: in_words(values[match[1]]) if match[1] else match[0][0], template)


def in_words(value: object) -> str:
    """Return a value as a word of a command; booleans become "true" and "false"."""
    return str(value).lower() if isinstance(value, bool) else str(value)
