"""A batch that has to end in time: what is given up for it, evenly, and how that is told."""
