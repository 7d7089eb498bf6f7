"""The configuration: the YAML as typed sections.

All mistakes of a file are reported at once, each with its line and, for an unknown key, the nearest known name.
"""

from splatbatch.config.executor import Executor
from splatbatch.config.load import (
    DEFAULT_CONFIG,
    Config,
    config_in,
    find_config,
    has_config,
    json_schema,
    load,
    parse_changes,
    placed,
    to_yaml,
)
from splatbatch.config.recipe import Evaluation, Recipe, Training
from splatbatch.config.section import NO_OFFSET, Offset
from splatbatch.config.sections import Cooldown, LadderName, Limits, Notify, Output, Retry, Rung, Scene, Tracking
from splatbatch.config.sweep.sweep import TaskId, Variant
from splatbatch.config.yaml.edit import save_moved
from splatbatch.config.yaml.limits import STDIN
from splatbatch.config.yaml.source import near, nearest, no_such, no_such_patch

__all__ = [
    "DEFAULT_CONFIG", "NO_OFFSET", "STDIN", "Config", "Cooldown", "Evaluation", "Executor", "LadderName", "Limits",
    "Notify", "Offset", "Output", "Recipe", "Retry", "Rung", "Scene", "TaskId", "Tracking", "Training", "Variant",
    "config_in", "find_config", "has_config", "json_schema", "load", "near", "nearest", "no_such",
    "no_such_patch", "parse_changes", "placed", "save_moved", "to_yaml",
]  # fmt: skip
