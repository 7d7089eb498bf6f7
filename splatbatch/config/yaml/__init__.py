"""The YAML as text: read within bounds, every mistake with its line, edited with its comments."""
