// From Gaussians as they are optimised to what one camera sees of them, in one kernel: projection, opacity, colour, and
// how many tiles each touches. And back, to the gradients of all six parameters.
#include "projection.cuh"

KERNEL(PROJECTION_THREADS) project(Scenery of, Projected to) {
    const int n = blockIdx.x * PROJECTION_THREADS + threadIdx.x;
    if (n >= of.num) return;
    const Camera by = camera(of);
    const Seen seen = see(of, by, n);
    const float ratio = fmaxf(seen.ratio, LEAST_RATIO);
    const float opacity = sigmoid(of.opacities[n]) * (of.is_antialiased ? sqrtf(ratio) : 1.0f);
    const float x = by.fx * seen.ray_x + by.cx, y = by.fy * seen.ray_y + by.cy;
    // written so that NaN is not seen
    const bool is_ahead = seen.place.z >= of.near_plane && seen.place.z <= of.far_plane;
    const bool is_ellipse = seen.determinant > 0.0f && opacity >= LEAST_ALPHA;
    const float deviations = fminf(sqrtf(2.0f * logf(fmaxf(opacity, LEAST_ALPHA) / LEAST_ALPHA)), MOST_DEVIATIONS);
    const float across = ceilf(deviations * sqrtf(seen.xx)), down = ceilf(deviations * sqrtf(seen.yy));
    const bool is_inside = x + across > 0.0f && x - across < of.width && y + down > 0.0f && y - down < of.height;
    const bool is_seen = is_ahead && is_ellipse && is_inside && across > 0.0f && down > 0.0f;
    const int touched =
        is_seen ? tiles_between(x - across, x + across, of.width) * tiles_between(y - down, y + down, of.height) : 0;
    to.radii[2 * n] = is_seen ? static_cast<int>(across) : 0;
    to.radii[2 * n + 1] = is_seen ? static_cast<int>(down) : 0;
    to.counts[n] = touched;
    to.distances[n] = touched > 0 ? seen.place.z : INFINITY;
    if (!is_seen) return;
    const float one = 1.0f / seen.determinant;
    const float3 color = color_of(of, by, n);
    float* row = to.rows + static_cast<size_t>(ROW) * n;
    store4(row, x, y, one * seen.yy, -one * seen.xy);
    store4(row + 4, one * seen.xx, opacity, color.x, color.y);
    store4(row + 8, color.z, 0.0f, 0.0f, 0.0f);
}

// The gradients of the higher harmonics are products of a basis and a colour's gradient: kept here by each lane, and
// written by the whole warp, neighbours side by side.
struct Spread {
    float basis[32][MOST_HIGHER + 2];  // an odd stride: a column lies in different banks
    float color[32][3];
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

// The gradients of one Gaussian but for its colour: written, except the mean's, which is returned.
DEVICE float3 shape_slope(const Scenery& of, const Camera& by, const Slopes& to, int n) {
    const Seen seen = see(of, by, n);
    const float* v_row = to.v_rows + static_cast<size_t>(ROW) * n;
    const float4 v_first = load4(v_row), v_second = load4(v_row + 4);
    const float own = sigmoid(of.opacities[n]), v_opacity = v_second.y;
    const float root = of.is_antialiased ? sqrtf(fmaxf(seen.ratio, LEAST_RATIO)) : 1.0f;
    const bool ratio_counts = of.is_antialiased && seen.ratio > LEAST_RATIO;
    to.v_logits[n] = v_opacity * root * own * (1.0f - own);
    const float3 v_conic = make_float3(v_first.z, v_first.w, v_second.x);
    const float3 v = covariance_slope(seen, v_conic, ratio_counts ? v_opacity * own * 0.5f / root : 0.0f);

    const float3 v_a = plus(times(2 * v.x, seen.a), times(v.y, seen.b));
    const float3 v_b = plus(times(2 * v.z, seen.b), times(v.y, seen.a));
    store3(to.v_scales + 3 * n, make_float3(v_a.x * seen.a.x + v_b.x * seen.b.x, v_a.y * seen.a.y + v_b.y * seen.b.y,
                                            v_a.z * seen.a.z + v_b.z * seen.b.z));
    const float3 sa = make_float3(v_a.x * seen.sides.x, v_a.y * seen.sides.y, v_a.z * seen.sides.z);
    const float3 sb = make_float3(v_b.x * seen.sides.x, v_b.y * seen.sides.y, v_b.z * seen.sides.z);
    const float4 v_quat = turn_slope(seen.turn, {plus(times(sa.x, seen.slope_x), times(sb.x, seen.slope_y)),
                                                 plus(times(sa.y, seen.slope_x), times(sb.y, seen.slope_y)),
                                                 plus(times(sa.z, seen.slope_x), times(sb.z, seen.slope_y))});
    to.v_quats[4 * n] = v_quat.x, to.v_quats[4 * n + 1] = v_quat.y;
    to.v_quats[4 * n + 2] = v_quat.z, to.v_quats[4 * n + 3] = v_quat.w;

    const Axes& axis = seen.rotation;
    const float3 v_slope_x = plus(plus(times(sa.x, axis.x), times(sa.y, axis.y)), times(sa.z, axis.z));
    const float3 v_slope_y = plus(plus(times(sb.x, axis.x), times(sb.y, axis.y)), times(sb.z, axis.z));
    const float nearness = 1.0f / seen.place.z;
    float v_ray_x = by.fx * v_first.x, v_ray_y = by.fy * v_first.y;
    if (seen.bent_x == seen.ray_x) v_ray_x -= by.fx * nearness * dot(v_slope_x, by.ahead);
    if (seen.bent_y == seen.ray_y) v_ray_y -= by.fy * nearness * dot(v_slope_y, by.ahead);
    const float v_depth = -nearness * (dot(v_slope_x, seen.slope_x) + dot(v_slope_y, seen.slope_y) +
                                       v_ray_x * seen.ray_x + v_ray_y * seen.ray_y);
    return plus(plus(times(v_ray_x * nearness, by.right), times(v_ray_y * nearness, by.down)), times(v_depth, by.ahead));
}

// The gradient of the mean by its colour; what the harmonics get is noted for the warp.
DEVICE float3 color_slope(const Scenery& of, const Camera& by, const Slopes& to, Spread& spread, int lane, int n) {
    const size_t place = static_cast<size_t>(ROW) * n + 6;
    const float3 v = load3(to.v_rows + place), color = load3(to.rows + place);
    const float3 v_color = make_float3(color.x > 0 ? v.x : 0.0f, color.y > 0 ? v.y : 0.0f, color.z > 0 ? v.z : 0.0f);
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

KERNEL(PROJECTION_THREADS) project_backward(Scenery of, Slopes to) {
    __shared__ Spread shared[PROJECTION_THREADS / 32];
    const int lane = threadIdx.x % 32, n = blockIdx.x * PROJECTION_THREADS + threadIdx.x;
    Spread& spread = shared[threadIdx.x / 32];
    const float3 none = make_float3(0.0f, 0.0f, 0.0f);
    store3(spread.color[lane], none);
    for (int k = 0; k < MOST_HIGHER; ++k) spread.basis[lane][k] = 0.0f;
    const bool is_seen = n < of.num && to.radii[2 * n] > 0 && to.radii[2 * n + 1] > 0;
    if (is_seen) {
        const Camera by = camera(of);
        store3(to.v_means + 3 * n, plus(shape_slope(of, by, to, n), color_slope(of, by, to, spread, lane, n)));
    } else if (n < of.num) {
        store3(to.v_means + 3 * n, none);
        store3(to.v_scales + 3 * n, none);
        for (int i = 0; i < 4; ++i) to.v_quats[4 * n + i] = 0.0f;
        to.v_logits[n] = 0.0f;
    }
    if (n < of.num) store3(to.v_sh0 + 3 * n, times(SH_C0, load3(spread.color[lane])));
    __syncwarp();
    const int first = n - lane, row = 3 * of.num_higher, num = max(0, min(32, of.num - first)) * row;
    for (int i = lane; i < num; i += 32) {
        const int whose = i / row, k = i % row / 3;
        const float basis = k < of.num_used ? spread.basis[whose][k] : 0.0f;
        to.v_shN[static_cast<size_t>(row) * first + i] = basis * spread.color[whose][i % 3];
    }
}
