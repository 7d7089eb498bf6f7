// Which Gaussians each tile of 16 x 16 pixels blends: an entry per thread. See lists.py.
#include "vectors.cuh"

constexpr int EMIT_THREADS = 256;
constexpr int TILE_PX = 16;
constexpr float ROUNDING = 0.01f;  // of a falloff, in which 1 is a factor of e

struct Entries {
    const float* means2d;      // [N, 2], px
    const int* radii;          // [N, 2], px
    const float* conics;       // [N, 3]: xx, xy, yy
    const float* opacities;    // [N]
    const long long* order;    // [N]: Gaussians, nearest first
    const long long* ends;     // [N]: where the entries of each of these end
    void* tiles;               // [capacity] short or int: written
    int* ids;                  // [capacity]: written
    int num, capacity, columns, rows;
};

DEVICE int tile_at(float tile, int most) { return static_cast<int>(clamped(tile, 0.0f, static_cast<float>(most))); }

// Whether any pixel of a tile may see a Gaussian: nothing fainter than 1/255 is blended. Its falloff grows along every
// ray from its centre, so the least of a tile lies where rays enter it: on the one or two sides that face the centre,
// unless that lies inside.
DEVICE bool reaches(const Entries& of, size_t n, int column, int row) {
    const float x = of.means2d[2 * n], y = of.means2d[2 * n + 1];
    const float xx = of.conics[3 * n], xy = of.conics[3 * n + 1], yy = of.conics[3 * n + 2];
    const float left = column * TILE_PX + 0.5f - x, top = row * TILE_PX + 0.5f - y;  // of the first pixel's centre
    const float right = left + (TILE_PX - 1), bottom = top + (TILE_PX - 1);
    const float near_x = clamped(0.0f, left, right), near_y = clamped(0.0f, top, bottom);
    const float on_x = clamped(-xy * near_x / yy, top, bottom), on_y = clamped(-xy * near_y / xx, left, right);
    const float at_x = 0.5f * (xx * near_x * near_x + yy * on_x * on_x) + xy * near_x * on_x;
    const float at_y = 0.5f * (xx * on_y * on_y + yy * near_y * near_y) + xy * on_y * near_y;
    const bool beside = near_x != 0.0f, above = near_y != 0.0f;
    const float least = beside ? (above ? fminf(at_x, at_y) : at_x) : (above ? at_y : 0.0f);
    return least <= logf(255.0f * of.opacities[n]) + ROUNDING;
}

template <typename Tile>
DEVICE void emit(const Entries& of) {
    const int entry = blockIdx.x * EMIT_THREADS + threadIdx.x;
    if (entry >= of.capacity) return;
    // whose entry it is: the first Gaussian, in the order of depth, whose entries end behind it
    int low = 0, high = of.num;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (of.ends[middle] > entry)
            high = middle;
        else
            low = middle + 1;
    }
    int tile = of.rows * of.columns, id = 0;  // padding, which nothing draws
    if (low < of.num) {
        const size_t n = of.order[low];
        const int place = static_cast<int>(entry - (low > 0 ? of.ends[low - 1] : 0));
        const float x = of.means2d[2 * n], y = of.means2d[2 * n + 1];
        const int across = of.radii[2 * n], down = of.radii[2 * n + 1];
        const int left = tile_at(floorf((x - across) / TILE_PX), of.columns);
        const int right = tile_at(ceilf((x + across) / TILE_PX), of.columns);
        const int top = tile_at(floorf((y - down) / TILE_PX), of.rows), wide = max(right - left, 1);
        const int row = top + place / wide, column = left + place % wide;
        if (reaches(of, n, column, row)) tile = row * of.columns + column;
        id = static_cast<int>(n);
    }
    static_cast<Tile*>(of.tiles)[entry] = static_cast<Tile>(tile);
    of.ids[entry] = id;
}

KERNEL(EMIT_THREADS) emit_short(Entries of) { emit<short>(of); }
KERNEL(EMIT_THREADS) emit_int(Entries of) { emit<int>(of); }
