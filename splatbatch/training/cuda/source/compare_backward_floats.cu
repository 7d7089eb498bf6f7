// The derivative of the loss against a photo of floats: a program of its own, so that all four are compiled side by side.
#include "loss.cuh"

KERNEL(STRIP_THREADS) compare_backward_floats(Comparison of) { derive<false>(of); }
