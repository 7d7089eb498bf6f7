"""Scenes: patches with their COLMAP reconstructions and photographs, checked before a GPU is used."""
