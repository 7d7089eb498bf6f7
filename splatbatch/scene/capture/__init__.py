"""What to photograph next: from where, and in which direction."""
