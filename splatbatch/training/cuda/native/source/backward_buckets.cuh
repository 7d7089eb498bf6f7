// Backward, a warp per 32 Gaussians of a tile (a bucket): every lane holds a Gaussian and its sums, and the pixels of
// the tile go from lane to lane, nearest Gaussian first. Nothing is reduced, and each Gaussian adds once per tile.
// The idea is that of Taming 3DGS (Mallick 2024); it needs what forward kept of the pixels before each bucket.
#pragma once
#include "gradients.cuh"

#ifndef BUCKET_WARPS
#define BUCKET_WARPS 4  // of a block
#endif

// The pixels of a tile, in the order in which they go through the lanes.
struct BucketSide {
    float4 v[TILE_PIXELS];     // gradients of their colours
    Pixel first[TILE_PIXELS];  // as the first lane gets them
    int places[TILE_PIXELS];   // x + y << 16, px
};

template <int C>
DEVICE Pixel pixel_before(const Gradients& given, int slot, int place_in_tile, size_t pixel, const float* v) {
    const float* kept = given.snapshots + (static_cast<size_t>(slot) * TILE_PIXELS + place_in_tile) * (1 + C);
    float rest = rest_at_first<C>(given, pixel, v);
    for (int c = 0; c < C; ++c) rest = fmaf(-kept[1 + c], v[c], rest);
    return {kept[0], rest};
}

// Lays out the pixels that any of the bucket's Gaussians may still change; returns how many.
template <int C>
DEVICE int gather_pixels(const Scene& scene, const Gradients& given, BucketSide& side, int tile, int slot, int lane) {
    int num = 0;
    for (int part = 0; part < PARTS; ++part) {
        const Place at = place_of(scene, tile * PARTS + part, lane);
        const int batch = slot - at.slot;
        if (!at.drawn || batch >= given.num_batches[tile * PARTS + part]) continue;
        if (given.contributors[slot * PARTS + part] == 0) continue;
        const size_t pixel = static_cast<size_t>(at.y) * scene.width + at.x;
        float v[C] = {};
        Pixel before = {0.0f, 0.0f};
        if (at.inside) {
            for (int c = 0; c < C; ++c) v[c] = given.v_colors[pixel * C + c];
            before = pixel_before<C>(given, slot, part * WARP + lane, pixel, v);
        }
        const unsigned alive = __ballot_sync(ALL, before.transmittance > 0.0f);
        if (alive >> lane & 1u) {
            const int place = num + __popc(alive & ((1u << lane) - 1u));
            side.first[place] = before;
            side.places[place] = at.x | at.y << 16;
            side.v[place] =
                make_float4(v[0], C > 1 ? v[1 % C] : 0.0f, C > 2 ? v[2 % C] : 0.0f, C > 3 ? v[3 % C] : 0.0f);
        }
        num += __popc(alive);
    }
    return num;
}

template <int C, bool ABS>
DEVICE void add_share(Sums<C>& sums, const Share& share, float dx, float dy, const float* v, const float* conic) {
    const float x = share.sigma * dx, y = share.sigma * dy;
    sums.one += share.sigma;
    sums.x += x;
    sums.y += y;
    sums.xx = fmaf(x, dx, sums.xx);
    sums.xy = fmaf(x, dy, sums.xy);
    sums.yy = fmaf(y, dy, sums.yy);
    for (int c = 0; c < C; ++c) sums.color[c] = fmaf(share.weight, v[c], sums.color[c]);
    if (ABS) {
        sums.abs_x += fabsf(fmaf(conic[0], x, conic[1] * y));
        sums.abs_y += fabsf(fmaf(conic[1], x, conic[2] * y));
    }
}

template <int C, bool ABS>
KERNEL(BUCKET_WARPS * WARP) backward_buckets_kernel(Scene scene, Gradients given, int num_slots) {
    __shared__ BucketSide shared[BUCKET_WARPS];
    const int lane = threadIdx.x % WARP, slot = blockIdx.x * BUCKET_WARPS + threadIdx.x / WARP;
    const int tile = slot < num_slots ? given.tiles[slot] : -1;
    if (tile < 0) return;
    BucketSide& side = shared[threadIdx.x / WARP];
    const int num_pixels = gather_pixels<C>(scene, given, side, tile, slot, lane);
    __syncwarp();
    if (num_pixels == 0) return;

    const int start = start_of(scene, tile), entry = start + (slot - slots(start, tile)) * WARP + lane;
    const bool there = entry < start_of(scene, tile + 1);
    const int gaussian = there ? scene.ids[entry] : 0;
    Footprint seen = {};
    float color[C] = {}, conic[3] = {};
    if (there) {
        seen = footprint(scene, gaussian);
        for (int c = 0; c < C; ++c) color[c] = scene.colors[C * gaussian + c];
        if (ABS)
            for (int i = 0; i < 3; ++i) conic[i] = scene.conics[3 * gaussian + i];
    }
    Sums<C> sums;
    bool any = false;
    Pixel pixel = {0.0f, 0.0f};
    for (int step = 0; step < num_pixels + WARP - 1; ++step) {
        pixel.transmittance = __shfl_up_sync(ALL, pixel.transmittance, 1);
        pixel.rest = __shfl_up_sync(ALL, pixel.rest, 1);
        const int place = step - lane;
        if (place < 0 || place >= num_pixels) continue;
        if (lane == 0) pixel = side.first[place];
        const float4 gradient = side.v[place];
        const float v[4] = {gradient.x, gradient.y, gradient.z, gradient.w};
        const float px = (side.places[place] & 0xffff) + 0.5f, py = (side.places[place] >> 16) + 0.5f;
        Look looked = look(seen, px, py);
        looked.visible = looked.visible && there;
        const Share share = blend<C>(pixel, looked, color, v);
        if (share.weight > 0.0f) {
            any = true;
            add_share<C, ABS>(sums, share, seen.x - px, seen.y - py, v, conic);
        }
    }
    if (any) add_to_all<C>(scene, given, gaussian, sums);
}
