"""COLMAP models that other programs have written, with their quirks."""
