"""`evaluate` and `scene`: the commands about the whole scene."""
