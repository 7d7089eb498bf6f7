"""From photographs to a COLMAP model: stages in processes of their own, files in, files out; pycolmap does the work."""
