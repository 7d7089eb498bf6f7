"""The verbs of how good splats are: inspected, and certified."""
