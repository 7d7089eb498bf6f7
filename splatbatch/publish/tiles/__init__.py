"""3D Tiles 1.1: a scene on the globe, patch by patch."""
