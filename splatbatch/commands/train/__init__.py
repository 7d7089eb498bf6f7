"""`train` and `retry`, and what they say last."""
