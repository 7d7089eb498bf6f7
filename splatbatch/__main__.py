"""`python -m splatbatch`, or `splatbatch`, is the command line."""

from typing import Any

from splatbatch import bytecode


def main() -> Any:
    """Run the command line; what it imports is compiled but once."""
    bytecode.keep()
    from splatbatch import cli

    return cli.main()


if __name__ == "__main__":
    main()
