"""Our CUDA kernels on CPU tensors, in Triton's interpreter: run as a program, since that is chosen before the import.

Prints one JSON object: for each check how far our numbers are from the reference.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import torch

from splatbatch.training import loss
from splatbatch.training.border.surroundings import Surroundings
from splatbatch.training.cpu import view_colors as reference_colors
from splatbatch.training.cuda import photometric
from splatbatch.training.cuda.adam import Adam
from splatbatch.training.cuda.tile_lists import TILE_PX, Footprints, TileLists, tile_lists
from splatbatch.training.cuda.view_colors import view_colors
from splatbatch.training.photos import tones
from splatbatch.training.rendering.view import View

NUM, SIZE = 120, (100, 70)


def of_colors(degree: int) -> float:
    values = {"means": torch.randn(NUM, 3), "sh0": torch.randn(NUM, 1, 3), "shN": torch.randn(NUM, 15, 3) * 0.3}
    ours, theirs = ({key: value.clone().requires_grad_() for key, value in values.items()} for _ in range(2))
    viewmat = torch.eye(4)
    viewmat[:3, :3], viewmat[:3, 3] = torch.linalg.qr(torch.randn(3, 3))[0], torch.tensor([0.1, 0.2, 3.0])
    radii = torch.ones(NUM, 2, dtype=torch.int32)
    radii[::7] = 0
    weights = torch.randn(NUM, 3) * (radii[:, :1] > 0)
    directions = theirs["means"] + viewmat[:3, :3].T @ viewmat[:3, 3]
    colors = reference_colors(directions[None], theirs["sh0"], theirs["shN"], degree)[0]
    drawn = view_colors(ours, viewmat, radii, degree)
    (drawn * weights).sum().backward()
    (colors * weights).sum().backward()
    zero = torch.zeros(())
    far = [(ours[key].grad - (theirs[key].grad if theirs[key].grad is not None else zero)).abs().max() for key in ours]
    return float(torch.stack([((drawn - colors) * weights).abs().max(), *far]).max())


def of_backdrop() -> float:
    """Own Gaussians before a backdrop, through the kernels of colours and Adam: the backdrop gets no gradient."""
    behind = {"means": torch.randn(40, 3), "sh0": torch.randn(40, 1, 3), "shN": torch.randn(40, 15, 3)}
    values = {"means": torch.randn(NUM, 3), "sh0": torch.randn(NUM, 1, 3), "shN": torch.randn(NUM, 15, 3) * 0.3}
    ours, theirs = ({key: torch.nn.Parameter(value.clone()) for key, value in values.items()} for _ in range(2))
    viewmat, weights = torch.eye(4), torch.randn(NUM + 40, 3)
    viewmat[2, 3] = 3.0
    radii = torch.ones(NUM + 40, 2, dtype=torch.int32)
    drawn = view_colors(Surroundings(backdrop=behind).drawn_with(ours), viewmat, radii, 3)
    joined = {key: torch.cat((value, behind[key])) for key, value in theirs.items()}
    directions = joined["means"] + viewmat[:3, :3].T @ viewmat[:3, 3]
    colors = reference_colors(directions[None], joined["sh0"], joined["shN"], 3)[0]
    (drawn * weights).sum().backward()
    (colors * weights).sum().backward()
    for key in ours:
        Adam(ours[key], 0.01, 1e-15).step()
        torch.optim.Adam([theirs[key]], lr=0.01, eps=1e-15).step()
    assert not any(value.requires_grad for value in behind.values())
    far = [(ours[key].grad - theirs[key].grad).abs().max() for key in ours]
    # the first step of Adam is the sign of the gradient: where that is rounding, it may be either
    moved = [(ours[key] - theirs[key])[theirs[key].grad.abs() > 1e-3].abs().max() for key in ours]
    return float(torch.stack([(drawn - colors).abs().max(), *far, *moved]).max())


def of_loss(photo: torch.Tensor) -> float:
    render = (torch.rand(21, 53, 3) * 0.9 + 0.05).requires_grad_()
    exact = render.detach().double().requires_grad_()
    ours = photometric.photometric_loss(render, photo)
    theirs = loss.photometric_loss(exact, photo.double() if photo.is_floating_point() else photo)
    (3 * ours).backward()
    (3 * theirs).backward()
    return max(abs(float(ours / theirs) - 1), float((render.grad - exact.grad).norm() / exact.grad.norm()))


def of_ssim() -> float:
    render, photo = torch.rand(21, 53, 3), torch.randint(0, 256, (21, 53, 3)).to(torch.uint8)
    return abs(float(photometric.ssim(render, photo) - loss.ssim(render.double(), photo)))


def of_tone(num_coefficients: int) -> float:
    """A photograph that is clipped in places, with the middle of its vignetting elsewhere."""
    pixels = torch.randint(0, 256, (21, 53, 3)).to(torch.uint8)
    pixels[:5] = 255
    tone = torch.tensor([0.8, 1.1, 1.3, 1 / 800, -0.2, 0.1, 0.15, -0.25][: 4 + num_coefficients])
    K = torch.tensor([[60.0, 0, 23.5], [0, 60, 12.25], [0, 0, 1]])
    ours = (torch.rand(21, 53, 3) * 0.9 + 0.05).requires_grad_()
    exact = ours.detach().double().requires_grad_()
    target = photometric.even(ours, pixels, tone, K)
    wanted, even = tones.to_compare(exact, pixels, tone, View(torch.eye(4), K, 53, 21))
    photometric.photometric_loss(ours, target, as_taken=pixels).backward()
    loss.photometric_loss(wanted, even).backward()
    far = (target - even).abs().max()
    return max(float(far), float((ours.grad - exact.grad).norm() / exact.grad.norm()))


def of_adam() -> float:
    ours = torch.nn.Parameter(torch.randn(NUM, 3))
    theirs = torch.nn.Parameter(ours.detach().clone())
    optimizers = Adam(ours, 0.01, 1e-15), torch.optim.Adam([theirs], lr=0.01, eps=1e-15)
    for _ in range(5):
        ours.grad = torch.randn(NUM, 3)
        theirs.grad = ours.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    return float((ours - theirs).abs().max())


def footprints() -> Footprints:
    shape = torch.randn(NUM, 2, 2) * 4
    covariances = shape @ shape.transpose(1, 2) + 0.3 * torch.eye(2)
    inverse, opacities = torch.linalg.inv(covariances), torch.rand(NUM)
    reach = (2 * (255 * opacities).clamp_min(1.0001).log()).sqrt().clamp_max(3.33)
    radii = (reach[:, None] * covariances.diagonal(dim1=1, dim2=2).sqrt()).ceil().int()
    radii[opacities < 1 / 255] = 0
    conics = torch.stack([inverse[:, 0, 0], inverse[:, 0, 1], inverse[:, 1, 1]], dim=1)
    means2d = torch.rand(NUM, 2) * torch.tensor([120.0, 84.0]) - 5
    return Footprints(means2d, radii, torch.rand(NUM) * 5 + 1, conics, opacities)


def by_tile(lists: TileLists) -> list[list[int]]:
    offsets = lists.offsets.flatten().tolist()
    columns, rows = -(-SIZE[0] // TILE_PX), -(-SIZE[1] // TILE_PX)
    return [lists.ids[offsets[tile] : offsets[tile + 1]].tolist() for tile in range(rows * columns)]


def strongest(seen: Footprints, one: int, tile: int) -> float:
    """How much a Gaussian covers the pixel of a tile that it covers most."""
    columns = -(-SIZE[0] // TILE_PX)
    x, y = (torch.arange(TILE_PX) + TILE_PX * place + 0.5 for place in (tile % columns, tile // columns))
    x, y = x - seen.means2d[one, 0], (y - seen.means2d[one, 1])[:, None]
    xx, xy, yy = seen.conics[one]
    return float((seen.opacities[one] * torch.exp(-0.5 * (xx * x * x + yy * y * y) - xy * x * y)).max())


def of_lists() -> float:
    """Count the Gaussians that a tile should list and does not, and those out of order."""
    seen = footprints()
    wrong = 0
    for tile, listed in enumerate(by_tile(tile_lists(seen, SIZE, 2048))):
        depths = seen.depths[listed]
        wrong += int((depths[1:] < depths[:-1]).sum())
        visible = (one for one in range(NUM) if seen.radii[one, 0] > 0 and strongest(seen, one, tile) >= 1 / 255)
        wrong += len(set(visible) - set(listed))
    return float(wrong)


def of_overflow() -> float:
    """Count the tiles whose list, cut short, is not the beginning of the whole one."""
    seen = footprints()
    whole, cut = (by_tile(tile_lists(seen, SIZE, capacity)) for capacity in (2048, 150))
    assert sum(map(len, cut)) < sum(map(len, whole))
    return float(sum(long[: len(short)] != short for long, short in zip(whole, cut, strict=True)))


CHECKS: dict[str, Callable[[], float]] = {
    **{f"colours of degree {degree}": lambda degree=degree: of_colors(degree) for degree in range(4)},
    "loss of bytes": lambda: of_loss(torch.randint(0, 256, (21, 53, 3)).to(torch.uint8)),
    "loss of floats": lambda: of_loss(torch.rand(21, 53, 3)),
    "SSIM": of_ssim,
    **{f"tone with {num} coefficients": lambda num=num: of_tone(num) for num in (0, 2, 4)},
    "Adam": of_adam,
    "colours and Adam before a backdrop": of_backdrop,
    "tile lists": of_lists,
    "tile lists that are too short": of_overflow,
}


if __name__ == "__main__":
    torch.manual_seed(0)
    print(json.dumps({name: check() for name, check in CHECKS.items()}))
