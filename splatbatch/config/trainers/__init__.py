"""The section `trainers`: external programs, their placeholders and checks."""
