"""The parts of scripts/bench_scene."""
