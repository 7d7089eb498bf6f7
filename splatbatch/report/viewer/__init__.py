"""The 3D viewer inside the page report.html: its script, and previews of splats for it."""
