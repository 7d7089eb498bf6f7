"""The table of known failures, one row each, by where they come from; `diagnose` reads it in order."""
