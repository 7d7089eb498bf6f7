"""WHAT is trained: patches, their COLMAP reconstructions and photographs, checked before a GPU is touched."""
