"""A big scene cut into patches: which box of space each is responsible for, and what the scene decides for all."""
