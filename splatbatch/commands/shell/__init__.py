"""What the shell is told of the commands."""
