"""What a worker does besides the loop: which tasks are its own, what others have left of them, when its time is up."""
