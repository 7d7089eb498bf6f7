"""Train one Gaussian splat per patch of a big COLMAP reconstruction, overnight, unattended.

The Python API is listed in `_API`: functions and classes of `splatbatch.run.api`, imported at their first use.
"""

from importlib import import_module

__version__ = "0.3.0"
_API = """Batch InspectOptions Sink TrainOptions accept cancel evaluate gaussians inspect merge open_batch plan
    publish_splats results status train write_report""".split()  # noqa: SIM905 - a list of names takes a page


def __getattr__(name: str) -> object:
    """Return a function or class of the API; importing it only here keeps `--help` fast."""
    if name in _API:
        return getattr(import_module("splatbatch.run.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
