// What backward needs at a pixel, and where the sums go.
//
// Let v be the gradient of a pixel's colour and u that of its alpha, T_i the transmittance before Gaussian i,
// w_i = alpha_i T_i. Raising alpha_i adds T_i (c_i . v) and dims everything behind:
//   dL/dalpha_i = T_i (c_i . v) - rest_i / (1 - alpha_i),   rest_i = colour . v - (1 - alpha) u - sum_{j <= i} w_j (c_j . v)
// so that two numbers go with a pixel from Gaussian to Gaussian: T and rest. With sigma the exponent,
// dL/dsigma_i = -alpha_i dL/dalpha_i (0 where alpha is clamped), and all of a Gaussian's gradients are sums over pixels
// of dL/dsigma times 1, dx, dy, dx^2, dx dy, dy^2, and of w times v.
#pragma once
#include "gaussians.cuh"

// What backward is given and makes.
struct Gradients {
    const float* colors;            // [H, W, 3], as drawn
    const float* alphas;            // [H, W]
    const float* v_colors;          // [H, W, 3]
    const float* v_alphas;          // [H, W], or null: none
    const unsigned* contributors;
    const int* num_batches;
    float* rows;                    // [N, 12]: see ROW
};

struct Pixel {
    float transmittance;  // at or below the least: at its end
    float rest;
};

// What blending one Gaussian gives at a pixel.
struct Share {
    float sigma;   // dL/dsigma
    float weight;
};

DEVICE Share blend(Pixel& pixel, const Staged& next, const Place& at, const float* v) {
    // no branches: some lane nearly always has something to do
    const float4 slopes = next.slopes, more = next.more;
    const float power = power_at(slopes, more, at.right, at.below), before = pixel.transmittance;
    const float opaque = power >= FAINTEST ? exp2_fast(power) : 0.0f, alpha = fminf(opaque, MOST_OPAQUE);
    const float after = fmaf(-alpha, before, before);
    const bool counts = after > LEAST_TRANSMITTANCE;  // once false, it stays so
    const float along = fmaf(next.blue, v[2], fmaf(more.w, v[1], more.z * v[0]));
    const float weight = counts ? alpha * before : 0.0f;
    pixel.rest = fmaf(-weight, along, pixel.rest);
    pixel.transmittance = after;
    const float v_alpha = fmaf(before, along, -pixel.rest * reciprocal(1.0f - alpha));
    return {counts && opaque <= MOST_OPAQUE ? -alpha * v_alpha : 0.0f, weight};
}

DEVICE float rest_at_first(const Gradients& given, size_t pixel, const float* v) {
    float rest = 0.0f;
    for (int c = 0; c < CHANNELS; ++c) rest = fmaf(given.colors[pixel * CHANNELS + c], v[c], rest);
    if (given.v_alphas != nullptr) rest = fmaf(given.alphas[pixel] - 1.0f, given.v_alphas[pixel], rest);
    return rest;
}

// Sums over pixels, of one Gaussian.
struct Sums {
    float one = 0, x = 0, y = 0, xx = 0, xy = 0, yy = 0;  // dL/dsigma times 1, dx, dy, dx^2, dx dy, dy^2
    float abs_x = 0, abs_y = 0;
    float color[CHANNELS] = {};
};

template <bool ABS>
DEVICE void add_to_all(const Footprint& seen, float* row, const Sums& sums) {
    constexpr float LN_2 = 1.0f / LOG2_E;
    const float by_x = LN_2 * fmaf(2.0f * seen.xx, sums.x, seen.xy * sums.y);
    const float by_y = LN_2 * fmaf(2.0f * seen.yy, sums.y, seen.xy * sums.x);
    const float v_opacity = -sums.one * exp2_fast(-seen.peak);
    add_four(row, by_x, by_y, 0.5f * sums.xx, sums.xy);
    add_four(row + 4, 0.5f * sums.yy, v_opacity, sums.color[0], sums.color[1]);
    if (ABS)
        add_four(row + 8, sums.color[2], 0.0f, sums.abs_x, sums.abs_y);
    else
        atomicAdd(row + 8, sums.color[2]);
}
