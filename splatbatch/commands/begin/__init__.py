"""Commands for the first quarter of an hour."""
