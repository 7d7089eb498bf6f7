// Which Gaussians each tile of 16 x 16 pixels blends: an entry per thread. See lists.py.
#include "gaussians.cuh"
#include "vectors.cuh"

constexpr int EMIT_THREADS = 256;

struct Entries {
    const float* rows;         // [N, 12]: see ROW
    const int* radii;          // [N, 2], px
    const long long* order;    // [N]: Gaussians, nearest first
    const int* ends;           // [N]: where the entries of each of these end
    void* tiles;               // [capacity] short or int: written
    int* ids;                  // [capacity]: written
    int num, capacity, columns, down;
};

DEVICE int tile_at(float tile, int most) { return static_cast<int>(clamped(tile, 0.0f, static_cast<float>(most))); }

template <typename Tile>
DEVICE void emit(const Entries& of) {
    const int entry = blockIdx.x * EMIT_THREADS + threadIdx.x, lane = threadIdx.x % WARP;
    // whose entry it is: the first Gaussian, in the order of depth, whose entries end behind it. The warp looks for that
    // of its first entry; as each that is seen has an entry, those of the others are among the next 31, or there are none
    int low = 0, high = of.num;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (of.ends[middle] > entry - lane)
            high = middle;
        else
            low = middle + 1;
    }
    const int end = low + lane < of.num ? of.ends[low + lane] : of.capacity + WARP;
    int before = 0;
    for (int by = WARP / 2; by != 0; by /= 2)
        if (__shfl_sync(ALL, end, before + by - 1) <= entry) before += by;
    low += before;
    if (entry >= of.capacity) return;
    int tile = of.down * of.columns, id = 0;  // padding, which nothing draws
    if (low < of.num && of.ends[low] > entry) {
        const size_t n = of.order[low];
        const int place = static_cast<int>(entry - (low > 0 ? of.ends[low - 1] : 0));
        const float4 first = load4(of.rows + ROW * n);
        const int across = of.radii[2 * n], down = of.radii[2 * n + 1];
        const int left = tile_at(floorf((first.x - across) / TILE_PX), of.columns);
        const int right = tile_at(ceilf((first.x + across) / TILE_PX), of.columns);
        const int top = tile_at(floorf((first.y - down) / TILE_PX), of.down), wide = max(right - left, 1);
        const int row = top + place / wide, column = left + place % wide;
        const Footprint seen = footprint(first, load4(of.rows + ROW * n + 4));
        if (reaches<TILE_PX, TILE_PX>(seen, column * TILE_PX + 0.5f, row * TILE_PX + 0.5f)) tile = row * of.columns + column;
        id = static_cast<int>(n);
    }
    static_cast<Tile*>(of.tiles)[entry] = static_cast<Tile>(tile);
    of.ids[entry] = id;
}

KERNEL(EMIT_THREADS) emit_short(Entries of) { emit<short>(of); }
KERNEL(EMIT_THREADS) emit_int(Entries of) { emit<int>(of); }
