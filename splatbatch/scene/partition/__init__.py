"""Cuts a big scene into patches: the box of each, and the values that all patches share."""
