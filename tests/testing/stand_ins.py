"""Small programs that behave as eight trainers are documented to: their flags, folders, words, and bad habits.

None of their code is here, and nothing is trained. A flag that the real program does not have ends a stand-in with 2,
as it would the real one. `install` puts them where the presets look for them.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import stat
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from external_program import write_ply

SCRIPTS = {
    "gsplat/examples/simple_trainer.py": "simple_trainer",
    "gaussian-splatting/train.py": "inria",
    "mip-splatting/train.py": "mip_splatting",
    "mip-splatting/create_fused_ply.py": "create_fused_ply",
    "taming-3dgs/train.py": "taming_3dgs",
}
PROGRAMS = {
    "ns-train": "ns_train",
    "ns-export": "ns_export",
    "LichtFeld-Studio": "lichtfeld",
    "brush-cli": "brush",
    "opensplat": "opensplat",
}


def install(home: Path) -> None:
    """Lay the stand-ins into a home folder and its bin/; `python` there is this Python."""
    code = "import sys; sys.path.insert(0, {tests!r}); import stand_ins; sys.exit(stand_ins.{name}())\n"
    for path, name in SCRIPTS.items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(code.format(tests=str(Path(__file__).parent), name=name))
    for program, name in PROGRAMS.items():
        text = f"#!{sys.executable}\n{code.format(tests=str(Path(__file__).parent), name=name)}"
        _executable(home / "bin" / program, text)
    _executable(home / "bin" / "python", f'#!/bin/sh\nexec {sys.executable} "$@"\n')


def _executable(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def parse(values: Sequence[str], flags: Sequence[str] = (), places: Sequence[str] = ()) -> argparse.Namespace:
    """Parse a command line of flags with a value, flags without, and words at their places; nothing else goes."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in values:
        parser.add_argument(f"--{name}", default="")
    for name in flags:
        parser.add_argument(f"--{name}", action="store_true")
    for name in places:
        parser.add_argument(name, nargs="?", default="")
    return parser.parse_intermixed_args()


def bar(label: str, steps: int, figures: str) -> None:
    """Draw a bar as tqdm does: one line, again and again, each ended by a carriage return."""
    for step in (steps // 3, steps):
        done = f"{100 * step // steps}%|██▎       | {step}/{steps} [00:{step % 60:02d}<00:10, 58.3it/s"
        sys.stderr.write(f"\r{label.format(done=done, step=step)}{figures}")
    sys.stderr.write("\n")


def stay() -> None:
    print("Viewer running... Ctrl+C to exit.", flush=True)
    time.sleep(1_000_000)


def must_be_scene(folder: str) -> Path:
    root = Path(folder)
    assert any((root / "images").iterdir()), folder
    assert any((root / "sparse/0" / f"cameras.{suffix}").is_file() for suffix in ("bin", "txt")), folder
    return root


def simple_trainer() -> int:
    values = "data_dir data_factor result_dir max_steps eval_steps save_steps ply_steps test_every init_scale"
    flags = ["save_ply", "disable_viewer", "disable_video", "no-normalize-world-space"]
    o = parse([*values.split(), "strategy.cap-max"], flags, ["preset"])
    assert o.preset in ("default", "mcmc")
    must_be_scene(o.data_dir)
    steps, out = int(o.max_steps), Path(o.result_dir)
    bar("loss=0.052| sh degree=3| : {done}]", steps, "")
    print("Step 600: Relocated 12 GSs. Added 50 GSs. Now having 1050 GSs.")
    (out / "stats").mkdir(parents=True)
    (out / f"stats/train_step{steps - 1:04d}_rank0.json").write_text(json.dumps({"num_GS": 1050}))
    if o.save_ply:
        write_ply(out / f"ply/point_cloud_{steps - 1}.ply")
    if int(o.eval_steps or 30_000) == steps:
        figures = {"psnr": 27.5, "ssim": 0.81, "lpips": 0.2, "ellipse_time": 0.01, "num_GS": 1050}
        (out / f"stats/val_step{steps - 1:04d}.json").write_text(json.dumps(figures))
    if not o.disable_viewer:
        stay()
    return 0


def ns_train() -> int:
    of_model = ["pipeline.model.cull-alpha-thresh", "pipeline.datamanager.cache-images"]
    of_run = "output-dir experiment-name timestamp max-num-iterations steps-per-save machine.seed vis"
    of_data = "data images-path colmap-path downscale-factor orientation-method center-method auto-scale-poses"
    of_split = ["assume-colmap-world-coordinate-convention", "eval-mode", "eval-interval"]
    o = vars(parse([*of_model, *of_run.split(), *of_data.split(), *of_split], (), ["method", "parser"]))
    assert (o["method"], o["parser"]) == ("splatfacto", "colmap")
    must_be_scene(o["data"])
    if not o["downscale_factor"]:
        input("The following downscale factor will be used: 2. Would you like to downscale? [y/n]: ")
    steps = int(o["max_num_iterations"])
    run = Path(o["output_dir"]) / o["experiment_name"] / "splatfacto" / (o["timestamp"] or "2026-11-21_150000")
    (run / "nerfstudio_models").mkdir(parents=True)
    (run / "config.yml").write_text("trainer: splatfacto\n")
    for step in (steps // 3, steps - 1):
        print(f"\x1b[2K{step} ({100 * step / steps:.2f}%)     12.345 ms       4 m, 43 s       12.10 M", flush=True)
    (run / f"nerfstudio_models/step-{steps - 1:09d}.ckpt").write_bytes(b"checkpoint")
    print("Training Finished")
    if o["vis"] != "tensorboard":
        stay()
    return 0


def ns_export() -> int:
    o = parse(["load-config", "output-dir"], (), ["what"])
    assert o.what == "gaussian-splat"
    run = Path(o.load_config).parent
    assert list((run / "nerfstudio_models").glob("*.ckpt")), "Please specify checkpoint"
    assert os.environ.get("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"), "WeightsUnpickler error"
    write_ply(Path(o.output_dir) / "splat.ply")
    return 0


def lichtfeld() -> int:
    """Train as LichtFeld Studio 0.5.3 does, or as its builds of autumn 2026 ($BUILD), which want `--export`."""
    values = "data-path output-path iter strategy max-cap max-width test-every eval-steps resize_factor"
    is_new = os.environ.get("BUILD") == "autumn 2026"
    if not is_new and any(word.startswith("--export") for word in sys.argv):
        print("Flag could not be matched: 'export'", file=sys.stderr)
        return 1
    o = parse([*values.split(), "export"], ["headless", "eval"])
    must_be_scene(o.data_path)
    assert o.strategy in ("mcmc", "mrnf", "igs+")
    steps = int(o.iter)
    for step in (steps // 3, steps):
        print(f"\x1b[32mTraining [███ ] [01m:18s<00m:42s] {step:,}/{steps:,} | Loss: 0.0855 | Splats: 86,965\x1b[0m\r")
    print("PSNR: 26.1250, SSIM: 0.8010, time per image: 0.01 s", flush=True)
    if is_new:
        (Path(o.output_path) / "project.licht").write_bytes(b"project")
    if not is_new or o.export == "ply":
        write_ply(Path(o.output_path) / f"splat_{steps}.ply")
    if not o.headless:
        stay()
    if not is_new:
        os.kill(os.getpid(), signal.SIGSEGV)  # at shutdown, after all is saved
    return 0


def _of_the_first_family(more: Sequence[str], flags: Sequence[str], also: tuple[str, ...] = ()) -> int:
    """Train as Inria's program and its relatives do: same flags, same folders, same words."""
    values = "source_path model_path iterations save_iterations test_iterations resolution"
    o = parse([*values.split(), *more], ["eval", *flags])
    scene, out, steps = must_be_scene(o.source_path), Path(o.model_path), int(o.iterations)
    (scene / "sparse/0/points3D.ply").write_bytes(b"ply\n")
    out.mkdir(exist_ok=True)
    (out / "cfg_args").write_text(f"Namespace(model_path={o.model_path!r})")
    write_ply(out / "input.ply")
    bar("Training progress: {done}", steps, ", Loss=0.0345678, Depth Loss=0.0000000]")
    if int(o.test_iterations) == steps:
        print(f"\n[ITER {steps}] Evaluating test: L1 0.0301 PSNR 25.75\n[ITER {steps}] Evaluating train: L1 0 PSNR 31")
    print(f"\n[ITER {steps}] Saving Gaussians")
    write_ply(out / f"point_cloud/iteration_{steps}/point_cloud.ply", also=also)
    print("\nTraining complete.")
    return 0


def inria() -> int:
    return _of_the_first_family(["data_device", "densify_grad_threshold"], ["disable_viewer"])


def mip_splatting() -> int:
    values = ["port", "kernel_size", "data_device", "densify_grad_threshold"]
    return _of_the_first_family(values, [], also=("filter_3D",))


def create_fused_ply() -> int:
    o = parse(["model_path", "output_ply"])
    assert (Path(o.model_path) / "cfg_args").is_file()
    assert (Path(o.model_path) / "point_cloud/iteration_30000/point_cloud.ply").is_file()
    write_ply(Path(o.output_ply))
    return 0


def taming_3dgs() -> int:
    values = ["checkpoint_iterations", "mode", "budget", "cams", "densification_interval"]
    return _of_the_first_family(values, ["sh_lower"])


def brush() -> int:
    values = "total-train-iters export-every export-path export-name max-splats max-resolution eval-split-every"
    o = parse([*values.split(), "eval-every", "seed"], (), ["source"])
    must_be_scene(o.source)
    steps = int(o.total_train_iters)
    if os.environ.get("RUST_LOG") == "info":  # the bar is for terminals; the lines are for those who ask
        print(f"[INFO brush_cli] Refine iter {steps // 3}, 12345 splats.")
        print(f"[INFO brush_cli] Eval iter {steps}: PSNR 24.25, ssim 0.79")
    write_ply(Path(o.export_path) / o.export_name.replace("{iter}", str(steps)))
    return 0


def opensplat() -> int:
    o = parse(["output", "num-iters", "downscale-factor", "densify-grad-thresh"], ["keep-crs"], ["input"])
    if not o.input:
        print("Open Source 3D Gaussian Splats generator\nUsage: …")
        return 0
    must_be_scene(o.input)
    steps = int(o.num_iters)
    for step in (steps // 3, steps):
        print(f"Step {step}: 0.0521 ({100 * step // steps}%)")
    write_ply(Path(o.output))
    return 0
