"""`python -m splatbatch.supervisor <attempt folder>`: the same command on every engine."""

import sys
from pathlib import Path

from splatbatch.attempt import AttemptFolder
from splatbatch.supervisor.watch import supervise

if __name__ == "__main__":
    sys.exit(supervise(AttemptFolder(Path(sys.argv[1]))))
