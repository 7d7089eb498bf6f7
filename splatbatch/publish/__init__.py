"""Publishes accepted splats in formats for other programs; files are read back where a decoder is installed."""
