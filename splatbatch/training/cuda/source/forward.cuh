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

    float transmittance = 1.0f, color[CHANNELS] = {};
    float faintest = at.inside ? FAINTEST : INFINITY;  // that is seen: nothing more once a pixel is opaque
    int batch = 0;
    for (; batch * WARP < num && __any_sync(ALL, faintest == FAINTEST); ++batch) {
        const int entry = batch * WARP + lane;
        bool there = entry < num;
        if (there) {
            const float* row = scene.rows + static_cast<size_t>(ROW) * scene.ids[at.start + entry];
            const float4 second = load4(row + 4);
            const Footprint own = footprint(load4(row), second);
            there = reaches<PART_WIDTH, PART_HEIGHT>(own, at.first_x + 0.5f, at.first_y + 0.5f);
            if (there) stage(staged[lane], own, second.z, second.w, row[8], at);
        }
        unsigned contributors = __ballot_sync(ALL, there);
        __syncwarp();
        for (unsigned todo = contributors; todo != 0; todo &= todo - 1) {
            const Staged& next = staged[__ffs(todo) - 1];
            const float4 slopes = next.slopes, more = next.more;
            const float power = power_at(slopes, more, at.right, at.below);
            const bool visible = power >= faintest;
            if (!__any_sync(ALL, visible)) {
                contributors &= ~(todo & (0u - todo));
                continue;
            }
            const float alpha = visible ? fminf(exp2_fast(power), MOST_OPAQUE) : 0.0f;
            const float after = fmaf(-alpha, transmittance, transmittance);
            const bool counts = after > LEAST_TRANSMITTANCE;
            const float weight = counts ? alpha * transmittance : 0.0f;
            color[0] = fmaf(weight, more.z, color[0]);
            color[1] = fmaf(weight, more.w, color[1]);
            color[2] = fmaf(weight, next.blue, color[2]);
            transmittance = counts ? after : transmittance;
            faintest = counts ? faintest : INFINITY;
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
