"""Stores: where bundles, claims and results lie between machines that share no folder."""
