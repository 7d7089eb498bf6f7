// What the Python side calls: projection of Gaussians, blending over sorted lists of 16 x 16 tiles, the loss; and back.
#include "backward.cuh"
#include "forward.cuh"
#include "loss.cuh"
#include "projection_backward.cuh"

namespace {

int blocks_for(int warps, int warps_per_block) { return (warps + warps_per_block - 1) / warps_per_block; }

int last_error() { return static_cast<int>(cudaGetLastError()); }

}  // namespace

// All return 0, or a CUDA error.
#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED int blending_forward(const Scene* scene, const Drawn* drawn, void* stream) {
    const int blocks = blocks_for(scene->num_tiles * PARTS, FORWARD_WARPS), threads = FORWARD_WARPS * WARP;
    if (drawn->contributors != nullptr)
        LAUNCH(forward_kernel<true>, blocks, threads, stream, *scene, *drawn);
    else
        LAUNCH(forward_kernel<false>, blocks, threads, stream, *scene, *drawn);
    return last_error();
}

EXPORTED int blending_backward(const Scene* scene, const Gradients* given, void* stream) {
    const int blocks = blocks_for(scene->num_tiles * PARTS, BACKWARD_WARPS), threads = BACKWARD_WARPS * WARP;
    if (given->has_absolute)
        LAUNCH(backward_kernel<true>, blocks, threads, stream, *scene, *given);
    else
        LAUNCH(backward_kernel<false>, blocks, threads, stream, *scene, *given);
    return last_error();
}

EXPORTED int loss_forward(const Comparison* of, void* stream) {
    const int across = blocks_for(of->width, STRIP_THREADS), blocks = across * blocks_for(of->height, STRIP_ROWS);
    if (of->photo_is_bytes)
        LAUNCH(compare_kernel<true>, blocks, STRIP_THREADS, stream, *of, across);
    else
        LAUNCH(compare_kernel<false>, blocks, STRIP_THREADS, stream, *of, across);
    return last_error();
}

EXPORTED int loss_backward(const Comparison* of, void* stream) {
    const int across = blocks_for(of->width, STRIP_THREADS), blocks = across * blocks_for(of->height, STRIP_ROWS);
    if (of->photo_is_bytes)
        LAUNCH(compare_backward_kernel<true>, blocks, STRIP_THREADS, stream, *of, across);
    else
        LAUNCH(compare_backward_kernel<false>, blocks, STRIP_THREADS, stream, *of, across);
    return last_error();
}

EXPORTED int projection_forward(const Scenery* of, const Projected* to, void* stream) {
    if (of->num == 0) return 0;
    LAUNCH(project_kernel, blocks_for(of->num, PROJECTION_THREADS), PROJECTION_THREADS, stream, *of, *to);
    return last_error();
}

EXPORTED int projection_backward(const Scenery* of, const Slopes* to, void* stream) {
    if (of->num == 0) return 0;
    LAUNCH(project_backward_kernel, blocks_for(of->num, PROJECTION_THREADS), PROJECTION_THREADS, stream, *of, *to);
    return last_error();
}

EXPORTED const char* native_error(int code) { return cudaGetErrorString(static_cast<cudaError_t>(code)); }
