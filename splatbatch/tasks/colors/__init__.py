"""One colour over a batch: when tones are solved, which hold for a task, and whether they have moved."""
