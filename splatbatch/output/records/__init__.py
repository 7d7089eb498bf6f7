"""Records: the dataclasses of the JSON files in an output folder.

Absent or invalid fields get their defaults when read.
"""
