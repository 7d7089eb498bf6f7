"""Small differences of a training setting, by trainings in pairs: `scripts/bench_quality --levers`."""
