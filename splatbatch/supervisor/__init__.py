"""The supervisor: a process per attempt that starts it, watches it, ends it at its limits, and records how it ended."""

from splatbatch import bytecode

bytecode.keep()
