"""The section `executor` of the YAML: where attempts run, on which GPUs, and by how many workers."""

from __future__ import annotations

import shlex
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from splatbatch.config.section import SPAN, Section, as_list
from splatbatch.errors import ConfigError

OF_SLURM = {
    **dict.fromkeys(
        ("comment", "job-name", "output", "error", "parsable", "signal", "test-only", "wrap", "wait"),
        "this option is set by splatbatch itself: remove it",
    ),
    "time": "remove this option: executor.worker_time sets the time",
    "array": "remove this option: executor.workers sets the number",
}
"""Long options of sbatch that the YAML must not give, each with the reason for the error.

splatbatch sets them itself, or they would hide the job number that it reads from sbatch."""
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


def scheme_of(url: str) -> str:
    """Return the scheme of a store's URL: "ssh", "s3", or "" for a folder, which may be written as file://folder.

    Raises:
        ConfigError: the scheme is unknown, or the URL holds a password (for S3 also a user). Or its host or bucket is
            missing or malformed, or its port is no number from 0 to 65535.
    """
    scheme, is_url, _ = url.partition("://")
    if not is_url or scheme == "file":
        return ""
    if scheme not in ("ssh", "s3"):
        raise ConfigError(
            f"{scheme}://: unknown scheme of a store", "A store is a folder, ssh://host/path or s3://bucket/prefix."
        )
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        hint = f"Write {scheme}://name/path, with name:port for another port."
        raise ConfigError(f"{scheme}://: the host or port of the URL is not valid ({error})", hint) from error
    if parts.password is not None or (scheme == "s3" and parts.username):
        raise ConfigError(
            f"{scheme}://{parts.hostname}: the URL of a store contains a password",
            "Remove the password. Credentials come from AWS_… variables, an ssh agent, or the keys in ~/.ssh.",
        )
    if not parts.hostname:
        raise ConfigError(
            f"{url}: its {'bucket' if scheme == 's3' else 'host'} is missing", f"Write {scheme}://name/path."
        )
    return scheme


def _as_store(given: str) -> str:
    """Refuse a URL that is none of a store."""
    try:
        scheme_of(given)
    except ConfigError as error:
        raise ValueError(f"{error.message}. {error.hint}") from error
    return given


class Executor(Section):
    """Where attempts run: on which machines and GPUs, and by how many workers."""

    gpus: Literal["auto"] | tuple[Annotated[int, Field(ge=0)], ...] = "auto"
    """GPUs to train on, by their indices in nvidia-smi; `auto`: all that CUDA_VISIBLE_DEVICES leaves visible; []: none,
    train on the CPU."""
    cpu_slots: Annotated[int, Field(ge=1, le=1024)] = 1
    """Patches trained at once when no GPU is used."""
    patches_per_gpu: Literal["auto"] | Annotated[int, Field(ge=1, le=8)] = "auto"
    """Patches trained on one GPU at once. `auto`: as many as need at most 60 % of the free memory of GPU and host
    together. These are at most four, one for each two cores, and fewer if fewer prove faster; one where their need is
    unknown, as with an external trainer."""
    engine: Literal["local", "slurm"] = "local"
    """Program that starts the workers which train: `local`: splatbatch on this machine; `slurm`: the Slurm of a
    cluster."""
    workers: Annotated[int, Field(ge=1, le=1000)] = 1
    """Number of workers at once. With 1 and `engine: local`, `train` trains itself and starts no other worker. With
    `store`, `train` starts none, except by --detach."""
    store: Annotated[str, AfterValidator(_as_store)] = ""
    """Place through which tasks travel to workers that do not share the output folder (`splatbatch work STORE`): a
    folder, ssh://host/path or s3://bucket/prefix. For S3, credentials come from AWS_… variables or the role of the
    machine; for ssh, from an ssh agent, keys in ~/.ssh, or ~/.ssh/config. A URL with a password is a mistake. Empty: no
    task travels."""
    gpus_per_worker: Annotated[int, Field(ge=0, le=64)] | None = None
    """Number of GPUs that the engine gives each worker. Left out: 1, or 0 where training.device is cpu or gpus is
    []."""
    worker_time: Annotated[float, SPAN, Field(ge=60)] | None = None
    """Longest time of a worker, in seconds or as 3h30m, a minute at least; the next worker goes on where it ended. Left
    out: as long as the queue of the cluster allows. Only with `engine: slurm`."""
    setup: Annotated[tuple[str, ...], BeforeValidator(as_list)] = ()
    """Lines that the shell on the node runs before the worker, as [module load cuda]; []: none. Only with `engine:
    slurm`."""
    sbatch: Annotated[tuple[str, ...], BeforeValidator(_as_options)] = ()
    """Further options of sbatch, as [--partition=gpu, --account=us, --cpus-per-task=8, --mem=32G]; only with `engine:
    slurm`."""

    @model_validator(mode="after")
    def _fits_its_engine(self) -> Executor:
        if self.engine != "slurm" and self.sbatch:
            raise ValueError(f"sbatch needs engine: slurm, but engine is {self.engine}: remove sbatch")
        if self.engine == "local" and (self.setup or self.worker_time):
            raise ValueError(
                "setup and worker_time need engine: slurm: remove both, since workers of this machine use neither"
            )
        if self.engine != "local" and self.gpus not in ("auto", ()):
            raise ValueError(
                f"gpus: {list(self.gpus)}: {self.engine} chooses the GPUs: set gpus_per_worker to their number instead"
            )
        return self

    def gpus_of_each(self, device: str) -> int:
        """Return the number of GPUs that each worker asks for; 0: the worker trains on the CPU.

        `device` is `training.device` of the YAML.
        """
        if self.gpus_per_worker is not None:
            return self.gpus_per_worker
        return 0 if device == "cpu" or self.gpus == () else 1
