"""`status`, and what stays on the screen and moves."""
