// What one Gaussian does to the pixels of a warp: where it reaches, and how opaque it is at a pixel.
//
// A tile of 16 x 16 pixels is blended by 8 warps, each for 8 x 4 of them and on its own: no warp waits for another.
// Everything here is written with explicit fmaf, so that forward and backward come to the very same bits: whether a
// Gaussian is seen and where a pixel ends must be decided alike.
#pragma once
#include "device.cuh"

constexpr unsigned ALL = 0xffffffffu;
constexpr int WARP = 32;
constexpr int TILE_PX = 16;
constexpr int PARTS = 8;         // warps of a tile
constexpr int PART_WIDTH = 8;    // px
constexpr int PART_HEIGHT = 4;   // px

// gsplat's thresholds (training/cpu/raster.py says the same)
constexpr float MOST_OPAQUE = 0.999f;
constexpr float LEAST_TRANSMITTANCE = 1e-4f;
constexpr float FAINTEST = -7.9943534368588578f;  // log2(1 / 255)

constexpr float LOG2_E = 1.4426950408889634f;
constexpr int CHANNELS = 3;

// All of a Gaussian lies side by side, and so do its gradients: read and added in three requests to memory, not in nine.
constexpr int ROW = 12;  // means2d 2 (px), conics 3 (xx, xy, yy), opacity, colours 3, none; sums of absolute means2d (AbsGS) 2

// What is drawn.
struct Scene {
    const float* rows;         // [N, 12]: see ROW
    const int* offsets;        // [tiles]: where the list of each tile begins
    const int* ids;            // [entries]: Gaussians of each tile, nearest first
    const bool* masks;         // [tiles]: false where nothing is drawn; null: everywhere
    int num_entries;
    int num_tiles;
    int columns;               // tiles across
    int width;                 // px
    int height;                // px
};

// A Gaussian as pixels see it: opacity * exp(-sigma) = 2^(peak - falloff).
struct Footprint {
    float x, y;        // px
    float xx, xy, yy;  // falloff = xx dx^2 + xy dx dy + yy dy^2
    float peak;        // log2 of the opacity
};

// From the first eight numbers of its row.
DEVICE Footprint footprint(const float4& first, const float4& second) {
    return {first.x, first.y, 0.5f * LOG2_E * first.z, LOG2_E * first.w, 0.5f * LOG2_E * second.x, log2_fast(second.y)};
}

DEVICE float falloff(const Footprint& seen, float dx, float dy) {
    const float across = fmaf(seen.xx, dx, seen.xy * dy);
    return fmaf(seen.yy * dy, dy, across * dx);
}

// Whether any pixel of a rectangle may see a Gaussian. The falloff grows along every ray from the centre, so its least lies
// where rays enter the pixels' rectangle: on the one or two sides that face the centre, unless that lies inside.
template <int WIDTH, int HEIGHT>
DEVICE bool reaches(const Footprint& seen, float first_px, float first_py) {
    const float left = first_px - seen.x, right = left + (WIDTH - 1);
    const float top = first_py - seen.y, bottom = top + (HEIGHT - 1);
    const float near_x = fminf(fmaxf(0.0f, left), right), near_y = fminf(fmaxf(0.0f, top), bottom);
    const float on_x = fminf(fmaxf(-0.5f * seen.xy * near_x * reciprocal(seen.yy), top), bottom);
    const float on_y = fminf(fmaxf(-0.5f * seen.xy * near_y * reciprocal(seen.xx), left), right);
    const float at_x = falloff(seen, near_x, on_x), at_y = falloff(seen, on_y, near_y);
    const bool beside = near_x != 0.0f, above = near_y != 0.0f;
    const float least = beside ? (above ? fminf(at_x, at_y) : at_x) : (above ? at_y : 0.0f);
    // rounding of a falloff is as large as its largest term, which cancels where a long Gaussian lies aslant
    const float far_x = fmaxf(fabsf(left), fabsf(right)), far_y = fmaxf(fabsf(top), fabsf(bottom));
    const float largest = seen.xx * far_x * far_x + fabsf(seen.xy) * far_x * far_y + seen.yy * far_y * far_y;
    return least <= seen.peak - FAINTEST + 0.02f + 1e-6f * largest;
}

// A warp's place in the picture, and its tile's list.
struct Place {
    int tile, part;
    int first_x, first_y;  // px, of the warp
    int x, y;              // px, of the lane,
    float right, below;    // and from the warp's first
    int start, num;        // the tile's entries
    int slot;              // where what is kept of the tile's first 32 entries lies: see slots()
    bool drawn, inside;    // whether the warp, and the lane, have anything to draw
};

// Each tile owns a slot per 32 of its entries, without anyone having counted: tile t's first is start / 32 + t, and
// start / 32 + t + ceil(num / 32) <= (start + num) / 32 + t + 1. So entries / 32 + tiles + 1 slots are always enough.
DEVICE int slots(int start, int tile) { return start / WARP + tile; }

DEVICE int start_of(const Scene& scene, int tile) {
    return tile < scene.num_tiles ? scene.offsets[tile] : scene.num_entries;
}

DEVICE Place place_of(const Scene& scene, int warp, int lane) {
    Place at;
    at.tile = warp / PARTS;
    at.part = warp % PARTS;
    at.first_x = at.tile % scene.columns * TILE_PX + at.part % 2 * PART_WIDTH;
    at.first_y = at.tile / scene.columns * TILE_PX + at.part / 2 * PART_HEIGHT;
    at.x = at.first_x + lane % PART_WIDTH;
    at.y = at.first_y + lane / PART_WIDTH;
    at.right = lane % PART_WIDTH, at.below = lane / PART_WIDTH;
    at.start = start_of(scene, at.tile);
    at.num = start_of(scene, at.tile + 1) - at.start;
    at.slot = slots(at.start, at.tile);
    at.drawn = at.first_x < scene.width && at.first_y < scene.height;
    at.inside = at.x < scene.width && at.y < scene.height;
    return at;
}

DEVICE bool is_masked(const Scene& scene, int tile) { return scene.masks != nullptr && !scene.masks[tile]; }

// A Gaussian laid out in shared memory, for all lanes of a warp to read: the logarithm of its alpha is a polynomial of
// how many pixels a lane lies right of, and below, the first one of the warp.
struct alignas(16) Staged {
    float4 slopes;  // constant, x, y, x^2
    float4 more;    // x y, y^2, red, green
    float blue;
};

DEVICE void stage(Staged& staged, const Footprint& seen, float red, float green, float blue, const Place& at) {
    const float dx = seen.x - (at.first_x + 0.5f), dy = seen.y - (at.first_y + 0.5f);
    staged.slopes = make_float4(seen.peak - falloff(seen, dx, dy), fmaf(2.0f * seen.xx, dx, seen.xy * dy),
                                fmaf(2.0f * seen.yy, dy, seen.xy * dx), -seen.xx);
    staged.more = make_float4(-seen.xy, -seen.yy, red, green);
    staged.blue = blue;
}

// The logarithm (of base 2) of a staged Gaussian's alpha at a pixel of the warp.
DEVICE float power_at(const float4& slopes, const float4& more, float x, float y) {
    const float across = fmaf(slopes.w, x, fmaf(more.x, y, slopes.y)), down = fmaf(more.y, y, slopes.z);
    return fmaf(across, x, fmaf(down, y, slopes.x));
}
