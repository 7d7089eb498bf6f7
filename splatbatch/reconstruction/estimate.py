"""Estimates the time and memory of a stage of a reconstruction, from the measurements in docs/benchmarks.md."""

from __future__ import annotations

from splatbatch.reconstruction.plan import ReconstructionPlan, Stage

LONGEST_PX = 3200
"""Longest side in pixels at which COLMAP finds features; larger photographs are scaled down."""
MOST_THREADS = 16
"""Most threads that shorten a stage in this estimate; with more threads a stage is not expected to be faster."""
PROCESS_S, PROCESS_MIB = 1.0, 140.0
FEATURES_S, EACH_S = 0.95, 0.06
"""Seconds of one core for finding features: per megapixel of photographs, and per photograph in addition."""
FEATURES_MIB = 310.0
"""Memory for finding features, in MiB per megapixel of a photograph that is being read; each thread reads one."""
PAIR_S = 0.062
"""Seconds of one core for matching a pair of photographs, at 4,096 features a photograph."""
MATCHING_MIB = 1.6
"""Memory for matching, in MiB per photograph that a process matches, at 4,096 features, with the search index."""
MAPPING_S, MAPPING_GROWTH = 0.26, 1.25
"""Seconds of mapping per photograph, for 75 photographs on two cores; and the exponent of the number of photographs.

The time for n photographs grows with n to this power.
"""
MAPPING_MIB = 3.2
"""Memory for mapping, in MiB per photograph, at 4,096 features a photograph."""
UNDISTORT_S = 0.1
"""Seconds of one core for removing the distortion of photographs, per megapixel."""


def expected_of(plan: ReconstructionPlan, stage: Stage, threads: int) -> tuple[float, float]:
    """Return the wall-clock time in seconds and the host memory in MiB that a stage is expected to take.

    Args:
        plan: plan of the reconstruction.
        stage: one of the stages of this plan.
        threads: number of threads that the stage may use, at least 1.
    """
    n, cores = len(plan.photographs), min(threads, MOST_THREADS)
    share = plan.wanted.features / 4096
    match stage.what:
        case "features":
            sizes = [_megapixels(plan, place) for place in plan.chunks()[stage.number]]
            seconds = sum(EACH_S + FEATURES_S * one for one in sizes) / cores
            return PROCESS_S + seconds, PROCESS_MIB + cores * FEATURES_MIB * max(sizes) + 30 * share
        case "matching":
            pairs = plan.num_pairs / plan.num_matchings
            touched = min(n, 2 * pairs)
            return PROCESS_S + PAIR_S * share * pairs / cores, PROCESS_MIB + MATCHING_MIB * share * touched
        case "mapping":
            seconds = MAPPING_S * 75 * (n / 75) ** MAPPING_GROWTH * share**0.5 * (2 / min(cores, 2)) ** 0.4
            return PROCESS_S + 2 * seconds, PROCESS_MIB + MAPPING_MIB * share * n
        case "model":
            most = sum(_megapixels(plan, place) for place in range(n))
            return PROCESS_S + UNDISTORT_S * most / cores, PROCESS_MIB + MAPPING_MIB * share * n
    return PROCESS_S, PROCESS_MIB + 0.6 * n


def _megapixels(plan: ReconstructionPlan, place: int) -> float:
    camera = plan.cameras[plan.photographs[place].camera - 1]
    scale = min(1.0, LONGEST_PX / max(camera.width, camera.height, 1))
    return camera.width * camera.height * scale**2 / 1e6
