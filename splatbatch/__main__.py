"""`python -m splatbatch` is the command line."""

from splatbatch.cli import main

main()
