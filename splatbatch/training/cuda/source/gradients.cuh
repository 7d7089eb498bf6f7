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

// All gradients of a Gaussian lie side by side: added in three requests to memory instead of nine, which takes 171 us
// instead of 268 (p1 of caliterra with 200,000 Gaussians, H200).
constexpr int ROW = 12;  // means2d 2, conics 3, opacity 1, colours 3, none, sums of absolute means2d (after AbsGS) 2

struct Pixel {
    float transmittance;  // at or below the least: at its end
    float rest;
};

// What blending one Gaussian gives at a pixel.
struct Share {
    float sigma;   // dL/dsigma
    float weight;
};

DEVICE Share blend(Pixel& pixel, const Look& seen, const float* color, const float* v) {
    // no branches: some lane nearly always has something to do
    const float alpha = seen.visible ? seen.alpha : 0.0f, before = pixel.transmittance;
    const float after = fmaf(-alpha, before, before);
    const bool counts = after > LEAST_TRANSMITTANCE;  // once false, it stays so
    float along = 0.0f;
    for (int c = 0; c < CHANNELS; ++c) along = fmaf(color[c], v[c], along);
    const float weight = counts ? alpha * before : 0.0f;
    pixel.rest = fmaf(-weight, along, pixel.rest);
    pixel.transmittance = after;
    const float v_alpha = fmaf(before, along, -pixel.rest * reciprocal(1.0f - alpha));
    return {counts && !seen.clamped ? -alpha * v_alpha : 0.0f, weight};
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
DEVICE void add_to_all(const Scene& scene, const Gradients& to, int gaussian, const Sums& sums) {
    const float* conic = scene.conics + 3 * gaussian;
    const float by_x = fmaf(conic[0], sums.x, conic[1] * sums.y), by_y = fmaf(conic[1], sums.x, conic[2] * sums.y);
    const float v_opacity = -sums.one * reciprocal(scene.opacities[gaussian]);
    float* row = to.rows + static_cast<size_t>(ROW) * gaussian;
    add_four(row, by_x, by_y, 0.5f * sums.xx, sums.xy);
    add_four(row + 4, 0.5f * sums.yy, v_opacity, sums.color[0], sums.color[1]);
    if (ABS)
        add_four(row + 8, sums.color[2], 0.0f, sums.abs_x, sums.abs_y);
    else
        atomicAdd(row + 8, sums.color[2]);
}
