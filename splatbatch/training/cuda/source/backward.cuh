// Backward, a warp per 8 x 4 pixels, twice turned: first every lane follows its pixel and writes down what each
// Gaussian gets from it, then every lane sums that up for a Gaussian of its own. So nothing is reduced across lanes.
// Only Gaussians that forward found to be seen by the warp are looked at, densely packed.
#pragma once
#include "gradients.cuh"

constexpr int BACKWARD_WARPS = 4;  // of a block
constexpr int GROUP = 16;          // Gaussians between two turns: two lanes sum for each
constexpr int WAITING = 2 * WARP;  // at most GROUP - 1 + 32 do
constexpr int ROWS = PART_HEIGHT * GROUP / WARP;  // of pixels, that a lane sums up

struct PixelSide {
    Staged staged[GROUP];
    float2 shares[GROUP][WARP + 1];  // dL/dsigma, weight; one more, so that a column lies in different banks
    float4 v[WARP];                  // gradients of the pixels' colours
    int waiting[WAITING];            // Gaussians to come, a ring
};

// Sums what the pixels of the rows first_row ... have for one Gaussian, a row at a time; dx, dy: of the warp's first pixel.
template <bool ABS>
DEVICE Sums sum_rows(const PixelSide& side, int own, int first_row, float dx, float dy, const Footprint& seen) {
    Sums sums;
#pragma unroll 1
    for (int row = 0; row < ROWS; ++row) {
        const float down = dy - (first_row + row);
        float one = 0.0f, first = 0.0f, second = 0.0f;  // times 1, and the column's number and its square
#pragma unroll
        for (int column = 0; column < PART_WIDTH; ++column) {
            const int pixel = (first_row + row) * PART_WIDTH + column;
            const float2 share = side.shares[own][pixel];
            const float4 v = side.v[pixel];
            one += share.x;
            first = fmaf(share.x, static_cast<float>(column), first);
            second = fmaf(share.x, static_cast<float>(column * column), second);
            sums.color[0] = fmaf(share.y, v.x, sums.color[0]);
            sums.color[1] = fmaf(share.y, v.y, sums.color[1]);
            sums.color[2] = fmaf(share.y, v.z, sums.color[2]);
            if (ABS) {
                const float across = dx - column;
                sums.abs_x += fabsf(share.x * fmaf(2.0f * seen.xx, across, seen.xy * down));
                sums.abs_y += fabsf(share.x * fmaf(2.0f * seen.yy, down, seen.xy * across));
            }
        }
        const float x = fmaf(one, dx, -first);
        sums.one += one;
        sums.x += x;
        sums.xx += fmaf(dx, x - first, second);
        sums.y = fmaf(one, down, sums.y);
        sums.xy = fmaf(x, down, sums.xy);
        sums.yy = fmaf(one * down, down, sums.yy);
    }
    if (ABS) sums.abs_x /= LOG2_E, sums.abs_y /= LOG2_E;
    return sums;
}

// Adds what the other lane of a Gaussian has.
template <bool ABS>
DEVICE void add_other_half(Sums& sums) {
    sums.one += __shfl_xor_sync(ALL, sums.one, GROUP);
    sums.x += __shfl_xor_sync(ALL, sums.x, GROUP);
    sums.y += __shfl_xor_sync(ALL, sums.y, GROUP);
    sums.xx += __shfl_xor_sync(ALL, sums.xx, GROUP);
    sums.xy += __shfl_xor_sync(ALL, sums.xy, GROUP);
    sums.yy += __shfl_xor_sync(ALL, sums.yy, GROUP);
    for (int c = 0; c < CHANNELS; ++c) sums.color[c] += __shfl_xor_sync(ALL, sums.color[c], GROUP);
    if (ABS) {
        sums.abs_x += __shfl_xor_sync(ALL, sums.abs_x, GROUP);
        sums.abs_y += __shfl_xor_sync(ALL, sums.abs_y, GROUP);
    }
}

// Blends the next Gaussians that wait, at most GROUP, and adds up their gradients.
template <bool ABS>
DEVICE void turn(const Scene& scene, const Gradients& to, const Place& at, PixelSide& side, Pixel& pixel,
                 const float* v, int head, int num, int lane) {
    const int own = lane % GROUP;
    int gaussian = 0;
    Footprint seen = {};
    if (own < num) {
        gaussian = side.waiting[(head + own) % WAITING];
        const float* row = scene.rows + static_cast<size_t>(ROW) * gaussian;
        const float4 second = load4(row + 4);
        seen = footprint(load4(row), second);
        if (lane < GROUP) stage(side.staged[own], seen, second.z, second.w, row[8], at);
    }
    __syncwarp();
    for (int next = 0; next < num; ++next) {
        const Share share = blend(pixel, side.staged[next], at, v);
        side.shares[next][lane] = make_float2(share.sigma, share.weight);
    }
    __syncwarp();
    const float dx = seen.x - (at.first_x + 0.5f), dy = seen.y - (at.first_y + 0.5f);
    Sums sums = sum_rows<ABS>(side, own, lane / GROUP * ROWS, dx, dy, seen);
    add_other_half<ABS>(sums);
    if (lane < GROUP && own < num) add_to_all<ABS>(seen, to.rows + static_cast<size_t>(ROW) * gaussian, sums);
    __syncwarp();  // all lanes have read what the next turn overwrites
}

template <bool ABS>
DEVICE void derive(const Scene& scene, const Gradients& given) {
    __shared__ PixelSide shared[BACKWARD_WARPS];
    const int lane = threadIdx.x % WARP, warp = blockIdx.x * BACKWARD_WARPS + threadIdx.x / WARP;
    if (warp >= scene.num_tiles * PARTS) return;
    const Place at = place_of(scene, warp, lane);
    if (!at.drawn) return;
    PixelSide& side = shared[threadIdx.x / WARP];

    Pixel pixel = {0.0f, 0.0f};
    float v[CHANNELS] = {};
    if (at.inside) {
        const size_t place = static_cast<size_t>(at.y) * scene.width + at.x;
        for (int c = 0; c < CHANNELS; ++c) v[c] = given.v_colors[place * CHANNELS + c];
        pixel = {1.0f, rest_at_first(given, place, v)};
    }
    side.v[lane] = make_float4(v[0], v[1], v[2], 0.0f);

    const int num_batches = given.num_batches[warp];
    int batch = 0, head = 0, num = 0;
    unsigned words = 0;  // of the next 32 batches, one per lane
    while (true) {
        for (; num < GROUP && batch < num_batches; ++batch) {
            if (batch % WARP == 0 && batch + lane < num_batches)
                words = given.contributors[(at.slot + batch + lane) * PARTS + at.part];
            const unsigned word = __shfl_sync(ALL, words, batch % WARP);
            if (word >> lane & 1u) {
                const int place = head + num + __popc(word & ((1u << lane) - 1u));
                side.waiting[place % WAITING] = scene.ids[at.start + batch * WARP + lane];
            }
            num += __popc(word);
        }
        if (num == 0) break;
        __syncwarp();
        const int now = min(num, GROUP);
        turn<ABS>(scene, given, at, side, pixel, v, head, now, lane);
        head += now, num -= now;
    }
}
