// Forward: every lane blends its pixel front to back; a warp looks only at Gaussians that reach its 8 x 4 pixels.
#pragma once
#include "gaussians.cuh"

constexpr int FORWARD_WARPS = 8;  // of a block

// What forward makes, and keeps for backward.
struct Drawn {
    float* colors;           // [H, W, 3]
    float* alphas;           // [H, W]
    unsigned* contributors;  // [slots, 8]: which of 32 entries any pixel of a warp sees; null: nothing is kept
    int* num_batches;        // [tiles, 8]: of 32 entries each, that the warp looked at before its pixels were opaque
};

template <bool KEEPS>
DEVICE void draw(const Scene& scene, const Drawn& drawn) {
    __shared__ Staged shared[FORWARD_WARPS][WARP];
    const int lane = threadIdx.x % WARP, warp = blockIdx.x * FORWARD_WARPS + threadIdx.x / WARP;
    if (warp >= scene.num_tiles * PARTS) return;
    Staged* staged = shared[threadIdx.x / WARP];
    const Place at = place_of(scene, warp, lane);
    if (!at.drawn) return;
    const int num = is_masked(scene, at.tile) ? 0 : at.num;

    const float px = at.x + 0.5f, py = at.y + 0.5f;
    float transmittance = 1.0f, color[CHANNELS] = {};
    bool done = !at.inside;
    int batch = 0;
    for (; batch * WARP < num && !__all_sync(ALL, done); ++batch) {
        const int entry = batch * WARP + lane;
        bool there = entry < num;
        int gaussian = 0;
        Footprint own = {};
        if (there) {
            gaussian = scene.ids[at.start + entry];
            own = footprint(scene, gaussian);
            there = reaches(own, at.first_x + 0.5f, at.first_y + 0.5f);
        }
        const unsigned near = __ballot_sync(ALL, there);
        if (there) stage(staged[lane], own, scene.colors + CHANNELS * gaussian);
        __syncwarp();
        unsigned contributors = 0;
        for (unsigned todo = near; todo != 0; todo &= todo - 1) {
            const int next = __ffs(todo) - 1;
            float colors[CHANNELS];
            const Look seen = look_at(staged[next], px, py, colors);
            const bool visible = seen.visible && !done;
            if (!__any_sync(ALL, visible)) continue;
            contributors |= 1u << next;
            const float after = fmaf(-seen.alpha, transmittance, transmittance);
            done = done || (visible && after <= LEAST_TRANSMITTANCE);
            if (visible && !done) {
                const float weight = seen.alpha * transmittance;
                for (int c = 0; c < CHANNELS; ++c) color[c] = fmaf(weight, colors[c], color[c]);
                transmittance = after;
            }
        }
        if (KEEPS && lane == 0) drawn.contributors[(at.slot + batch) * PARTS + at.part] = contributors;
        __syncwarp();  // all lanes have read what the next batch overwrites
    }
    if (KEEPS && lane == 0) drawn.num_batches[warp] = batch;
    if (!at.inside) return;
    const size_t pixel = static_cast<size_t>(at.y) * scene.width + at.x;
    for (int c = 0; c < CHANNELS; ++c) drawn.colors[pixel * CHANNELS + c] = color[c];
    drawn.alphas[pixel] = 1.0f - transmittance;
}
