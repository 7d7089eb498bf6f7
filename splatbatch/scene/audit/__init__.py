"""The audit: every patch, camera and photograph, before a GPU is touched."""
