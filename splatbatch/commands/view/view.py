"""`view`: a patch's splat in full, in the browser, served to this machine alone."""

from __future__ import annotations

import contextlib
import io
import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from splatbatch.commands.view.guard import Guard
from splatbatch.errors import ConfigError, MissingPartError, OutputError
from splatbatch.plain_text import one_line
from splatbatch.report.page.pictures import attempt_folder
from splatbatch.report.viewer.initial_camera import find_initial_camera
from splatbatch.splats import Gaussians, read_splat
from splatbatch.splats.shapes import colours, covariances, shares
from splatbatch.store.layout import OutputFolder
from splatbatch.store.records.result import Result
from splatbatch.tasks.batch import open_batch
from splatbatch.tasks.task import the_task

if TYPE_CHECKING:
    import viser

LOOPBACK = "127.0.0.1"
INTERRUPTED = 130
COLMAP_UP = (0.0, -1.0, 0.0)


def view(config: Path | None, name: str, port: int) -> None:
    """Serve a splat until Ctrl-C, then exit with 130.

    Raises:
        ConfigError: the patch has no splat.
        OutputError: the splat cannot be read, or the port cannot be used.
        MissingPartError: viser is not installed.
    """
    batch = open_batch(config, [name])
    task = the_task(batch.tasks, name).name
    folder = batch.output.patch(task)
    splat = folder.splat_of(folder.read_result() or Result())
    if not splat.exists():
        raise ConfigError(f"{task}: has no splat yet", "`splatbatch status` says how far it is.")
    guard = Guard()
    server = _open_server(port, guard)
    try:
        gaussians = read_splat(splat)
    except (OSError, ValueError) as error:
        raise OutputError(
            f"{splat}: cannot be read ({error})", f"Train it again: splatbatch retry {task} --force"
        ) from error
    _show(server, gaussians)
    _stand(server, batch.output, task)
    url = f"http://{LOOPBACK}:{server.get_port()}/{guard.token}/"
    typer.echo(one_line(f"{task}: {len(gaussians):,} Gaussians at {url} until Ctrl-C"))
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        server.stop()
        raise typer.Exit(INTERRUPTED) from None


def _open_server(port: int, guard: Guard) -> viser.ViserServer:
    try:
        import viser
    except ImportError as error:
        raise MissingPartError("view: viser is not installed", "pip install 'splatbatch[view]'") from error
    try:
        # its banner, which `verbose` does not silence
        with contextlib.redirect_stdout(io.StringIO()), guard.on_duty():
            server = viser.ViserServer(host=LOOPBACK, port=port, label="splatbatch", verbose=False)
    except OSError as error:
        raise OutputError(f"--port {port}: cannot be used ({error.strerror})", "Name another port.") from error
    if not guard.is_on_duty:
        server.stop()
        raise MissingPartError("view: this version of viser cannot check who connects", "pip install 'viser==1.1.1'")
    return server


def _show(server: viser.ViserServer, gaussians: Gaussians) -> None:
    server.scene.add_gaussian_splats(
        "/splat",
        centers=gaussians.means,
        covariances=covariances(gaussians.scales, gaussians.quats),
        rgbs=colours(gaussians),
        opacities=shares(gaussians),
    )


def _stand(server: viser.ViserServer, output: OutputFolder, task: str) -> None:
    """Start where a photograph was taken, as the report does; a scene's scale may be anything, so zoom by its size."""
    attempt = (output.patch(task).read_result() or Result()).attempt
    initial_camera = find_initial_camera(attempt_folder(output, {"patch": task, "attempt": attempt}))
    server.scene.set_up_direction(tuple(initial_camera.up) if initial_camera else COLMAP_UP)
    if initial_camera:
        camera = server.initial_camera
        camera.up = initial_camera.up
        camera.position = initial_camera.eye
        camera.look_at = initial_camera.eye + initial_camera.forward
