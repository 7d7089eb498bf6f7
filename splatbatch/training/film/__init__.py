"""A flight through a splat, frame by frame."""
