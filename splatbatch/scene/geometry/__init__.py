"""Poses, cameras and points against the keypoints: do they agree, and if not, what is most likely wrong?"""
