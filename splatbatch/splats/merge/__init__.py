"""One splat of many: each patch's Gaussians inside its core, a few thousand at a time, written whole or not at all."""
