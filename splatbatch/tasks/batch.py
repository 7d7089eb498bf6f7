"""A batch from the YAML to what it is about: what every command that has one begins with.

What audits and fingerprints patches is loaded by the methods that do so: `status` needs neither, and should be quick.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from splatbatch import config as configuration
from splatbatch.config import Config, Recipe
from splatbatch.errors import ConfigError
from splatbatch.scene.patches import Patch, find_patches, select
from splatbatch.store.layout import OutputFolder
from splatbatch.tasks import plan
from splatbatch.tasks.task import named_units, only, originals, units_of

if TYPE_CHECKING:
    from splatbatch.scene.audit.audit import Audit
    from splatbatch.scene.audit.findings import TrainerRules
    from splatbatch.store.results import Depth
    from splatbatch.tasks.evidence import Standing


@dataclass(frozen=True)
class Batch:
    """The patches a command is about, and where their results go."""

    config: Config
    patches: tuple[Patch, ...]
    """In a sweep: each under each variant, with a name that says so."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings changed by --set, for every patch of this run."""
    path: Path = Path()
    """Of the YAML."""
    every: tuple[Patch, ...] = ()
    """All patches of the config, of which `patches` are those that a command is about."""

    def whole(self) -> Batch:
        """Return the batch with all its patches, as report, metrics and status are about."""
        return replace(self, patches=self.every, changes={})

    @property
    def output(self) -> OutputFolder:
        """Return the output folder."""
        return OutputFolder(self.config.output.folder)

    def recipes(self, changes: Mapping[str, Any] | None = None) -> list[Recipe]:
        """Return what trains each patch, under the changes of this run or others; patches trained alike share it."""
        shared: dict[tuple[str, str], Recipe] = {}
        found = []
        for patch in self.patches:
            name, variant = self.config.split(patch.name)
            key = (name if name in self.config.patches else "", variant.name if variant else "")
            if key not in shared:
                shared[key] = self.config.recipe(patch.name, self.changes if changes is None else changes)
            found.append(shared[key])
        return found

    def audit(self) -> Audit:
        """Check the patches before a GPU is touched, in a sweep each of them once; all trainers must take them."""
        from splatbatch.trainers import rules_of

        return self._audit(rules_of(self._sound_recipes()), self.patches)

    def audits(self) -> tuple[tuple[Audit, tuple[Patch, ...]], ...]:
        """Return an audit by the rules of each trainer, with the patches that are its."""
        from splatbatch.trainers import rules_of

        groups: dict[TrainerRules, list[Patch]] = {}
        for patch, recipe in zip(self.patches, self._sound_recipes(), strict=True):
            groups.setdefault(rules_of([recipe]), []).append(patch)
        return tuple((self._audit(rules, patches), tuple(patches)) for rules, patches in groups.items())

    def _sound_recipes(self) -> list[Recipe]:
        """Return what trains each patch, once what it names has been seen to be there."""
        from splatbatch.scene.holdout import check_lists

        recipes = self.recipes()
        check_lists(recipe.evaluation for recipe in recipes)
        return recipes

    def _audit(self, rules: TrainerRules, patches: Iterable[Patch]) -> Audit:
        from splatbatch.scene.audit.audit import audit_patches

        cache = self.output.audit_cache if self.output.path.is_dir() else None
        every = self.config.evaluation.holdout_every
        return audit_patches(originals(self.config, patches), self.config.scene.source, rules, cache, every)

    def standing(self, depth: Depth = "time") -> Standing:
        """Return what tells how each patch stands."""
        from splatbatch.tasks.evidence import Standing

        return Standing(self, depth)

    def decisions(
        self, refusals: Mapping[str, str], *, force: bool = False, insist: bool = False
    ) -> tuple[plan.Decision, ...]:
        """Decide which patches have to be trained; files whose size or time have moved are read."""
        standing = self.standing("content")
        return tuple(
            standing.decide(patch.name, refusals.get(patch.name, ""), force=force, insist=insist)
            for patch in self.patches
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
    file = configuration.find_config(path)
    config = configuration.load(file)
    patches = find_patches(config.scene)
    known = [patch.name for patch in patches]
    for name in config.patches:
        if name not in known:
            raise ConfigError(f"patches.{name}: no such patch", configuration.nearest(name, known))
    units = units_of(config, patches)
    chosen = only(config, select(units, named_units(config, units, names)), conditions)
    batch = Batch(config, chosen, dict(changes or {}), file, tuple(units))
    batch.recipes()  # for its errors
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
