// Back from what a camera sees to the gradients of all six parameters, in one kernel.
#pragma once
#include "projection.cuh"

// The gradients of the higher harmonics are products of a basis and a colour's gradient: kept here by each lane, and
// written by the whole warp, neighbours side by side.
struct Spread {
    float basis[32][MOST_HIGHER + 2];  // an odd stride: a column lies in different banks
    float color[32][3];
};

// Adam's state of the parameters, in the order means, quats, scales, logits, sh0, shN; see adam.py.
constexpr int NUM_PARAMETERS = 6;
struct Learning {
    float* values[NUM_PARAMETERS];   // the parameters themselves
    float* means[NUM_PARAMETERS];    // running averages of gradients,
    float* squares[NUM_PARAMETERS];  // and of their squares
    const float* rates[NUM_PARAMETERS];
    const float* steps[NUM_PARAMETERS];  // how many steps there have been, this one included
    float beta1, beta2, epsilon;
    int skips_unseen;  // whether the higher harmonics of what is not seen stay as they are
};

// What one parameter learns with in this step: both averages start at 0 and are too small by 1 - beta^steps.
struct Pace {
    float rate, widening;
};

DEVICE Pace pace(const Learning& by, int which) {
    const float steps = *by.steps[which];
    const float correction1 = 1.0f - expf(steps * logf(by.beta1)), correction2 = 1.0f - expf(steps * logf(by.beta2));
    return {*by.rates[which] / correction1, 1.0f / correction2};
}

DEVICE void learn(const Learning& by, int which, const Pace& at, size_t place, float gradient) {
    const float mean = fmaf(by.beta1, by.means[which][place], (1.0f - by.beta1) * gradient);
    const float square = fmaf(by.beta2, by.squares[which][place], (1.0f - by.beta2) * gradient * gradient);
    by.means[which][place] = mean;
    by.squares[which][place] = square;
    by.values[which][place] -= at.rate * mean / (sqrtf(square * at.widening) + by.epsilon);
}

// Where a parameter's gradient goes: to memory, or into the parameter itself.
template <bool LEARNS>
DEVICE void put(float* to, const Learning& by, int which, const Pace& at, size_t place, float gradient) {
    if (LEARNS)
        learn(by, which, at, place, gradient);
    else
        to[place] = gradient;
}

template <bool LEARNS>
DEVICE void put3(float* to, const Learning& by, int which, size_t n, float3 gradient) {
    const Pace at = LEARNS ? pace(by, which) : Pace{0.0f, 0.0f};
    put<LEARNS>(to, by, which, at, 3 * n, gradient.x);
    put<LEARNS>(to, by, which, at, 3 * n + 1, gradient.y);
    put<LEARNS>(to, by, which, at, 3 * n + 2, gradient.z);
}

// The gradients of one Gaussian but for its colour.
struct ShapeSlope {
    float3 mean, scale;
    float4 quat;
    float logit;
};

// From the gradients of conic and opacity to those of the covariance on the image, xx, xy, yy.
DEVICE float3 covariance_slope(const Seen& seen, float3 v_conic, float v_ratio) {
    const float one = 1.0f / seen.determinant;
    const float a = seen.yy * one, b = -seen.xy * one, c = seen.xx * one;
    float3 v = make_float3(-(a * a * v_conic.x + a * b * v_conic.y + b * b * v_conic.z),
                           -(2 * a * b * v_conic.x + (a * c + b * b) * v_conic.y + 2 * b * c * v_conic.z),
                           -(b * b * v_conic.x + b * c * v_conic.y + c * c * v_conic.z));
    // ratio = (determinant without the low pass) / determinant
    v.x += v_ratio * one * (seen.yy - LOW_PASS_PX2 - seen.ratio * seen.yy);
    v.y += v_ratio * one * 2 * seen.xy * (seen.ratio - 1);
    v.z += v_ratio * one * (seen.xx - LOW_PASS_PX2 - seen.ratio * seen.xx);
    return v;
}

DEVICE ShapeSlope shape_slope(const Scenery& of, const Camera& by, const Slopes& to, int n) {
    ShapeSlope slope;
    const Seen seen = see(of, by, n);
    const float own = sigmoid(of.opacities[n]), v_opacity = to.v_opacities[static_cast<size_t>(to.opacities_stride) * n];
    const float root = of.is_antialiased ? sqrtf(fmaxf(seen.ratio, LEAST_RATIO)) : 1.0f;
    const bool ratio_counts = of.is_antialiased && seen.ratio > LEAST_RATIO;
    slope.logit = v_opacity * root * own * (1.0f - own);
    const float3 v_conic = load3(to.v_conics + static_cast<size_t>(to.conics_stride) * n);
    const float3 v = covariance_slope(seen, v_conic, ratio_counts ? v_opacity * own * 0.5f / root : 0.0f);

    const float3 v_a = plus(times(2 * v.x, seen.a), times(v.y, seen.b));
    const float3 v_b = plus(times(2 * v.z, seen.b), times(v.y, seen.a));
    slope.scale = make_float3(v_a.x * seen.a.x + v_b.x * seen.b.x, v_a.y * seen.a.y + v_b.y * seen.b.y,
                              v_a.z * seen.a.z + v_b.z * seen.b.z);
    const float3 sa = make_float3(v_a.x * seen.sides.x, v_a.y * seen.sides.y, v_a.z * seen.sides.z);
    const float3 sb = make_float3(v_b.x * seen.sides.x, v_b.y * seen.sides.y, v_b.z * seen.sides.z);
    slope.quat = turn_slope(seen.turn, {plus(times(sa.x, seen.slope_x), times(sb.x, seen.slope_y)),
                                        plus(times(sa.y, seen.slope_x), times(sb.y, seen.slope_y)),
                                        plus(times(sa.z, seen.slope_x), times(sb.z, seen.slope_y))});

    const Axes& axis = seen.rotation;
    const float3 v_slope_x = plus(plus(times(sa.x, axis.x), times(sa.y, axis.y)), times(sa.z, axis.z));
    const float3 v_slope_y = plus(plus(times(sb.x, axis.x), times(sb.y, axis.y)), times(sb.z, axis.z));
    const float nearness = 1.0f / seen.place.z;
    const float* v_mean2d = to.v_means2d + static_cast<size_t>(to.means2d_stride) * n;
    float v_ray_x = by.fx * v_mean2d[0], v_ray_y = by.fy * v_mean2d[1];
    if (seen.bent_x == seen.ray_x) v_ray_x -= by.fx * nearness * dot(v_slope_x, by.ahead);
    if (seen.bent_y == seen.ray_y) v_ray_y -= by.fy * nearness * dot(v_slope_y, by.ahead);
    const float v_depth = -nearness * (dot(v_slope_x, seen.slope_x) + dot(v_slope_y, seen.slope_y) +
                                       v_ray_x * seen.ray_x + v_ray_y * seen.ray_y);
    slope.mean =
        plus(plus(times(v_ray_x * nearness, by.right), times(v_ray_y * nearness, by.down)), times(v_depth, by.ahead));
    return slope;
}

// The gradient of the mean by its colour; what the harmonics get is noted for the warp.
DEVICE float3 color_slope(const Scenery& of, const Camera& by, const Slopes& to, Spread& spread, int lane, int n) {
    const float* v = to.v_colors + static_cast<size_t>(to.colors_stride) * n;
    const float3 color = load3(to.colors + 3 * n);
    const float3 v_color = make_float3(color.x > 0 ? v[0] : 0.0f, color.y > 0 ? v[1] : 0.0f, color.z > 0 ? v[2] : 0.0f);
    const float4 along = direction(by, load3(of.means + 3 * n));
    store3(spread.color[lane], v_color);
    harmonics(along.x, along.y, along.z, spread.basis[lane]);
    const float* higher = of.shN + static_cast<size_t>(3 * of.num_higher) * n;
    float weights[MOST_HIGHER] = {};
#pragma unroll
    for (int k = 0; k < MOST_HIGHER; ++k)
        if (k < of.num_used) weights[k] = dot(v_color, load3(higher + 3 * k));
    const float3 slope = harmonics_slope(along.x, along.y, along.z, weights, of.num_used);
    // the length does not matter, so nothing pulls along the direction itself
    const float3 unit = make_float3(along.x, along.y, along.z);
    return times(along.w, plus(slope, times(-dot(slope, unit), unit)));
}

template <bool LEARNS>
DEVICE void put_all(const Slopes& to, const Learning& by, size_t n, const ShapeSlope& slope, float3 v_sh0) {
    put3<LEARNS>(to.v_means, by, 0, n, slope.mean);
    const Pace turning = LEARNS ? pace(by, 1) : Pace{0.0f, 0.0f}, fading = LEARNS ? pace(by, 3) : Pace{0.0f, 0.0f};
    put<LEARNS>(to.v_quats, by, 1, turning, 4 * n, slope.quat.x);
    put<LEARNS>(to.v_quats, by, 1, turning, 4 * n + 1, slope.quat.y);
    put<LEARNS>(to.v_quats, by, 1, turning, 4 * n + 2, slope.quat.z);
    put<LEARNS>(to.v_quats, by, 1, turning, 4 * n + 3, slope.quat.w);
    put3<LEARNS>(to.v_scales, by, 2, n, slope.scale);
    put<LEARNS>(to.v_logits, by, 3, fading, n, slope.logit);
    put3<LEARNS>(to.v_sh0, by, 4, n, v_sh0);
}

// LEARNS: the gradients are not written; each goes into its parameter by Adam's rule, whether its Gaussian is seen or not.
template <bool LEARNS>
KERNEL(PROJECTION_THREADS) project_backward_kernel(Scenery of, Slopes to, Learning learning) {
    __shared__ Spread shared[PROJECTION_THREADS / 32];
    const int lane = threadIdx.x % 32, n = blockIdx.x * PROJECTION_THREADS + threadIdx.x;
    Spread& spread = shared[threadIdx.x / 32];
    const float3 none = make_float3(0.0f, 0.0f, 0.0f);
    store3(spread.color[lane], none);
    for (int k = 0; k < MOST_HIGHER; ++k) spread.basis[lane][k] = 0.0f;
    const bool is_seen = n < of.num && to.radii[2 * n] > 0 && to.radii[2 * n + 1] > 0;
    ShapeSlope slope = {none, none, make_float4(0.0f, 0.0f, 0.0f, 0.0f), 0.0f};
    if (is_seen) {
        const Camera by = camera(of);
        slope = shape_slope(of, by, to, n);
        slope.mean = plus(slope.mean, color_slope(of, by, to, spread, lane, n));
    }
    if (n < of.num) put_all<LEARNS>(to, learning, n, slope, times(SH_C0, load3(spread.color[lane])));
    const unsigned which_seen = __ballot_sync(0xffffffffu, is_seen);
    __syncwarp();  // all have read their harmonics and noted what these get
    const int first = n - lane, row = 3 * of.num_higher, num = max(0, min(32, of.num - first)) * row;
    const Pace at = LEARNS ? pace(learning, 5) : Pace{0.0f, 0.0f};
    for (int i = lane; i < num; i += 32) {
        const int whose = i / row, k = i % row / 3;
        if (LEARNS && learning.skips_unseen && !(which_seen >> whose & 1u)) continue;
        const float basis = k < of.num_used ? spread.basis[whose][k] : 0.0f;
        const float gradient = basis * spread.color[whose][i % 3];
        put<LEARNS>(to.v_shN, learning, 5, at, static_cast<size_t>(row) * first + i, gradient);
    }
}
