"""The parts of scripts/bench_batch."""
