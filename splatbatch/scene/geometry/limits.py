"""Thresholds of the geometry checks, with the values that intact scenes show ("Intact:").

The thresholds were fixed on the flight caliterra (whole and patches) and on synthetic rigs and walks: twelve camera
models with 0 to 2 px of noise and 6 % of wrong matches. The table of faults (tests/scene/test_geometry.py) uses
different scenes. Errors are medians over the observations of an image or a camera. COLMAP itself drops observations
beyond 4 px, so that no intact median is larger. Seen were 0.1 to 0.7 px (real scenes) and 1.2 px per pixel of noise.
"""

from __future__ import annotations

from splatbatch.scene.colmap.types import Camera

OBSERVATIONS_PER_IMAGE = 48
"""Keypoints with a 3D point sampled per image; the median of 48 deviates by 13 % from that of all."""
EXTENT_PER_IMAGE = 128
"""Least size of the sample of an image's keypoints that measures how far they reach over the photograph.

Sampled are keypoints with or without a 3D point: 128 to 255, or all if there are fewer.
"""
IMAGES_OF_SOURCE = 600
"""Images sampled of a source reconstruction, which is not trained; of a patch all images are checked."""
LEAST_OBSERVATIONS = 8
"""Fewest observations with which an image is judged; six observations fix a pose."""
SEARCHED = 4000
"""Most observations on which causes are searched for; of more, evenly spaced ones or whole images are taken."""
TRUSTED_PX, TRUSTED_SHARE = 2.0, 0.002
"""Median error (px; share of the longer side) up to which an image is trusted, whichever is larger.

Intact: below 1.2 px and 0.0012.
"""
SYSTEMATIC_PX, SYSTEMATIC_SHARE = 0.6, 0.0006
SYSTEMATIC_GAIN, SYSTEMATIC_AS_GOOD = 1.7, 1.15
"""Limits of a small fault of K or of a lens: most images of the camera are trusted, but errors are systematic.

The root of the mean square error that the fault explains must reach SYSTEMATIC_PX, and SYSTEMATIC_SHARE of the longer
side. Repair must make the mean square error at least SYSTEMATIC_GAIN times smaller. Of several causes, the simplest is
taken whose error is within SYSTEMATIC_AS_GOOD times the smallest. Intact: 0.13 px, 1.08 times.
"""
ALARM_PX, ALARM_SHARE, ALARM_TIMES = 6.0, 0.008, 5.0
"""Median error beyond which an image is wrong even if no cause is found; see `alarm_px`.

It is the larger of ALARM_PX (px) and ALARM_SHARE of the longer side, or ALARM_TIMES the median of all images if that is
less. It is never below `trusted_px`. Intact: 3 times the median at most.
"""
GAIN = 4.0
"""A cause counts if repair makes the median error at least this many times smaller; for intact cameras 1.05 times."""
AS_GOOD = 1.5
"""The simpler of two causes is taken, unless the other leaves a median error more than this many times smaller."""
MOST = 0.8
"""Share of the images that a cause has to explain: of the scene, of a camera, or of the images compared."""
HALF = 0.5
"""From this share of bad images on, the fault is sought in the whole scene or camera, not in single images."""
FEW = 2
"""A camera with this many photographs or fewer gives too little evidence to be judged by itself."""
SAME = 0.004
"""Relative difference of focal lengths, or share of the side for principal points, below which two are alike."""
STRAY = 0.12
"""Share of observations above which the finding `stray_points` is reported where no other cause is found.

Counted are observations that miss their keypoint by more than the alarm limit (`alarm_px`). Intact: below 0.001, and
0.06 with 6 % of wrong matches.
"""
OUTSIDE = 0.03
"""Share of keypoints beyond the right or lower edge above which a camera's size is wrong; see `ONE_SIDED`.

Intact: 0.001.
"""
ONE_SIDED = 5.0
"""Ratio above which a size is wrong: keypoints beyond the right or lower edge to those beyond the left or upper edge.

A smaller ratio has another cause: undistorted keypoints pass all four edges.
"""
REACH = 0.93
"""Share of width or height that the keypoints of a camera with many images reach at least. Intact: 0.96 to 1.

A camera whose keypoints reach less in both, and whose principal point is too small, has a wrong size.
"""
REACH_KEYPOINTS, OUTSIDE_KEYPOINTS = 120, 12
"""Fewest sampled keypoints of a camera from which a wrong size is concluded.

From keypoints beyond an edge it is concluded if they are more than the second number.
"""
CENTRED = 0.03
"""Largest distance of the principal point from the middle, as a share of the side, in an uncropped photograph.

Intact: 0.02.
"""
OFF_SHARE, SAME_SHARE = 0.05, 0.01
"""K belongs to a larger size if twice the principal point lies beyond width and height by more than OFF_SHARE of them.

Both sides must agree in this to SAME_SHARE. Intact: 0.027 in one side and 0.006 in the other at most (a phone).
"""
FLAT_DEGREES = 0.7
"""Median angle in degrees below which the finding `flat_angles` is reported: points have no certain depth.

It is the median over points of the widest angle between a point's rays. COLMAP drops points below 1.5 degrees. Intact:
3 to 40.
"""
FAR_EXTENTS = 1000
"""Distance of a point, as a multiple of how far the cameras lie apart, from which on `far_points` is reported.

Rays from places that far apart meet there at 0.06 degrees. COLMAP drops points below 1.5 degrees: 38 times.
"""
REGISTERED = 0.5
"""Share of a folder's photographs with a pose below which the finding `unregistered` is reported; intact: 0.9 to 1."""
GARBAGE, LONGEST_PX = 1e12, 1 << 20
"""Largest coordinate, in units of the model, and largest side, in pixels, that are believed; more is garbage."""


def trusted_px(camera: Camera) -> float:
    """Return the median reprojection error in pixels up to which an image of this camera is trusted."""
    return max(TRUSTED_PX, TRUSTED_SHARE * max(camera.size))


def alarm_px(camera: Camera, usual_px: float = float("inf")) -> float:
    """Return the median reprojection error in pixels beyond which an image is wrong, whether or not a cause is found.

    Args:
        camera: camera of the image.
        usual_px: median error of all images; a small one lowers the limit, but never below `trusted_px`.
    """
    most = max(ALARM_PX, ALARM_SHARE * max(camera.size))
    return max(trusted_px(camera), min(most, ALARM_TIMES * usual_px))
