"""`python -m splatbatch`, or `splatbatch`, is the command line."""

import gc
from typing import Any

from splatbatch import bytecode


def main() -> Any:
    """Run the command line on `sys.argv`, with the bytecode of imported packages cached.

    An error ends the process with its exit code.
    """
    bytecode.keep()
    from splatbatch import cli

    try:
        return cli.main()
    finally:
        gc.freeze()  # an interpreter that ends looks through all that it holds: 0.1 s


if __name__ == "__main__":
    main()
