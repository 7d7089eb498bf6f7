"""Whether this machine can train: facts are gathered first, then pure functions judge them, each with a remedy."""
