"""BESIDE the GPU, in a process of its own: start one attempt fresh, watch it, stop it, tell how it ended."""

from splatbatch import bytecode

bytecode.keep()
