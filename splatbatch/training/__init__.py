"""Our trainer, in a process of its own: the only code that imports torch."""
