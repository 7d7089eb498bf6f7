"""The seam to an optimizer: torch's own, or ours, which waits for nothing."""

from __future__ import annotations

from typing import Any, Protocol


class Optimizer(Protocol):
    """What is used of an optimizer of one parameter, here and by gsplat; torch's own has all of it."""

    param_groups: list[dict[str, Any]]
    state: Any

    def step(self) -> Any:
        """Move the parameter down its gradient."""
        ...

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradient."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        ...


Optimizers = dict[str, Optimizer]
