"""What a killed run has left behind: its attempts, their processes, and how these are found."""
