"""The YAML as text: bounded reading, mistakes with their lines, and edits that keep comments."""
