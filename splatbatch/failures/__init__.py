"""WHY an attempt failed and what to do: diagnosis and retry policy. Pure."""
