"""A batch from the YAML to its outcomes: what `train`, `retry` and `plan` have in common."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from splatbatch import config as configuration
from splatbatch.attempt import Attempt, AttemptFolder, Outcome, Trained
from splatbatch.batch import attempts, needs, plan, results, twins
from splatbatch.batch.endings import Ending, settle
from splatbatch.batch.folder import OutputFolder
from splatbatch.batch.ledger import Ledger, judged_attempts
from splatbatch.batch.runner import Runner
from splatbatch.batch.units import named_units, only, originals, units_of
from splatbatch.batch.work import Work
from splatbatch.config import Config, Recipe
from splatbatch.errors import ConfigError
from splatbatch.executors import open_executor, verdict
from splatbatch.executors.protocol import Seen
from splatbatch.files import read_json, sweep, write_text
from splatbatch.scene.audit import Audit, TrainerRules, audit_patches
from splatbatch.scene.holdout import check_lists
from splatbatch.scene.need import Need
from splatbatch.scene.patches import Patch, find_patches, select
from splatbatch.trainers import open_trainer, rules_of
from splatbatch.trainers.usable import check_usable


@dataclass(frozen=True)
class Batch:
    """The patches a command is about, and where their results go."""

    config: Config
    patches: tuple[Patch, ...]
    """In a sweep: each under each variant, with a name that says so."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings changed by --set, for every patch of this run."""

    @property
    def output(self) -> OutputFolder:
        """Return the output folder."""
        return OutputFolder(self.config.output.folder)

    def recipes(self) -> list[Recipe]:
        """Return what trains each patch."""
        return [self.config.recipe(patch.name, self.changes) for patch in self.patches]

    def audit(self) -> Audit:
        """Check the patches before a GPU is touched, in a sweep each of them once; all trainers must take them."""
        return self._audit(rules_of(self._sound_recipes()), self.patches)

    def audits(self) -> tuple[tuple[Audit, tuple[Patch, ...]], ...]:
        """Return an audit by the rules of each trainer, with the patches that are its."""
        groups: dict[TrainerRules, list[Patch]] = {}
        for patch, recipe in zip(self.patches, self._sound_recipes(), strict=True):
            groups.setdefault(rules_of([recipe]), []).append(patch)
        return tuple((self._audit(rules, patches), tuple(patches)) for rules, patches in groups.items())

    def _sound_recipes(self) -> list[Recipe]:
        """Return what trains each patch, once what it names has been seen to be there."""
        recipes = self.recipes()
        check_lists(recipe.evaluation for recipe in recipes)
        return recipes

    def _audit(self, rules: TrainerRules, patches: Iterable[Patch]) -> Audit:
        cache = self.output.audit_cache if self.output.path.is_dir() else None
        every = self.config.evaluation.holdout_every
        return audit_patches(originals(self.config, patches), self.config.scene.source, rules, cache, every)

    def decisions(self, refusals: Mapping[str, str], *, force: bool = False) -> tuple[plan.Decision, ...]:
        """Decide which patches have to be trained."""
        prints = results.fingerprints((patch, self.config.recipe(patch.name)) for patch in self.patches)
        return tuple(
            plan.decide(
                patch.name,
                now,
                results.found(self.output.patch(patch.name)),
                refusals.get(patch.name, ""),
                force=force,
            )
            for patch, now in zip(self.patches, prints, strict=True)
        )

    def only(self, names: Iterable[str]) -> Batch:
        """Return the batch with the named patches alone."""
        wanted = set(names)
        return replace(self, patches=tuple(patch for patch in self.patches if patch.name in wanted))


def open_batch(
    path: Path | None,
    names: Sequence[str] = (),
    changes: Mapping[str, Any] | None = None,
    conditions: Sequence[str] = (),
) -> Batch:
    """Load the config, find its patches and see that everything it says of them holds.

    Args:
        path: of the YAML; None for the usual one.
        names: of the patches that are meant, with or without a variant of the sweep; none for all.
        changes: settings that differ from the YAML.
        conditions: of the patches that are meant, as "variant=base".

    Raises:
        ConfigError: the YAML, a patch name, a change or a condition is wrong.
        SceneError: there are no patches.
    """
    config = configuration.load(configuration.find_config(path))
    patches = find_patches(config.scene)
    known = [patch.name for patch in patches]
    for name in config.patches:
        if name not in known:
            raise ConfigError(f"patches.{name}: no such patch", configuration.nearest(name, known))
    units = units_of(config, patches)
    chosen = only(config, select(units, named_units(config, units, names)), conditions)
    batch = Batch(config, chosen, dict(changes or {}))
    for patch in batch.patches:
        config.recipe(patch.name, batch.changes)
    return batch


def refusals(batch: Batch, audits: Iterable[tuple[Audit, Iterable[Patch]]]) -> dict[str, str]:
    """Return the patches that their audit refuses, with the first of the reasons for each."""
    found: dict[str, str] = {}
    for audit, patches in audits:
        reasons: dict[str, str] = {}
        for finding in audit.errors():
            reasons.setdefault(finding.patch, f"{finding.subject}: {finding.message}. {finding.remedy}")
        found |= {patch.name: reasons.get(batch.config.split(patch.name)[0], "") for patch in patches}
    return {name: reason for name, reason in found.items() if reason}


def run(batch: Batch, ledger: Ledger, *, stop: Callable[[], str], beat: Callable[[], None]) -> Mapping[str, Outcome]:
    """Train the patches of a batch; the output lock must be held.

    Raises:
        TrainerError, ExecutorError: nothing can be trained on this machine.
    """
    check_usable(batch.recipes())
    with contextlib.closing(open_executor(batch.config.executor, batch.config.training.device)) as executor:
        write_text(batch.output.config, configuration.to_yaml(batch.config))
        ledger.write(
            "batch_started",
            patches=[patch.name for patch in batch.patches],
            slots=[slot.name for slot in executor.slots()],
            changes=dict(batch.changes),
        )
        expected = needs.needs(batch.config, batch.patches, batch.changes)
        needs.record(expected, batch.config, ledger)
        twins.let_go(executor, results.batch_name(batch.output), ledger, batch.config.limits.grace_s, beat)
        works = [_work(batch, patch, expected.get(patch.name)) for patch in batch.patches]
        outcomes = Runner(batch.config, executor, ledger).run(works, stop=stop, beat=beat)
    trained = sum(isinstance(outcome, Trained) for outcome in outcomes.values())
    ledger.write("batch_ended", trained=trained, of=len(batch.patches), stopped=stop())
    return outcomes


def _work(batch: Batch, patch: Patch, need: Need | None) -> Work:
    steps = batch.config.recipe(patch.name, batch.changes).training.max_steps
    return Work(patch, dict(batch.changes), num_steps=steps, need=need)


def adopt(batch: Batch, ledger: Ledger, beat: Callable[[], None] = lambda: None) -> None:
    """Settle attempts whose parent died before it could, and accept what they trained; nothing is trained twice.

    Those that still run are stopped first; those that never started are barred from starting late.

    Raises:
        ExecutorError: an attempt may still run, and the engine that could tell cannot be asked here.
    """
    settled = judged_attempts(batch.output.ledger)
    left = [
        (patch, folder)
        for patch in batch.patches
        for folder in batch.output.patch(patch.name).attempts()
        if (patch.name, folder.number) not in settled and not (folder.cancel.exists() and not folder.start.exists())
    ]
    if any(not folder.exit.exists() for _, folder in left):
        with contextlib.closing(open_executor(batch.config.executor, batch.config.training.device)) as executor:
            twins.let_go(executor, results.batch_name(batch.output), ledger, batch.config.limits.grace_s, beat)
    for patch, folder in left:
        sweep(batch.output.patch(patch.name).path)
        attempts.tidy(folder)
        if attempts.never_went(folder):
            shutil.rmtree(folder.path, ignore_errors=True)
        elif folder.start.exists():
            _adopt_attempt(batch, patch, folder, ledger)
        else:
            folder.cancel.touch()


def _adopt_attempt(batch: Batch, patch: Patch, folder: AttemptFolder, ledger: Ledger) -> None:
    end = verdict(read_json(folder.exit), heartbeat_moves=False, seen=Seen("gone", "the run that started it has died"))
    if end is None:
        return
    job = read_json(folder.job) or {}
    attempt = Attempt(patch.name, folder, job.get("changes") or {}, job.get("depends_on") or {})
    outcome = attempts.judge(folder, open_trainer(batch.config.recipe(patch.name, attempt.changes)), end)
    # what it trained counts only if it is what would be trained today
    accepted = attempt.depends_on == vars(results.fingerprint(patch, batch.config.recipe(patch.name)))
    settle(Ending(attempt, end, outcome), batch.output.patch(patch.name), ledger, adopted=True, accepted=accepted)
