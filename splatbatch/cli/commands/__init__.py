"""What each command does, from its options to what it prints and its exit code."""
