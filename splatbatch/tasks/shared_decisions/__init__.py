"""Settled once, before a night, for the whole batch: where its splats lie, its hold-out, its colours, its deadline."""
