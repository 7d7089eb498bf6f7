// The loss of 3DGS, (1 - lambda) L1 + lambda (1 - SSIM), in one kernel, and its derivative in another: with
// the letters of loss.py. Images are [H, W, 3]: rows of 3 W values, in which a neighbour is three values away.
//
// A thread goes down a column of values. In each row it blurs across, eleven values and their products, and adds that to
// the eleven rows below and above that are under way; the one that is complete then is finished on the spot. So nothing
// that is blurred across goes to memory. SSIM asks for the sum of both squares alone: four blurs instead of five.
#pragma once
#include "vectors.cuh"

constexpr int TAPS = 11;
constexpr int STRIP_THREADS = 128;  // columns of values
constexpr int STRIP_ROWS = 34;      // so that, with ten more, they are four times eleven;
constexpr int SLOPE_ROWS = 23;      // and three times

struct Comparison {
    const float* render;         // [H, W, 3]
    const void* photo;           // [H, W, 3], uint8 or float
    const unsigned char* taken;  // [H, W, 3], what an evened photo was made from; null: it was not
    const bool* mask;            // [H, W], true where a pixel counts; null: everywhere
    float* slopes;               // [3, H, W, 3]: SSIM's in the blurs of x, x^2 and x y
    float* sums;                 // [warps]: of |x - y| and SSIM, by their shares
    const float* upstream;       // []
    float* v_render;             // [H, W, 3]
    float weights[TAPS];
    float C1, C2, l1_share, ssim_share;
    float clipped, clipped_counts;  // bytes from which on a photograph may not tell how bright, and what those count
    int width, height;           // in values, and in rows
};

template <bool BYTES>
DEVICE float photo_at(const Comparison& of, int place) {
    return BYTES ? static_cast<const unsigned char*>(of.photo)[place] * (1.0f / 255) : static_cast<const float*>(of.photo)[place];
}

DEVICE bool counts_at(const Comparison& of, int place) { return of.mask == nullptr || of.mask[place / 3]; }

// The rendering and the photo at a place; where it does not count they are equal: an L1 of 0 and an SSIM of 1.
struct alignas(8) Pair {
    float x, y;
};

template <bool BYTES>
DEVICE Pair pair_at(const Comparison& of, int place) {
    const float x = of.render[place];
    return {x, counts_at(of, place) ? photo_at<BYTES>(of, place) : x};
}

// What the taps of a warp's 32 columns read.
constexpr int HALF = 3 * (TAPS / 2);
constexpr int NEAR = 32 + 2 * HALF;

// Blurs NUM values in both directions, at ROWS rows from `first`, and hands each row's to `finish`. `load` gives
// what lies at a place, and `expand` the values of that: a warp keeps the former of a row for all of its taps.
template <typename Raw, int NUM, int ROWS, typename Load, typename Expand, typename Finish>
DEVICE void blur(const Comparison& of, int first, int column, Load load, Expand expand, Finish finish) {
    __shared__ Raw shared[STRIP_THREADS / 32][2][NEAR];
    const int lane = threadIdx.x % 32;
    Raw(*near)[NEAR] = shared[threadIdx.x / 32];
    Raw next[2];
    const auto fetch = [&](int row) {
        for (int i = 0; i < 2; ++i) {
            const int from = column - HALF + 32 * i;
            next[i] = {};
            if (row >= 0 && row < of.height && from >= 0 && from < of.width) next[i] = load(row * of.width + from);
        }
    };
    const auto keep = [&](Raw* to) {
        to[lane] = next[0];
        if (lane + 32 < NEAR) to[lane + 32] = next[1];
        __syncwarp();
    };
    fetch(first - TAPS / 2);
    keep(near[0]);
    float under_way[TAPS][NUM];  // rows that are, by their number modulo 11: all of this is unrolled
    for (int base = 0; base < ROWS + TAPS - 1; base += TAPS) {
#pragma unroll
        for (int j = 0; j < TAPS; ++j) {
            const Raw* own = near[(base + j) % 2] + lane;
            fetch(first - TAPS / 2 + base + j + 1);
            float across[NUM] = {};
#pragma unroll
            for (int tap = 0; tap < TAPS; ++tap) {
                float values[NUM];
                expand(own[3 * tap], values);
#pragma unroll
                for (int i = 0; i < NUM; ++i) across[i] = fmaf(of.weights[tap], values[i], across[i]);
            }
#pragma unroll
            for (int k = 0; k < TAPS; ++k) {
                float* sums = under_way[(j - k + TAPS) % TAPS];
#pragma unroll
                for (int i = 0; i < NUM; ++i)
                    sums[i] = k == 0 ? of.weights[0] * across[i] : fmaf(of.weights[k], across[i], sums[i]);
            }
            keep(near[(base + j + 1) % 2]);  // which all lanes have read, in the row before
            const int row = first + base + j - (TAPS - 1);
            if (base + j >= TAPS - 1 && row < of.height && column < of.width) finish(row, under_way[(j + 1) % TAPS]);
        }
    }
}

template <bool BYTES>
DEVICE void measure(const Comparison& of) {
    const int blocks_across = (of.width + STRIP_THREADS - 1) / STRIP_THREADS;
    const int column = blockIdx.x % blocks_across * STRIP_THREADS + threadIdx.x;
    const int first = blockIdx.x / blocks_across * STRIP_ROWS;
    const size_t plane = static_cast<size_t>(of.width) * of.height;
    float apart = 0.0f, alike = 0.0f;
    const auto both = [&](int place) { return pair_at<BYTES>(of, place); };
    const auto products = [](const Pair& at, float* values) {
        values[0] = at.x, values[1] = at.y, values[2] = fmaf(at.x, at.x, at.y * at.y), values[3] = at.x * at.y;
    };
    blur<Pair, 4, STRIP_ROWS>(of, first, column, both, products, [&](int row, const float* blurred) {
        const float x = blurred[0], y = blurred[1], squares = x * x + y * y;
        const float a = 2 * x * y + of.C1, b = 2 * (blurred[3] - x * y) + of.C2;
        const float c = squares + of.C1, d = blurred[2] - squares + of.C2, one = 1.0f / (c * d);
        const float ssim = a * b * one, of_product = 2 * a * one, of_square = -ssim * c * one;
        const int place = row * of.width + column;
        of.slopes[place] = 2 * (y * b - x * ssim * d) * one - 2 * x * of_square - y * of_product;
        of.slopes[plane + place] = of_square;
        of.slopes[2 * plane + place] = of_product;
        const Pair own = pair_at<BYTES>(of, place);
        apart += fabsf(own.x - own.y);
        alike += ssim;
    });
    const float loss = warp_sum(of.l1_share * apart + of.ssim_share * alike);
    if (threadIdx.x % 32 == 0) of.sums[(blockIdx.x * STRIP_THREADS + threadIdx.x) / 32] = loss;
}

template <bool BYTES>
DEVICE void derive(const Comparison& of) {
    const int blocks_across = (of.width + STRIP_THREADS - 1) / STRIP_THREADS;
    const int column = blockIdx.x % blocks_across * STRIP_THREADS + threadIdx.x;
    const int first = blockIdx.x / blocks_across * SLOPE_ROWS;
    const size_t plane = static_cast<size_t>(of.width) * of.height;
    const float upstream = *of.upstream;
    const auto slopes = [&](int place) { return make_float3(of.slopes[place], of.slopes[plane + place], of.slopes[2 * plane + place]); };
    const auto same = [](const float3& at, float* values) { values[0] = at.x, values[1] = at.y, values[2] = at.z; };
    blur<float3, 3, SLOPE_ROWS>(of, first, column, slopes, same, [&](int row, const float* blurred) {
        const int place = row * of.width + column;
        const auto [x, y] = pair_at<BYTES>(of, place);
        const float sign = x > y ? 1.0f : x < y ? -1.0f : 0.0f;
        const float slope = blurred[0] + 2 * x * blurred[1] + y * blurred[2];
        const bool is_brighter = of.taken != nullptr && of.taken[place] >= of.clipped && x > y;
        const float counts = !counts_at(of, place) ? 0.0f : is_brighter ? of.clipped_counts : 1.0f;
        of.v_render[place] = upstream * counts * (of.l1_share * sign + of.ssim_share * slope);
    });
}
