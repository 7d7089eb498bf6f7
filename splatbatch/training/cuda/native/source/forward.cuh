// Forward: every lane blends its pixel front to back; a warp looks only at Gaussians that reach its 8 x 4 pixels.
#pragma once
#include "gaussians.cuh"

#ifndef FORWARD_WARPS
#define FORWARD_WARPS 8  // of a block
#endif

// What forward makes, and keeps for backward.
struct Drawn {
    float* colors;           // [H, W, C]
    float* alphas;           // [H, W]
    unsigned* contributors;  // [slots, 8]: which of 32 entries any pixel of a warp sees; null: nothing is kept
    int* num_batches;        // [tiles, 8]: of 32 entries each, that the warp looked at before its pixels were opaque
    float* snapshots;        // [slots, 256, 1 + C]: transmittance (0: at its end) and colour of every pixel before 32
                             // entries, where any of them reaches its warp; null: not kept
    int* tiles;              // [slots]: of which tile they are; -1: of none
};

template <int C>
DEVICE void keep_snapshot(float* to, float transmittance, const float* color) {
    if (C == 3) {
        *reinterpret_cast<float4*>(to) = make_float4(transmittance, color[0], color[1], color[2]);
        return;
    }
    to[0] = transmittance;
    for (int c = 0; c < C; ++c) to[1 + c] = color[c];
}

// Says of which tile each slot is, up to the next tile's first.
DEVICE void name_slots(const Scene& scene, const Place& at, int lane, int* tiles) {
    const int end = at.tile + 1 < scene.num_tiles ? slots(at.start + at.num, at.tile + 1)
                                                  : scene.num_entries / WARP + scene.num_tiles + 1;
    const bool drawn = at.drawn && !is_masked(scene, at.tile);
    for (int slot = at.slot + lane; slot < end; slot += WARP)
        tiles[slot] = drawn && (slot - at.slot) * WARP < at.num ? at.tile : -1;
}

template <int C, bool KEEPS>
KERNEL(FORWARD_WARPS * WARP) forward_kernel(Scene scene, Drawn drawn) {
    __shared__ Staged shared[FORWARD_WARPS][WARP];
    const int lane = threadIdx.x % WARP, warp = blockIdx.x * FORWARD_WARPS + threadIdx.x / WARP;
    if (warp >= scene.num_tiles * PARTS) return;
    Staged* staged = shared[threadIdx.x / WARP];
    const Place at = place_of(scene, warp, lane);
    if (KEEPS && drawn.tiles != nullptr && at.part == 0) name_slots(scene, at, lane, drawn.tiles);
    if (!at.drawn) return;
    const int num = is_masked(scene, at.tile) ? 0 : at.num;

    const float px = at.x + 0.5f, py = at.y + 0.5f;
    float transmittance = 1.0f, color[C] = {};
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
        if (there) stage<C>(staged[lane], own, scene.colors + C * gaussian);
        if (KEEPS && drawn.snapshots != nullptr && near != 0) {
            const size_t pixel = static_cast<size_t>(at.slot + batch) * TILE_PIXELS + at.part * WARP + lane;
            keep_snapshot<C>(drawn.snapshots + pixel * (1 + C), done ? 0.0f : transmittance, color);
        }
        __syncwarp();
        unsigned contributors = 0;
        for (unsigned todo = near; todo != 0; todo &= todo - 1) {
            const int next = __ffs(todo) - 1;
            float colors[C];
            const Look seen = look_at<C>(staged[next], px, py, colors);
            const bool visible = seen.visible && !done;
            if (!__any_sync(ALL, visible)) continue;
            contributors |= 1u << next;
            const float after = fmaf(-seen.alpha, transmittance, transmittance);
            done = done || (visible && after <= LEAST_TRANSMITTANCE);
            if (visible && !done) {
                const float weight = seen.alpha * transmittance;
                for (int c = 0; c < C; ++c) color[c] = fmaf(weight, colors[c], color[c]);
                transmittance = after;
            }
        }
        if (KEEPS && lane == 0) drawn.contributors[(at.slot + batch) * PARTS + at.part] = contributors;
        __syncwarp();  // all lanes have read what the next batch overwrites
    }
    if (KEEPS && lane == 0) drawn.num_batches[warp] = batch;
    if (!at.inside) return;
    const size_t pixel = static_cast<size_t>(at.y) * scene.width + at.x;
    for (int c = 0; c < C; ++c)
        drawn.colors[pixel * C + c] =
            scene.background == nullptr ? color[c] : fmaf(transmittance, scene.background[c], color[c]);
    drawn.alphas[pixel] = 1.0f - transmittance;
}
