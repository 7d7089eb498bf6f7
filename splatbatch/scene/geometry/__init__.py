"""Checks whether poses, cameras and points agree with the keypoints, and finds the likely cause if they do not."""
