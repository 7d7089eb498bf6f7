"""Checks whether this machine can train: gathers facts, then judges them by pure functions.

Each finding has a remedy.
"""
