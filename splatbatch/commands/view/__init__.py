"""`view`: a splat in the browser, for whoever has its URL."""
