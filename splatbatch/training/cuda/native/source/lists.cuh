// Which Gaussians each tile of 16 x 16 pixels blends, nearest first, without any sort of all of them: each tile's are
// counted, laid down in any order, and sorted by a block of the tile's own.
#pragma once
#include "gaussians.cuh"

constexpr int LISTING_THREADS = 128;
constexpr int SCAN_THREADS = 1024;
constexpr int SORT_THREADS = 128;
constexpr int MOST_SHARED = 2048;  // entries that are sorted in shared memory; more lie where they are

typedef unsigned long long Key;  // depth, and then the Gaussian: the same lists whatever order they were laid down in

// Mirrored field by field in library.py.
struct Listing {
    const float* means2d;    // [N, 2], px
    const float* conics;     // [N, 3]
    const float* opacities;  // [N]
    const float* depths;     // [N]
    const int* radii;        // [N, 2], px; 0: not seen
    int* counts;             // [tiles], 0; used up
    int* offsets;            // [tiles + columns]: where each tile's begin, and where all end
    Key* keys;               // [capacity]
    int* ids;                // [capacity]
    long long* num;          // how many there are; more than the capacity: tiles get less than they have, in proportion
    int num_gaussians;
    int columns, rows;       // of tiles
    int capacity;
};

// The tiles that the box around a Gaussian touches.
struct Box {
    int left, top, across, area;
};

DEVICE int tile_at(float px, int most) { return static_cast<int>(fminf(fmaxf(px / TILE_PX, 0.0f), static_cast<float>(most))); }

DEVICE Box box_of(const Listing& of, int n) {
    const int across = of.radii[2 * n], down = of.radii[2 * n + 1];
    if (across <= 0 || down <= 0) return {0, 0, 0, 0};
    const float x = of.means2d[2 * n], y = of.means2d[2 * n + 1];
    const int left = tile_at(x - across, of.columns), top = tile_at(y - down, of.rows);
    // the first tile behind it
    const int right = tile_at(ceilf((x + across) / TILE_PX) * TILE_PX, of.columns);
    const int bottom = tile_at(ceilf((y + down) / TILE_PX) * TILE_PX, of.rows);
    return {left, top, right - left, (right - left) * (bottom - top)};
}

// A Gaussian of a warp, for all its lanes.
struct alignas(16) Listed {
    Footprint seen;
    int left, top, across, id;
    unsigned depth;
};

// Counts the entries of every tile, or lays them down: the boxes of 32 Gaussians are gone through tile by tile, by the
// whole warp, so that a large one keeps no lane waiting for another.
template <bool LAYS>
KERNEL(LISTING_THREADS) list_kernel(Listing of) {
    __shared__ Listed shared[LISTING_THREADS / WARP][WARP];
    const int n = blockIdx.x * LISTING_THREADS + threadIdx.x, lane = threadIdx.x % WARP;
    Listed* listed = shared[threadIdx.x / WARP];
    const Box box = n < of.num_gaussians ? box_of(of, n) : Box{0, 0, 0, 0};
    if (box.area > 0)
        listed[lane] = {footprint(of.means2d + 2 * n, of.conics + 3 * n, of.opacities[n]), box.left, box.top, box.across, n,
                        __float_as_uint(of.depths[n])};
    int end = box.area;  // of this Gaussian's tiles among the warp's
    for (int by = 1; by < WARP; by *= 2) {
        const int before = __shfl_up_sync(ALL, end, by);
        if (lane >= by) end += before;
    }
    const int all = __shfl_sync(ALL, end, WARP - 1);
    __syncwarp();
    for (int first = 0; first < all; first += WARP) {
        const int item = first + lane;
        int whose = 0;  // the first whose tiles end behind the item
        for (int by = WARP / 2; by != 0; by /= 2) {
            const int their_end = __shfl_sync(ALL, end, whose + by - 1);
            if (their_end <= item) whose += by;
        }
        const int its_end = __shfl_sync(ALL, end, whose), its_area = __shfl_sync(ALL, box.area, whose);
        if (item >= all) continue;
        const Listed& one = listed[whose];
        const int place = item - (its_end - its_area);
        const int column = one.left + place % one.across, row = one.top + place / one.across;
        if (!reaches<TILE_PX, TILE_PX>(one.seen, column * TILE_PX + 0.5f, row * TILE_PX + 0.5f)) continue;
        const int tile = row * of.columns + column, nth = atomicAdd(of.counts + tile, 1);
        if (LAYS) {
            const int start = of.offsets[tile];
            if (start + nth < of.offsets[tile + 1])
                of.keys[start + nth] = static_cast<Key>(one.depth) << 32 | static_cast<unsigned>(one.id);
        }
    }
}

// Where each tile's entries begin, by one block; the counts become 0 again.
KERNEL(SCAN_THREADS) offsets_kernel(Listing of) {
    __shared__ long long of_warps[SCAN_THREADS / WARP];
    const int thread = threadIdx.x, lane = thread % WARP, num_tiles = of.columns * of.rows;
    const int each = (num_tiles + SCAN_THREADS - 1) / SCAN_THREADS;
    const int first = min(thread * each, num_tiles), last = min(first + each, num_tiles);
    int own = 0;
    for (int tile = first; tile < last; ++tile) own += of.counts[tile];
    int end = own;
    for (int by = 1; by < WARP; by *= 2) {
        const int before = __shfl_up_sync(ALL, end, by);
        if (lane >= by) end += before;
    }
    if (lane == WARP - 1) of_warps[thread / WARP] = end;
    __syncthreads();
    long long start = end - own, all = 0;
    for (int warp = 0; warp < SCAN_THREADS / WARP; ++warp) {
        if (warp < thread / WARP) start += of_warps[warp];
        all += of_warps[warp];
    }
    const bool fits = all <= of.capacity;
    for (int tile = first; tile < last; ++tile) {
        of.offsets[tile] = static_cast<int>(fits ? start : start * of.capacity / all);
        start += of.counts[tile];
        of.counts[tile] = 0;
    }
    for (int i = thread; i < of.columns; i += SCAN_THREADS)
        of.offsets[num_tiles + i] = static_cast<int>(fits ? all : of.capacity);
    if (thread == 0) *of.num = all;
}

// Sorts keys by a bitonic network in which every exchange leaves the smaller one first: what lies beyond the end would
// be larger than all and would stay there, so any number of keys can be sorted (Batcher 1968).
DEVICE void sort_keys(Key* keys, int num) {
    for (int size = 2; size < 2 * num; size *= 2) {
        for (int half = size / 2; half != 0; half /= 2) {
            const bool mirrored = half == size / 2;
            for (int pair = threadIdx.x;; pair += SORT_THREADS) {
                const int within = pair & (half - 1), low = 2 * pair - within;  // half is a power of two
                if (low >= num) break;
                const int high = mirrored ? low - within + size - 1 - within : low + half;
                if (high >= num) continue;
                const Key a = keys[low], b = keys[high];
                if (b < a) keys[low] = b, keys[high] = a;
            }
            __syncthreads();
        }
    }
}

KERNEL(SORT_THREADS) sort_kernel(Listing of) {
    __shared__ Key shared[MOST_SHARED];
    const int start = of.offsets[blockIdx.x], num = of.offsets[blockIdx.x + 1] - start;
    Key* keys = of.keys + start;
    if (num <= MOST_SHARED) {
        for (int i = threadIdx.x; i < num; i += SORT_THREADS) shared[i] = keys[i];
        keys = shared;
    }
    __syncthreads();
    sort_keys(keys, num);
    for (int i = threadIdx.x; i < num; i += SORT_THREADS) of.ids[start + i] = static_cast<int>(keys[i]);
}
