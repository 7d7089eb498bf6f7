"""COLMAP models, text and binary: read with every count and size checked, and written."""
