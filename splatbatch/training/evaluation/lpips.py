"""LPIPS (Zhang 2018, on AlexNet), with weights that are on this machine already: nothing is downloaded.

The metric needs two files: AlexNet's weights as torchvision publishes them, in the checkpoint folder of torch.hub; and
the weights of the five layers, which come with the package torchmetrics. If a file is missing, a note replaces the
figures.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError

import torch
from torch import Tensor
from torch.nn.functional import conv2d, max_pool2d, relu

ALEXNET_FILE = "alexnet-owt-7be5be79.pth"
ALEXNET_URL = f"https://download.pytorch.org/models/{ALEXNET_FILE}"
LAYERS_FILE = "functional/image/lpips_models/alex.pth"
LEAST_NORM = 1e-8  # torchmetrics and newer versions of the authors' code: under the root
# per layer (Krizhevsky 2014): name in the file, stride, padding, whether pooling comes before it
LAYERS = (
    ("features.0", 4, 2, False),
    ("features.3", 1, 2, True),
    ("features.6", 1, 1, True),
    ("features.8", 1, 1, False),
    ("features.10", 1, 1, False),
)
SHIFT = (-0.030, -0.088, -0.188)
SCALE = (0.458, 0.448, 0.450)
"""Standard deviations of R, G and B on ImageNet, for pixels in [-1, 1], as in LPIPS; `SHIFT` has the means."""
SMALLEST_PX = 32


@dataclass(frozen=True)
class Lpips:
    """The LPIPS metric: weights of AlexNet and of its five layers, in host memory; used on the pictures' device."""

    alexnet: Mapping[str, Tensor]
    layers: tuple[Tensor, ...]  # 5 of [1, C, 1, 1]

    def __call__(self, render: Tensor, photo: Tensor) -> Tensor:
        """Return the distance of two pictures [H, W, 3] in [0, 1], as a tensor [] on their device; 0: equal.

        Both sides must be at least `SMALLEST_PX` (32 px).
        """
        total = torch.zeros((), device=render.device)
        pairs = zip(self._features(render), self._features(photo), self.layers, strict=True)
        for ours, theirs, weight in pairs:
            difference = (_unit(ours) - _unit(theirs)).square()
            total += conv2d(difference, weight.to(difference)).mean()
        return total

    def _features(self, picture: Tensor) -> Iterator[Tensor]:
        """Yield the features of a picture after each layer, [1, C, h, w], one layer at a time to save memory."""
        shift, scale = (torch.tensor(values, device=picture.device)[:, None, None] for values in (SHIFT, SCALE))
        seen = (((2 * picture.movedim(-1, 0) - 1) - shift) / scale)[None]
        for name, stride, padding, is_pooled in LAYERS:
            seen = max_pool2d(seen, kernel_size=3, stride=2) if is_pooled else seen
            weight, bias = (self.alexnet[f"{name}.{kind}"].to(seen) for kind in ("weight", "bias"))
            seen = relu(conv2d(seen, weight, bias, stride=stride, padding=padding))
            yield seen


def load_lpips() -> Lpips | str:
    """Return the metric with its weights, or a note that says which file or package is missing and how to get it.

    Weights that cannot be read give a note, too.
    """
    alexnet = Path(torch.hub.get_dir()) / "checkpoints" / ALEXNET_FILE
    package = importlib.util.find_spec("torchmetrics")
    if package is None or not package.submodule_search_locations:
        return "lpips: not measured: the package torchmetrics is not installed: pip install 'splatbatch[lpips]'"
    if not alexnet.is_file():
        return f"lpips: not measured: weights not found at {alexnet}: put {ALEXNET_URL} there"
    try:
        layers = _read(Path(package.submodule_search_locations[0]) / LAYERS_FILE)
        ours = tuple(layers[f"lin{index}.model.1.weight"].float() for index in range(len(LAYERS)))
        features = {key: value.float() for key, value in _read(alexnet).items() if key.startswith("features.")}
        return Lpips(features, ours)
    except (OSError, RuntimeError, KeyError, ValueError, EOFError, UnpicklingError) as error:
        return f"lpips: not measured: weights cannot be read ({error}): put {ALEXNET_URL} at {alexnet} again"


def _read(path: Path) -> dict[str, Tensor]:
    weights: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return weights


def _unit(features: Tensor) -> Tensor:
    """Return features [1, C, h, w], divided by their length at every pixel."""
    return features / (LEAST_NORM + features.square().sum(dim=1, keepdim=True)).sqrt()
