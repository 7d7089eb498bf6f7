"""Corrected copies of models."""
