"""The tasks of a scene that was cut into patches."""
