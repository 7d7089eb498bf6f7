"""Makes a COLMAP model from photographs by pycolmap, in stages: each is a process that reads and writes files."""
