"""Records: the dataclasses of the JSON files in an output folder; invalid values get defaults when read."""
