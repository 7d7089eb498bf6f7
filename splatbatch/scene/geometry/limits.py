"""Thresholds of the geometry checks, with the values that intact scenes show. All of them are defined here.

They were fixed on caliterra (whole and patches) and on synthetic rigs and walks: twelve camera models with 0 to 2 px of
noise and 6 % of wrong matches. The fault table (tests/scene/test_geometry.py) uses different scenes. Errors are medians
over the observations of an image or a camera. COLMAP itself drops observations beyond 4 px, so that an intact median
cannot reach that. Seen were 0.1 to 0.7 px (real scenes) and 1.2 px per pixel of noise.
"""

from __future__ import annotations

from splatbatch.scene.colmap.types import Camera

OBSERVATIONS_PER_IMAGE = 48
"""Keypoints with a 3D point sampled per image; the median of 48 deviates by 13 % from that of all."""
EXTENT_PER_IMAGE = 128
"""Keypoints sampled per image, with or without a 3D point, to measure how far they reach over the photograph."""
IMAGES_OF_SOURCE = 600
"""Images sampled of a source reconstruction, which is not trained; of a patch all images are checked."""
LEAST_OBSERVATIONS = 8
"""Fewest observations of an image for it to be judged; six fix a pose."""
SEARCHED = 4000
"""Number of observations on which causes are searched for."""
TRUSTED_PX, TRUSTED_SHARE = 2.0, 0.002
"""Median error (px, share of the longer side) up to which an image is trusted; intact: below 1.2 px and 0.0012."""
SYSTEMATIC_PX, SYSTEMATIC_SHARE = 0.6, 0.0006
SYSTEMATIC_GAIN, SYSTEMATIC_AS_GOOD = 1.7, 1.15
"""A fault of K or of a lens that leaves every image trusted is reported only above these limits.

The root of the mean square error that it explains must reach the first two (px, share of the longer side). Repair must
make the mean square error at least the third times smaller. Of several causes the simplest within the fourth of the
best is taken. Intact: 0.13 px, 1.08 times.
"""
ALARM_PX, ALARM_SHARE, ALARM_TIMES = 6.0, 0.008, 5.0
"""An image with a median error beyond this is wrong even if no cause is found (px, share of the longer side).

The third is a multiple of the median of all images, used if that is less; never below TRUSTED. Intact: 3 times the
median at most.
"""
GAIN = 4.0
"""A cause counts if its repair makes the error at least this many times smaller; refits of intact cameras gain 1.05."""
AS_GOOD = 1.5
"""The simpler of two causes is taken unless the other leaves an error this many times smaller."""
MOST = 0.8
"""Share of the images of a group that a cause has to explain."""
HALF = 0.5
"""From this share of bad images on, the fault is sought in the scene or the camera, not in single images."""
FEW = 2
"""Most photographs that give a camera too little evidence to be judged by itself."""
SAME = 0.004
"""Relative difference of focal lengths, or share of the side for principal points, below which two are alike."""
STRAY = 0.12
"""Share of observations beyond ALARM from which on `stray_points` is reported although nearly all images are trusted.

Intact: below 0.001, and 0.06 with as many wrong matches.
"""
OUTSIDE = 0.03
"""Share of keypoints beyond the right or lower edge alone that shows a wrong size.

Intact: 0.001; undistorted keypoints pass all four edges.
"""
ONE_SIDED = 5.0
"""If K was left behind, this many times more keypoints lie beyond the right and lower edge than beyond the others."""
REACH = 0.93
"""Share of both sides that the keypoints of a camera with many images reach at least; intact: 0.96 to 1."""
REACH_KEYPOINTS, OUTSIDE_KEYPOINTS = 120, 12
"""Fewest sampled keypoints from which their reach is judged, and fewest beyond an edge to judge that edge."""
CENTRED = 0.03
"""Largest distance of a principal point from the middle, as a share of the side, if uncropped; intact: 0.02."""
OFF_SHARE, SAME_SHARE = 0.05, 0.01
"""K belongs to a size that is larger by more than the first share, if both sides agree to the second.

Intact: 0.027 in one side and 0.006 in the other at most (a phone).
"""
FLAT_DEGREES = 0.7
"""Degrees: below this median over points of the widest angle between two rays, `flat_angles` is reported.

COLMAP drops points below 1.5; intact: 3 to 40.
"""
REGISTERED = 0.5
"""Share of the photographs of a folder below which `unregistered` is reported; intact: 0.9 to 1."""
GARBAGE, LONGEST_PX = 1e12, 1 << 20
"""Coordinates in units of the model, and sizes in pixels, beyond which a file is garbage."""


def trusted_px(camera: Camera) -> float:
    """Return the median error in pixels up to which an image of this camera is trusted."""
    return max(TRUSTED_PX, TRUSTED_SHARE * max(camera.size))


def systematic_px(camera: Camera) -> float:
    """Return the smallest root mean square error in pixels for which a small fault of the camera is looked for."""
    return max(SYSTEMATIC_PX, SYSTEMATIC_SHARE * max(camera.size))


def alarm_px(camera: Camera, usual_px: float = float("inf")) -> float:
    """Return the median error in pixels beyond which an image is wrong, whether or not a cause is found.

    It is less where the usual error, `usual_px`, is small, but never less than `trusted_px`.
    """
    most = max(ALARM_PX, ALARM_SHARE * max(camera.size))
    return max(trusted_px(camera), min(most, ALARM_TIMES * usual_px))
