"""A batch from the YAML to its outcomes: what `train`, `retry` and `plan` have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from splatbatch import config as configuration
from splatbatch.attempt import Attempt, AttemptFolder, Outcome, Trained, exit_to_record
from splatbatch.batch import attempts, plan, results
from splatbatch.batch.folder import OutputFolder
from splatbatch.batch.ledger import Ledger, judged_attempts
from splatbatch.batch.runner import Runner
from splatbatch.batch.work import Work, outcome_to_record
from splatbatch.config import Config
from splatbatch.errors import ConfigError
from splatbatch.executors import open_executor, verdict
from splatbatch.executors.protocol import Seen
from splatbatch.files import read_json, write_text
from splatbatch.scene.audit import Audit, TrainerRules, audit_patches
from splatbatch.scene.patches import Patch, find_patches, select
from splatbatch.trainers import CAMERA_MODELS, check_importable, open_trainer


@dataclass(frozen=True)
class Batch:
    """The patches a command is about, and where their results go."""

    config: Config
    patches: tuple[Patch, ...]
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings changed by --set, for every patch of this run."""

    @property
    def output(self) -> OutputFolder:
        """Return the output folder."""
        return OutputFolder(self.config.output.folder)

    def audit(self) -> Audit:
        """Check the patches before a GPU is touched."""
        training = self.config.training
        rules = TrainerRules(name=training.trainer, absorbs_resize=False, camera_models=CAMERA_MODELS)
        cache = self.output.audit_cache if self.output.path.is_dir() else None
        every = self.config.evaluation.holdout_every
        return audit_patches(self.patches, self.config.scene.source, rules, cache, every)

    def decisions(self, refusals: Mapping[str, str], *, force: bool = False) -> tuple[plan.Decision, ...]:
        """Decide which patches have to be trained."""
        return tuple(
            plan.decide(
                patch.name,
                results.fingerprint(patch, self.config.recipe(patch.name)),
                results.found(self.output.patch(patch.name)),
                refusals.get(patch.name, ""),
                force=force,
            )
            for patch in self.patches
        )

    def only(self, names: Iterable[str]) -> Batch:
        """Return the batch with the named patches alone."""
        wanted = set(names)
        return replace(self, patches=tuple(patch for patch in self.patches if patch.name in wanted))


def open_batch(path: Path | None, names: Sequence[str] = (), changes: Mapping[str, Any] | None = None) -> Batch:
    """Load the config, find its patches and see that everything it says of them holds.

    Raises:
        ConfigError: the YAML, a patch name or a change is wrong.
        SceneError: there are no patches.
    """
    config = configuration.load(configuration.find_config(path))
    patches = find_patches(config.scene)
    known = [patch.name for patch in patches]
    for name in config.patches:
        if name not in known:
            raise ConfigError(f"patches.{name}: no such patch", configuration.nearest(name, known))
    batch = Batch(config, select(patches, names), dict(changes or {}))
    for patch in batch.patches:
        config.recipe(patch.name, batch.changes)
    return batch


def refusals(audit: Audit) -> dict[str, str]:
    """Return the patches that the audit refuses, with the first of the reasons for each."""
    reasons: dict[str, str] = {}
    for finding in audit.errors():
        reasons.setdefault(finding.patch, f"{finding.subject}: {finding.message}. {finding.remedy}")
    return reasons


def run(batch: Batch, ledger: Ledger, *, stop: Callable[[], str], beat: Callable[[], None]) -> Mapping[str, Outcome]:
    """Train the patches of a batch; the output lock must be held.

    Raises:
        TrainerError, ExecutorError: nothing can be trained on this machine.
    """
    check_importable()
    executor = open_executor(batch.config.executor, batch.config.training.device)
    write_text(batch.output.config, configuration.to_yaml(batch.config))
    ledger.write(
        "batch_started",
        patches=[patch.name for patch in batch.patches],
        slots=[slot.name for slot in executor.slots()],
        changes=dict(batch.changes),
    )
    runner = Runner(batch.config, executor, ledger)
    works = [Work(patch, dict(batch.changes)) for patch in batch.patches]
    outcomes = runner.run(works, stop=stop, beat=beat)
    trained = sum(isinstance(outcome, Trained) for outcome in outcomes.values())
    ledger.write("batch_ended", trained=trained, of=len(batch.patches), stopped=stop())
    return outcomes


def adopt(batch: Batch, ledger: Ledger) -> None:
    """Judge attempts that ended after their parent had died, and accept what they trained; nothing is trained twice."""
    judged = judged_attempts(batch.output.ledger)
    for patch in batch.patches:
        for folder in batch.output.patch(patch.name).attempts():
            if (patch.name, folder.number) not in judged and folder.start.exists():
                _adopt_attempt(batch, patch, folder, ledger)


def _adopt_attempt(batch: Batch, patch: Patch, folder: AttemptFolder, ledger: Ledger) -> None:
    record = read_json(folder.exit)
    end = verdict(record, heartbeat_moves=False, seen=Seen("gone", "the run that started it has died"))
    if end is None:
        return
    changes = (read_json(folder.job) or {}).get("changes") or {}
    recipe = batch.config.recipe(patch.name, changes)
    same_settings = (read_json(folder.settings) or {}).get("recipe") == recipe.model_dump(mode="json")
    outcome = attempts.judge(folder, open_trainer(recipe), end)
    facts = attempts.facts(folder)
    if isinstance(outcome, Trained) and same_settings:
        prints = results.fingerprint(patch, batch.config.recipe(patch.name))
        attempt = Attempt(patch.name, folder, changes)
        results.accept(batch.output.patch(patch.name), attempt, outcome, {**vars(prints), **facts})
    ledger.write(
        "attempt_ended",
        patch=patch.name,
        attempt=folder.number,
        exit=exit_to_record(end),
        adopted=True,
        **facts,
        **outcome_to_record(outcome),
    )
