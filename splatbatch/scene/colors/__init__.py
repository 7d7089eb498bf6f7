"""Colour corrections: the brightness and tint of each photograph of a scene, solved and removed."""
