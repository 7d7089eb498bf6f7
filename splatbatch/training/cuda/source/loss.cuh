// The loss of 3DGS, (1 - lambda) L1 + lambda (1 - SSIM), in one kernel, and its derivative in another: with
// the letters of loss.py. Images are [H, W, 3]: rows of 3 W values, in which a neighbour is three values away.
//
// A thread goes down a column of values. In each row it blurs across, eleven values and their products, and adds that to
// the eleven rows below and above that are under way; the one that is complete then is finished on the spot. So nothing
// that is blurred across goes to memory: a step takes 727 us instead of 760 with four kernels in Triton that keep it
// there, and 20 MiB less (p1 of caliterra, 200,000 Gaussians, 995 x 748, H200).
#pragma once
#include "device.cuh"

constexpr int TAPS = 11;
constexpr int STRIP_THREADS = 128;  // columns of values
constexpr int STRIP_ROWS = 23;      // so that, with ten more, they are three times eleven

struct Comparison {
    const float* render;         // [H, W, 3]
    const void* photo;           // [H, W, 3], uint8 or float
    const unsigned char* taken;  // [H, W, 3], what an evened photo was made from; null: it was not
    float* slopes;               // [3, H, W, 3]: SSIM's in the blurs of x, x^2 and x y
    float* sums;                 // [2, warps]: of |x - y| and of SSIM
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

// Blurs NUM values across, at a row: `at` gives them for a place.
template <int NUM, typename At>
DEVICE void blur_across(const Comparison& of, int row, int column, float* blurred, At at) {
#pragma unroll
    for (int i = 0; i < NUM; ++i) blurred[i] = 0.0f;
    if (row < 0 || row >= of.height) return;
#pragma unroll
    for (int tap = 0; tap < TAPS; ++tap) {
        const int near = column + 3 * (tap - TAPS / 2);
        if (near < 0 || near >= of.width) continue;
        float values[NUM];
        at(row * of.width + near, values);
#pragma unroll
        for (int i = 0; i < NUM; ++i) blurred[i] = fmaf(of.weights[tap], values[i], blurred[i]);
    }
}

// Blurs NUM values in both directions, at STRIP_ROWS rows from `first`, and hands each row's to `finish`.
template <int NUM, typename At, typename Finish>
DEVICE void blur(const Comparison& of, int first, int column, At at, Finish finish) {
    float under_way[TAPS][NUM];  // rows that are, by their number modulo 11: all of this is unrolled
    for (int base = 0; base < STRIP_ROWS + TAPS - 1; base += TAPS) {
#pragma unroll
        for (int j = 0; j < TAPS; ++j) {
            float across[NUM];
            blur_across<NUM>(of, first - TAPS / 2 + base + j, column, across, at);
#pragma unroll
            for (int k = 0; k < TAPS; ++k) {
                float* sums = under_way[(j - k + TAPS) % TAPS];
#pragma unroll
                for (int i = 0; i < NUM; ++i)
                    sums[i] = k == 0 ? of.weights[0] * across[i] : fmaf(of.weights[k], across[i], sums[i]);
            }
            const int row = first + base + j - (TAPS - 1);
            if (base + j >= TAPS - 1 && row < of.height) finish(row, under_way[(j + 1) % TAPS]);
        }
    }
}

DEVICE float warp_sum(float value) {
    for (int by = 16; by != 0; by /= 2) value += __shfl_xor_sync(0xffffffffu, value, by);
    return value;
}

template <bool BYTES>
DEVICE void measure(const Comparison& of) {
    const int blocks_across = (of.width + STRIP_THREADS - 1) / STRIP_THREADS;
    const int column = blockIdx.x % blocks_across * STRIP_THREADS + threadIdx.x;
    const int first = blockIdx.x / blocks_across * STRIP_ROWS;
    const size_t plane = static_cast<size_t>(of.width) * of.height;
    float apart = 0.0f, alike = 0.0f;
    if (column < of.width) {
        const auto both = [&](int place, float* values) {
            const float x = of.render[place], y = photo_at<BYTES>(of, place);
            values[0] = x, values[1] = y, values[2] = x * x, values[3] = y * y, values[4] = x * y;
        };
        blur<5>(of, first, column, both, [&](int row, const float* blurred) {
            const float x = blurred[0], y = blurred[1];
            const float a = 2 * x * y + of.C1, b = 2 * (blurred[4] - x * y) + of.C2, c = x * x + y * y + of.C1;
            const float d = blurred[2] - x * x + blurred[3] - y * y + of.C2;
            const float ssim = a * b / (c * d), of_product = 2 * a / (c * d), of_square = -ssim / d;
            const int place = row * of.width + column;
            of.slopes[place] = 2 * y * b / (c * d) - 2 * x * ssim / c - 2 * x * of_square - y * of_product;
            of.slopes[plane + place] = of_square;
            of.slopes[2 * plane + place] = of_product;
            apart += fabsf(of.render[place] - photo_at<BYTES>(of, place));
            alike += ssim;
        });
    }
    apart = warp_sum(apart), alike = warp_sum(alike);
    if (threadIdx.x % 32 == 0) {
        const int strips = (of.height + STRIP_ROWS - 1) / STRIP_ROWS, per_block = STRIP_THREADS / 32;
        const int warp = blockIdx.x * per_block + threadIdx.x / 32;
        of.sums[warp] = apart;
        of.sums[blocks_across * strips * per_block + warp] = alike;
    }
}

template <bool BYTES>
DEVICE void derive(const Comparison& of) {
    const int blocks_across = (of.width + STRIP_THREADS - 1) / STRIP_THREADS;
    const int column = blockIdx.x % blocks_across * STRIP_THREADS + threadIdx.x;
    const int first = blockIdx.x / blocks_across * STRIP_ROWS;
    const size_t plane = static_cast<size_t>(of.width) * of.height;
    if (column >= of.width) return;
    const float upstream = *of.upstream;
    const auto slopes = [&](int place, float* values) {
        for (int i = 0; i < 3; ++i) values[i] = of.slopes[i * plane + place];
    };
    blur<3>(of, first, column, slopes, [&](int row, const float* blurred) {
        const int place = row * of.width + column;
        const float x = of.render[place], y = photo_at<BYTES>(of, place);
        const float sign = x > y ? 1.0f : x < y ? -1.0f : 0.0f;
        const float slope = blurred[0] + 2 * x * blurred[1] + y * blurred[2];
        const bool is_brighter = of.taken != nullptr && of.taken[place] >= of.clipped && x > y;
        const float counts = is_brighter ? of.clipped_counts : 1.0f;
        of.v_render[place] = upstream * counts * (of.l1_share * sign + of.ssim_share * slope);
    });
}
