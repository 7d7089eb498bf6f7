"""Where the attempts of a batch run on this machine: on which GPUs, or on the CPU; a GPU is never missed in silence."""

from __future__ import annotations

from itertools import takewhile

from splatbatch.config import Executor as ExecutorConfig
from splatbatch.errors import ExecutorError
from splatbatch.machine import gpu

BROKEN = (
    "`splatbatch doctor` says more. Mend the driver, or start the container with its GPUs; or write"
    " training.device: cpu to train on the CPU all the same."
)


def is_on_cpu(config: ExecutorConfig, device: str) -> bool:
    """Return whether a batch trains on the CPU: it was told to, or may and no NVIDIA GPU is here, usable or not."""
    if device == "cpu" or config.gpus == ():
        return True
    return device == "auto" and config.gpus == "auto" and not gpu.presence().is_here()


def chosen_cards(config: ExecutorConfig, device: str) -> tuple[gpu.Gpu, ...]:
    """Return the GPUs that a batch trains on; none: it trains on the CPU.

    Raises:
        ExecutorError: a GPU is wanted that is not here, or one is here that cannot be used.
    """
    if is_on_cpu(config, device):
        return ()
    here = gpu.presence()
    if why := here.why_unusable():
        raise ExecutorError(why, BROKEN)
    if config.gpus != "auto":
        return tuple(_card(index, here.cards) for index in config.gpus)
    if not here.cards:
        raise ExecutorError(
            "training.device: cuda: NVML sees no GPU here",
            "Check nvidia-smi and the driver, or set training.device to auto or cpu.",
        )
    return here.cards


def given_cards(told: str | None) -> tuple[int, ...] | None:
    """Return the GPUs that an engine has given us, by their numbers; None: it says nothing, so all are.

    Args:
        told: CUDA_VISIBLE_DEVICES, numbers or UUIDs; as for CUDA, what follows one that is not here does not count.

    Raises:
        ExecutorError: none of those that it names is here.
    """
    cards = gpu.gpus()
    if told is None or not cards:
        return None
    numbers = {name: card.index for card in cards for name in (str(card.index), card.uuid)}
    names = [one.strip() for one in told.split(",") if one.strip()]
    known = [numbers[name] for name in takewhile(lambda name: name in numbers, names)]
    if names and not known:
        have = ", ".join(f"{card.index} ({card.uuid})" for card in cards)
        raise ExecutorError(
            f"CUDA_VISIBLE_DEVICES: {told}: names no GPU that is here; NVML sees {have}",
            "Unset it, name one of these, or set executor.gpus; parts of a GPU (MIG) are not used.",
        )
    return tuple(dict.fromkeys(known))


def _card(index: int, present: tuple[gpu.Gpu, ...]) -> gpu.Gpu:
    for card in present:
        if card.index == index:
            return card
    have = ", ".join(f"{card.index} ({card.name})" for card in present) or "none"
    raise ExecutorError(
        f"executor.gpus: [{index}]: no such GPU; NVML sees {have}",
        "Check nvidia-smi and the driver, or set executor.gpus to auto, or to [] to train on the CPU.",
    )
