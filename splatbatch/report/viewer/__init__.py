"""The 3D viewer inside the page."""
