"""Inspection of an accepted splat: figures of its quality besides PSNR, each with a limit, photographs and advice."""
