// Blending over sorted lists of 16 x 16 tiles, and back.
#include "backward.cuh"
#include "forward.cuh"

KERNEL(FORWARD_WARPS * WARP) blend(Scene scene, Drawn drawn) { draw<false>(scene, drawn); }

// Keeps what backward needs.
KERNEL(FORWARD_WARPS * WARP) blend_to_learn(Scene scene, Drawn drawn) { draw<true>(scene, drawn); }

KERNEL(BACKWARD_WARPS * WARP) blend_backward(Scene scene, Gradients given) { derive<false>(scene, given); }

// Also sums up absolute gradients of means2d (AbsGS).
KERNEL(BACKWARD_WARPS * WARP) blend_backward_absolute(Scene scene, Gradients given) { derive<true>(scene, given); }
