"""The audit of a scene: checks every patch, camera and photograph before a GPU is used."""
