"""Photographs to a COLMAP model, in stages: each reads files and writes files in a separate process, by pycolmap."""
