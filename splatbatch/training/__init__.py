"""The built-in trainer of Gaussian splats, which runs in a process of its own; only this package imports torch."""

from splatbatch import bytecode

bytecode.keep()
