"""Every threshold of the geometry, with what intact scenes show. The one place where they are decided.

They were fixed on caliterra (whole and patches) and on made-up rigs and walks: twelve camera models with 0 to 2 px of
noise and 6 % of wrong matches. The scenes of the fault table (tests/scene/test_geometry.py) are others. Errors are
medians over the observations of an image or a camera: COLMAP itself drops observations beyond 4 px, so that an intact
median cannot reach that; seen were 0.1 to 0.7 px (real scenes) and 1.2 px per pixel of noise.
"""

from __future__ import annotations

from splatbatch.scene.colmap.types import Camera

OBSERVATIONS_PER_IMAGE = 48
"""Sampled keypoints with a 3D point; the median of 48 strays by 13 % from that of all."""
EXTENT_PER_IMAGE = 128
"""Sampled keypoints of any kind, for how far they reach over the photograph."""
IMAGES_OF_SOURCE = 600
"""Images sampled of a source reconstruction, which is not trained; of a patch every image is looked at."""
LEAST_OBSERVATIONS = 8
"""An image with fewer is not judged: six fix a pose."""
SEARCHED = 4000
"""Observations on which causes are searched for."""
TRUSTED_PX, TRUSTED_SHARE = 2.0, 0.002
"""Up to here (px, or share of the longer side) an image is beyond suspicion; intact: below 1.2 px and 0.0012."""
SYSTEMATIC_PX, SYSTEMATIC_SHARE = 0.6, 0.0006
SYSTEMATIC_GAIN, SYSTEMATIC_AS_GOOD = 1.7, 1.15
"""A fault of K or of a lens that leaves every image trusted is named if the root of the mean square error that it
explains is larger, and the mean square error without it so many times smaller; intact: 0.13 px, 1.08 times."""
ALARM_PX, ALARM_SHARE, ALARM_TIMES = 6.0, 0.008, 5.0
"""Beyond it an image is wrong even if nothing explains why, or beyond so many times the median of all images if that is
less; never within TRUSTED. Intact: 3 times the median at most."""
GAIN = 4.0
"""A cause counts if it makes the error at least so many times smaller; a refit of intact cameras gains 1.05 at most."""
AS_GOOD = 1.5
"""The simpler of two causes is taken unless the other leaves so many times less."""
MOST = 0.8
"""Share of the images of a group that a cause has to bring back."""
HALF = 0.5
"""From so many bad images on, the fault is the scene's or the camera's rather than the images'."""
SAME = 0.004
"""Relative difference of focal lengths, share of the side for principal points: below it they are alike."""
STRAY = 0.12
"""Share of observations that miss by more than ALARM although nearly every image is trusted; intact: below 0.001, and
0.06 with as many wrong matches."""
OUTSIDE = 0.03
"""Share of keypoints beyond the right or lower edge alone; intact: 0.001 (undistorted ones pass all four edges)."""
ONE_SIDED = 5.0
"""So many times more keypoints lie beyond right and lower edge than beyond the others if K was left behind."""
REACH = 0.93
"""Keypoints of a camera with many images reach at least so far over both sides; intact: 0.96 to 1."""
REACH_KEYPOINTS, OUTSIDE_KEYPOINTS = 120, 12
"""Fewer sampled keypoints say nothing about how far they reach; fewer beyond an edge, nothing about the edge."""
CENTRED = 0.03
"""Principal points lie so near the middle, as a share of the side, unless a photograph was cropped; intact: 0.02."""
OFF_SHARE, SAME_SHARE = 0.05, 0.01
"""K belongs to a size that is larger by more than the first, if alike in both sides to the second; intact: 0.027 in one
side and 0.006 in the other at most (a phone)."""
FLAT_DEGREES = 0.7
"""Median over points of the widest angle between two of their rays; COLMAP drops points below 1.5; intact: 3 to 40."""
REGISTERED = 0.5
"""Share of the photographs of a folder that a model should have; intact: 0.9 to 1."""
GARBAGE, LONGEST_PX = 1e12, 1 << 20
"""Coordinates in units of the model and sizes in pixels beyond which a file is garbage, not geometry."""


def trusted_px(camera: Camera) -> float:
    """Return the median error up to which an image of this camera is beyond suspicion."""
    return max(TRUSTED_PX, TRUSTED_SHARE * max(camera.size))


def systematic_px(camera: Camera) -> float:
    """Return the root mean square error that a small fault of the camera itself explains at least."""
    return max(SYSTEMATIC_PX, SYSTEMATIC_SHARE * max(camera.size))


def alarm_px(camera: Camera, usual_px: float = float("inf")) -> float:
    """Return the median error beyond which an image is wrong, whatever the reason; less where few miss as far."""
    most = max(ALARM_PX, ALARM_SHARE * max(camera.size))
    return max(trusted_px(camera), min(most, ALARM_TIMES * usual_px))
