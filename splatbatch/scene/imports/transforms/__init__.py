"""transforms.json, as nerfstudio, instant-ngp and the Blender scenes of NeRF write it."""
