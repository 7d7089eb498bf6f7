"""WHAT to train, WHEN, whether AGAIN, and what came of it. Deciders are pure, doers are few."""
