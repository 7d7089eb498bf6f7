"""All known failures, in the order in which rows that count alike win: what can be a consequence stands below."""

from __future__ import annotations

from splatbatch.failures.row import Row
from splatbatch.failures.rules.build import BUILD
from splatbatch.failures.rules.exits import CRASHES
from splatbatch.failures.rules.files import FILES, NETWORK
from splatbatch.failures.rules.gpu import GPU
from splatbatch.failures.rules.hints import HINTS
from splatbatch.failures.rules.host import HOST
from splatbatch.failures.rules.jobs import JOBS
from splatbatch.failures.rules.kernels import KERNELS
from splatbatch.failures.rules.portable import PORTABLE
from splatbatch.failures.rules.program import PROGRAM, REST, SETTINGS
from splatbatch.failures.rules.scene import NUMBERS, SCENE

ROWS: tuple[Row, ...] = (
    *GPU,
    *BUILD,
    *HOST,
    *JOBS,
    *SCENE,
    *NUMBERS,
    *PORTABLE,
    *KERNELS,
    *NETWORK,
    *SETTINGS,
    *CRASHES,
    *FILES,
    *PROGRAM,
    *HINTS,
    *REST,
)
