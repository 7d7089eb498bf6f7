"""The table of known failures, one row each, by where they come from; `diagnosis` reads it in order."""
