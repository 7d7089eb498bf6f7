"""Whether photographs show the same where a model says that they do: the one measure of audit and repair."""
