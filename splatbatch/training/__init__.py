"""Our trainer, in a process of its own: the only code that imports torch."""

from splatbatch import bytecode

bytecode.keep()
