"""A page to hand over: the splat in a browser, from any static server, or as one file."""
