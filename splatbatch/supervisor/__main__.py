"""`python -m splatbatch.supervisor <attempt folder>`: run the supervisor of one attempt."""

import sys
from pathlib import Path

from splatbatch import terminal
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.supervisor.watch import supervise

if __name__ == "__main__":
    terminal.open_closed_descriptors()
    sys.exit(supervise(AttemptFolder(Path(sys.argv[1]))))
