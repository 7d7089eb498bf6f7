"""Where cuts lie: the frame they are made in, what belongs to a box, and the search for even ones."""
