"""A log alone is diagnosed, as `explain LOGFILE` does."""

from __future__ import annotations

from collections.abc import Sequence

from splatbatch.failures.diagnose import diagnose
from splatbatch.failures.evidence import Evidence
from splatbatch.failures.signatures import Signature
from splatbatch.outcome import Diagnosis, Exited, Killed


def diagnose_log(
    text: str,
    exit_code: int | None = None,
    signal: int | None = None,
    *,
    own: Sequence[Signature] = (),
    after: int = 0,
    left_out: int = 0,
) -> Diagnosis:
    """Return the diagnosis of a log whose program ended by a code or a signal; of neither: its end is unknown."""
    end = Exited(exit_code) if exit_code is not None else None
    return diagnose(Evidence(Killed(signal) if signal else end, text, after, left_out, own=own))
