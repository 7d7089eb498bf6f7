// What the Python side calls: projection of Gaussians, and blending over sorted lists of 16 x 16 tiles; both and back.
#include "backward_buckets.cuh"
#include "backward_pixels.cuh"
#include "forward.cuh"
#include "projection_backward.cuh"

namespace {

int blocks_for(int warps, int warps_per_block) { return (warps + warps_per_block - 1) / warps_per_block; }

int last_error() { return static_cast<int>(cudaGetLastError()); }

template <int C>
int forward(const Scene& scene, const Drawn& drawn, void* stream) {
    const int blocks = blocks_for(scene.num_tiles * PARTS, FORWARD_WARPS), threads = FORWARD_WARPS * WARP;
    if (drawn.contributors != nullptr)
        LAUNCH((forward_kernel<C, true>), blocks, threads, stream, scene, drawn);
    else
        LAUNCH((forward_kernel<C, false>), blocks, threads, stream, scene, drawn);
    return last_error();
}

template <int C>
int backward_pixels(const Scene& scene, const Gradients& given, void* stream) {
    const int blocks = blocks_for(scene.num_tiles * PARTS, BACKWARD_WARPS), threads = BACKWARD_WARPS * WARP;
    if (given.v_means2d_abs != nullptr)
        LAUNCH((backward_pixels_kernel<C, true>), blocks, threads, stream, scene, given);
    else
        LAUNCH((backward_pixels_kernel<C, false>), blocks, threads, stream, scene, given);
    return last_error();
}

template <int C>
int backward_buckets(const Scene& scene, const Gradients& given, void* stream) {
    const int num_slots = scene.num_entries / WARP + scene.num_tiles + 1;
    const int blocks = blocks_for(num_slots, BUCKET_WARPS), threads = BUCKET_WARPS * WARP;
    if (given.v_means2d_abs != nullptr)
        LAUNCH((backward_buckets_kernel<C, true>), blocks, threads, stream, scene, given, num_slots);
    else
        LAUNCH((backward_buckets_kernel<C, false>), blocks, threads, stream, scene, given, num_slots);
    return last_error();
}

}  // namespace

// All return 0, or a CUDA error; -1: not so many channels.
#define BY_CHANNELS(function, channels, ...)      \
    switch (channels) {                           \
        case 1: return function<1>(__VA_ARGS__);  \
        case 3: return function<3>(__VA_ARGS__);  \
        case 4: return function<4>(__VA_ARGS__);  \
        default: return -1;                       \
    }

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED int blending_forward(const Scene* scene, const Drawn* drawn, int channels, void* stream) {
    BY_CHANNELS(forward, channels, *scene, *drawn, stream)
}

EXPORTED int blending_backward_pixels(const Scene* scene, const Gradients* given, int channels, void* stream) {
    BY_CHANNELS(backward_pixels, channels, *scene, *given, stream)
}

EXPORTED int blending_backward_buckets(const Scene* scene, const Gradients* given, int channels, void* stream) {
    BY_CHANNELS(backward_buckets, channels, *scene, *given, stream)
}

EXPORTED int projection_forward(const Scenery* of, const Projected* to, void* stream) {
    LAUNCH(project_kernel, blocks_for(of->num, PROJECTION_THREADS), PROJECTION_THREADS, stream, *of, *to);
    return last_error();
}

EXPORTED int projection_backward(const Scenery* of, const Slopes* to, void* stream) {
    LAUNCH(project_backward_kernel, blocks_for(of->num, PROJECTION_THREADS), PROJECTION_THREADS, stream, *of, *to);
    return last_error();
}

EXPORTED int native_is_packed() { return PACKED; }

EXPORTED const char* native_error(int code) { return cudaGetErrorString(static_cast<cudaError_t>(code)); }
