// What backward needs at a pixel, and where the sums go.
//
// Let v be the gradient of a pixel's colour and u that of its alpha, T_i the transmittance before Gaussian i,
// w_i = alpha_i T_i. Raising alpha_i adds T_i (c_i . v) and dims everything behind, the background included:
//   dL/dalpha_i = T_i (c_i . v) - rest_i / (1 - alpha_i),   rest_i = colour . v - (1 - alpha) u - sum_{j <= i} w_j (c_j . v)
// so that two numbers go with a pixel from Gaussian to Gaussian: T and rest. With sigma the exponent,
// dL/dsigma_i = -alpha_i dL/dalpha_i (0 where alpha is clamped), and all of a Gaussian's gradients are sums over pixels
// of dL/dsigma times 1, dx, dy, dx^2, dx dy, dy^2, and of w times v.
#pragma once
#include "gaussians.cuh"

// What backward is given and makes.
struct Gradients {
    const float* colors;        // [H, W, C], as drawn
    const float* alphas;        // [H, W]
    const float* v_colors;      // [H, W, C]
    const float* v_alphas;      // [H, W], or null: none
    const unsigned* contributors;
    const int* num_batches;
    const float* snapshots;
    const int* tiles;
    float* v_means2d;           // [N, 2]; where PACKED, [N, 12] of all of a Gaussian's, and the others are not used
    float* v_conics;            // [N, 3]
    float* v_features;          // [N, C], of the colours
    float* v_opacities;         // [N]
    float* v_means2d_abs;       // [N, 2]: sums of absolute values, after AbsGS; null: not wanted
};

#ifndef PACKED
#define PACKED 0  // 1: all gradients of a Gaussian side by side, in one or two requests to memory
#endif
constexpr int PACKED_FLOATS = 12;  // means2d 2, conics 3, opacity 1, colours up to 4, absolute values 2

struct Pixel {
    float transmittance;  // at or below the least: at its end
    float rest;
};

// What blending one Gaussian gives at a pixel.
struct Share {
    float sigma;   // dL/dsigma
    float weight;
};

template <int C>
DEVICE Share blend(Pixel& pixel, const Look& seen, const float* color, const float* v) {
    // no branches: some lane nearly always has something to do
    const float alpha = seen.visible ? seen.alpha : 0.0f, before = pixel.transmittance;
    const float after = fmaf(-alpha, before, before);
    const bool counts = after > LEAST_TRANSMITTANCE;  // once false, it stays so
    float along = 0.0f;
    for (int c = 0; c < C; ++c) along = fmaf(color[c], v[c], along);
    const float weight = counts ? alpha * before : 0.0f;
    pixel.rest = fmaf(-weight, along, pixel.rest);
    pixel.transmittance = after;
    const float v_alpha = fmaf(before, along, -pixel.rest * reciprocal(1.0f - alpha));
    return {counts && !seen.clamped ? -alpha * v_alpha : 0.0f, weight};
}

template <int C>
DEVICE float rest_at_first(const Gradients& given, size_t pixel, const float* v) {
    float rest = 0.0f;
    for (int c = 0; c < C; ++c) rest = fmaf(given.colors[pixel * C + c], v[c], rest);
    if (given.v_alphas != nullptr) rest = fmaf(given.alphas[pixel] - 1.0f, given.v_alphas[pixel], rest);
    return rest;
}

// Sums over pixels, of one Gaussian.
template <int C>
struct Sums {
    float one = 0, x = 0, y = 0, xx = 0, xy = 0, yy = 0;  // dL/dsigma times 1, dx, dy, dx^2, dx dy, dy^2
    float abs_x = 0, abs_y = 0;
    float color[C] = {};
};

template <int C>
DEVICE void add_to_all(const Scene& scene, const Gradients& to, int gaussian, const Sums<C>& sums) {
    const float* conic = scene.conics + 3 * gaussian;
    const float by_x = fmaf(conic[0], sums.x, conic[1] * sums.y), by_y = fmaf(conic[1], sums.x, conic[2] * sums.y);
    const float v_opacity = -sums.one * reciprocal(scene.opacities[gaussian]);
#if PACKED
    float* all = to.v_means2d + static_cast<size_t>(PACKED_FLOATS) * gaussian;
    add_four(all, by_x, by_y, 0.5f * sums.xx, sums.xy);
    add_four(all + 4, 0.5f * sums.yy, v_opacity, sums.color[0], C > 1 ? sums.color[1 % C] : 0.0f);
    if (to.v_means2d_abs != nullptr || C > 3)
        add_four(all + 8, C > 2 ? sums.color[2 % C] : 0.0f, C > 3 ? sums.color[3 % C] : 0.0f, sums.abs_x, sums.abs_y);
    else if (C > 2)
        atomicAdd(all + 8, sums.color[2 % C]);
#else
    atomicAdd(to.v_means2d + 2 * gaussian, by_x);
    atomicAdd(to.v_means2d + 2 * gaussian + 1, by_y);
    atomicAdd(to.v_conics + 3 * gaussian, 0.5f * sums.xx);
    atomicAdd(to.v_conics + 3 * gaussian + 1, sums.xy);
    atomicAdd(to.v_conics + 3 * gaussian + 2, 0.5f * sums.yy);
    atomicAdd(to.v_opacities + gaussian, v_opacity);
    for (int c = 0; c < C; ++c) atomicAdd(to.v_features + C * gaussian + c, sums.color[c]);
    if (to.v_means2d_abs != nullptr) {
        atomicAdd(to.v_means2d_abs + 2 * gaussian, sums.abs_x);
        atomicAdd(to.v_means2d_abs + 2 * gaussian + 1, sums.abs_y);
    }
#endif
}
