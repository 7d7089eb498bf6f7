"""A run of a batch: deciding, training, notifying, and the follow-ups."""
