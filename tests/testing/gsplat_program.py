"""An external trainer over gsplat's wheel alone: a COLMAP model and its photographs in, a splat out."""

import argparse
from pathlib import Path

import gsplat
import numpy as np
import pycolmap
import torch
from gsplat.strategy import DefaultStrategy
from PIL import Image

SH0 = 0.28209479177387814
RATES = {"means": 1.6e-4, "scales": 5e-3, "quats": 1e-3, "opacities": 5e-2, "sh0": 2.5e-3, "shN": 1.25e-4}
"""Learning rates of Kerbl et al. 2023; that of means is times the size of the scene, and falls to 1 % of it."""


def read(sparse: Path, images: Path, device: str) -> tuple[list, torch.Tensor, torch.Tensor]:
    """Return views (world to camera, intrinsics, pixels), points and their colours in [0, 1]."""
    model, views = pycolmap.Reconstruction(sparse), []
    for image in model.images.values():
        pose = np.vstack([image.cam_from_world().matrix(), [0, 0, 0, 1]])
        pixels = np.asarray(Image.open(images / image.name).convert("RGB"), dtype=np.float32) / 255
        matrix = model.cameras[image.camera_id].calibration_matrix()
        views.append([torch.tensor(one, dtype=torch.float32, device=device) for one in (pose, matrix, pixels)])
    points = [(*point.xyz, *(point.color / 255)) for point in model.points3D.values()]
    return views, *torch.tensor(points, dtype=torch.float32, device=device).split(3, 1)


def gaussians_at(points: torch.Tensor, colours: torch.Tensor) -> torch.nn.ParameterDict:
    """Return Gaussians as wide as their neighbours are far."""
    near = torch.cat([torch.cdist(part, points).topk(4, largest=False).values for part in points.split(1024)])
    values = {"means": points, "scales": near[:, 1:].mean(1, keepdim=True).clamp_min(1e-6).log().repeat(1, 3)}
    values["quats"] = torch.eye(4, device=points.device)[:1].repeat(len(points), 1)
    values["opacities"] = torch.full_like(points[:, 0], 0.1).logit()
    values |= {"sh0": ((colours - 0.5) / SH0)[:, None], "shN": points.new_zeros(len(points), 15, 3)}
    return torch.nn.ParameterDict({name: torch.nn.Parameter(value.clone()) for name, value in values.items()})


def draw(gaussians: torch.nn.ParameterDict, view: list, degree: int, rasterise) -> tuple[torch.Tensor, dict]:
    """Return the picture [H, W, 3] of a view, and what the strategy asks of it."""
    pose, matrix, pixels = view
    colours, (height, width, _) = torch.cat([gaussians["sh0"], gaussians["shN"]], 1), pixels.shape
    splats = (gaussians["means"], gaussians["quats"], gaussians["scales"].exp(), gaussians["opacities"].sigmoid())
    cameras = {"viewmats": pose[None], "Ks": matrix[None], "width": width, "height": height}
    picture, _, info = rasterise(*splats, colours, **cameras, sh_degree=degree, packed=False)
    return picture[0], info


def main(options: argparse.Namespace, device: str, rasterise) -> None:
    """Make all steps, of which every hundredth is said, and write the splat."""
    torch.manual_seed(options.seed)
    views, points, colours = read(options.sparse, options.images, device)
    gaussians, steps = gaussians_at(points, colours), options.steps
    eyes = torch.stack([-pose[:3, :3].T @ pose[:3, 3] for pose, _, _ in views])
    rates = RATES | {"means": RATES["means"] * (size := 1.1 * float((eyes - eyes.mean(0)).norm(dim=1).max()))}
    optimizers = {name: torch.optim.Adam([one], lr=rates[name], eps=1e-15) for name, one in gaussians.items()}
    strategy = DefaultStrategy(refine_start_iter=500, refine_stop_iter=steps // 2, reset_every=steps)
    state = strategy.initialize_state(scene_scale=size)
    for step in range(steps):
        view, degree = views[int(torch.randint(len(views), (1,)))], min(3, 4 * step // steps)
        picture, info = draw(gaussians, view, degree, rasterise)
        strategy.step_pre_backward(gaussians, optimizers, state, step, info)
        (loss := (picture - view[2]).abs().mean()).backward()
        optimizers["means"].param_groups[0]["lr"] = rates["means"] * 0.01 ** (step / steps)
        for optimizer in optimizers.values():
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        strategy.step_post_backward(gaussians, optimizers, state, step, info)
        if (step + 1) % 100 == 0 or step + 1 == steps:
            print(f"step {step + 1}/{steps} loss {loss.item():.4f} gaussians {len(gaussians['means'])}", flush=True)
    trained = {name: one.detach() for name, one in gaussians.items()}
    gsplat.export_splats(**trained, save_to=str(options.output / f"splat_{steps}.ply"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name, kind in (("sparse", Path), ("images", Path), ("output", Path), ("steps", int), ("seed", int)):
        parser.add_argument(f"--{name}", type=kind, required=True)
    main(parser.parse_args(), "cuda", gsplat.rasterization)
