"""The section `executor` of the YAML: where attempts run, on which GPUs, and by how many workers."""

from __future__ import annotations

import shlex
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from splatbatch.config.section import SPAN, Section, as_list

OF_SLURM = {
    **dict.fromkeys(
        ("comment", "job-name", "output", "error", "parsable", "signal", "test-only", "wrap", "wait"),
        "it is set by splatbatch",
    ),
    **{"time": "worker_time says how long", "array": "workers says how many"},
}
"""Options of sbatch that splatbatch sets, or that would hide its job number; each with the reason for the error."""
SHORT_OF_SLURM = {"a": "array", "J": "job-name", "o": "output", "e": "error", "t": "time", "W": "wait"}


def _as_options(given: Any) -> Any:
    """Split options of sbatch into words ("-p gpu" is two), and refuse options that splatbatch sets itself."""
    try:
        words = [word for one in as_list(given) for word in shlex.split(one)]
    except (TypeError, ValueError, AttributeError):
        return given
    for word in words:
        name = (
            word[2:].partition("=")[0]
            if word.startswith("--")
            else SHORT_OF_SLURM.get(word[1:2] * word.startswith("-"))
        )
        if name in OF_SLURM:
            raise ValueError(f"{word}: {OF_SLURM[name]}")
    return words


def _as_store(given: str) -> str:
    """Refuse the URL of a store that holds a password, since batch.yaml would show it."""
    if urlsplit(given).password is not None:
        raise ValueError("holds a password: credentials come from the environment, an ssh agent or ~/.ssh")
    return given


class Executor(Section):
    """Where attempts run."""

    gpus: Literal["auto"] | tuple[Annotated[int, Field(ge=0)], ...] = "auto"
    """GPU indices as nvidia-smi shows them; `auto`: those that CUDA_VISIBLE_DEVICES leaves; []: train on the CPU."""
    cpu_slots: Annotated[int, Field(ge=1, le=1024)] = 1
    """Patches trained at once when no GPU is used."""
    patches_per_gpu: Literal["auto"] | Annotated[int, Field(ge=1, le=8)] = "auto"
    """Patches trained on a GPU at once, if their memory fits; auto: up to four where they need at most 60 % of free
    memory, and fewer if fewer prove faster."""
    engine: Literal["local", "slurm"] = "local"
    """Who starts the workers that train: this machine, or a cluster's Slurm."""
    workers: Annotated[int, Field(ge=1, le=1000)] = 1
    """Workers at once; a batch on this machine with one of them is trained by `train` itself."""
    store: Annotated[str, AfterValidator(_as_store)] = ""
    """By which tasks travel to workers that share no folder with us (`splatbatch work STORE`): a folder, ssh://host/path
    or s3://bucket/prefix. Credentials come from the environment. Empty: nothing travels."""
    gpus_per_worker: Annotated[int, Field(ge=0, le=64)] | None = None
    """GPUs that the engine gives each; left out: one, or none where training.device is cpu."""
    worker_time: Annotated[float, SPAN, Field(ge=60)] | None = None
    """Longest time of a worker, as 3h30m, a minute at least; another goes on where it ended. Left out: as long as the
    queue allows."""
    setup: Annotated[tuple[str, ...], BeforeValidator(as_list)] = ()
    """Lines for the shell on the node, before the worker: [module load cuda]."""
    sbatch: Annotated[tuple[str, ...], BeforeValidator(_as_options)] = ()
    """More options of sbatch: [--partition=gpu, --account=us, --cpus-per-task=8, --mem=32G]."""

    @model_validator(mode="after")
    def _fits_its_engine(self) -> Executor:
        if self.engine != "slurm" and self.sbatch:
            raise ValueError(f"sbatch is for engine: slurm, not for {self.engine}")
        if self.engine == "local" and (self.setup or self.worker_time):
            raise ValueError("setup and worker_time are for engines of clusters: workers of this machine use neither")
        if self.engine != "local" and self.gpus not in ("auto", ()):
            raise ValueError(f"gpus: {list(self.gpus)}: {self.engine} chooses them; gpus_per_worker says how many")
        return self

    def gpus_of_each(self, device: str) -> int:
        """Return how many GPUs each worker wants."""
        if self.gpus_per_worker is not None:
            return self.gpus_per_worker
        return 0 if device == "cpu" or self.gpus == () else 1
