"""Training up to the border of a patch: what bounds it, and what is drawn behind it."""
