// The loss against a photo of floats: a program of its own, so that all four are compiled side by side.
#include "loss.cuh"

KERNEL(STRIP_THREADS) compare_floats(Comparison of) { measure<false>(of); }
