"""What is done with the whole scene: in what state it is, and what a process about it is told."""
