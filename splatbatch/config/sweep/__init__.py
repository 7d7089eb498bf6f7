"""The section `sweep`: variants of settings, and their checks."""
