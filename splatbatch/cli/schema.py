"""Schemas that `config schema` prints, of what each command prints with --json; docs/json holds them all."""

from __future__ import annotations

import ast
import inspect
import textwrap
from dataclasses import is_dataclass
from itertools import pairwise
from typing import Any, cast, get_type_hints

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from splatbatch.errors import ConfigError

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def printed() -> dict[str, Any]:
    """Return the type that each command prints with --json; `config show` is left out: it has a schema of its own.

    The output of `verify-dims --fix` is left out, too.
    """
    from splatbatch.doctor.checks import DoctorOutput
    from splatbatch.outcome import Diagnosis
    from splatbatch.output.records.evaluation import SceneEvaluation
    from splatbatch.output.records.merge import MergeOutput
    from splatbatch.output.records.publication import PublishOutput
    from splatbatch.output.records.quality import Inspection
    from splatbatch.publish.certificate import CertificateCheck
    from splatbatch.reconstruction.facts import ReconstructionRecord
    from splatbatch.report.facts import Report
    from splatbatch.run.clean import CleanOutput
    from splatbatch.run.explain import ExplainOutput
    from splatbatch.run.plan import PlanOutput
    from splatbatch.run.prepare import Import, VerifyOutput
    from splatbatch.run.status import Status
    from splatbatch.run.travel import PackOutput, StoreFacts
    from splatbatch.scene.next_flight import CapturePlan
    from splatbatch.scene.partition.split import SplitFacts
    from splatbatch.trainers.catalog import TrainerList

    return {
        "plan": PlanOutput,
        "status": Status | StoreFacts,
        "verify-dims": VerifyOutput,
        "explain": ExplainOutput | Diagnosis,
        "doctor": DoctorOutput | TrainerList,
        "report": Report,
        "clean": CleanOutput,
        "pack": PackOutput,
        "import": Import,
        "reconstruct": ReconstructionRecord,
        "split": SplitFacts,
        "merge": MergeOutput,
        "evaluate": SceneEvaluation,
        "inspect": dict[str, Inspection] | dict[str, CertificateCheck],
        "plan-capture": CapturePlan,
        "publish": PublishOutput,
    }


def schema_of(command: str) -> dict[str, Any]:
    """Return the JSON Schema of a command's --json output, of the YAML for "config show", or of "partition.json".

    Raises:
        ConfigError: there is no such command, or it prints no JSON.
    """
    if command == "config show":
        from splatbatch.config import json_schema

        return json_schema()
    if command == "partition.json":
        from splatbatch.scene.partition import record

        return record.json_schema()
    if command not in (shapes := printed()):
        known = ", ".join(sorted([*shapes, "config show", "partition.json"]))
        raise ConfigError(f"config schema {command}: no such schema", f"Available: {known}.")
    schema = TypeAdapter(shapes[command]).json_schema(mode="serialization", schema_generator=_Printed)
    return {**schema, "$schema": DIALECT, "title": f"splatbatch {command} --json"}


class _Printed(GenerateJsonSchema):
    """Makes schemas of complete output: fields with a default, and properties listed in `told`, are required."""

    def field_is_required(self, field: Any, total: bool) -> bool:
        return field["type"] == "dataclass-field" or super().field_is_required(field, total)

    def dataclass_schema(self, schema: Any) -> dict[str, Any]:
        """Return the schema of a dataclass, with the docstrings of its fields as descriptions."""
        found, kind = super().dataclass_schema(schema), schema["cls"]
        for name in getattr(kind, "told", ()):
            returned = get_type_hints(getattr(kind, name).fget)["return"]
            found["properties"][name] = TypeAdapter(returned).json_schema(mode="serialization")
            found["required"].append(name)
        for name, words in docstrings(kind).items():
            if name in found["properties"]:
                found["properties"][name]["description"] = words
        return found


def docstrings(kind: type) -> dict[str, str]:
    """Return the docstrings of the fields of a dataclass, by field; fields without docstring are left out.

    Inherited fields are included.
    """
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        if is_dataclass(one):
            body = cast("ast.ClassDef", ast.parse(textwrap.dedent(inspect.getsource(one))).body[0]).body
            for field, below in pairwise(body):
                match field, below:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                        found[name] = " ".join(words.split())
    return found
