"""COLMAP models, text and binary: read with every value checked, and written."""
