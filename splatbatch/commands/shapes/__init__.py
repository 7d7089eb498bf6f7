"""What `--json` prints: the shape of each command's record, from which its JSON Schema is made."""
