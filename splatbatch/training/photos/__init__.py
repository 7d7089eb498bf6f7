"""Photographs and their cameras: decoding, masks, coarse-to-fine sizes, colour correction, upload to the GPU."""
