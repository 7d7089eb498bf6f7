"""Stores: bundles, claims and results are exchanged through them between machines that share no folder."""
