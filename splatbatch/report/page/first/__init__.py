"""What one sees first: the verdict with what to do, the map, a picture of every patch, and the table."""
