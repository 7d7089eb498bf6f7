// What one camera sees of a Gaussian as it is optimised: projection, opacity, colour. Conventions and thresholds are those
// of gsplat's fully_fused_projection; training/cpu/projection.py says the same, with its sources.
#pragma once
#include "gaussians.cuh"
#include "harmonics.cuh"
#include "vectors.cuh"

constexpr int PROJECTION_THREADS = 128;
constexpr float LOW_PASS_PX2 = 0.3f;      // added to every variance
constexpr float MOST_DEVIATIONS = 3.33f;  // that a Gaussian reaches
constexpr float BEYOND = 0.15f;           // of the image, how far out the projection's slope is taken
constexpr float LEAST_RATIO = 1e-12f;     // of determinants, so that the root's slope stays finite
constexpr float LEAST_ALPHA = 1.0f / 255.0f;

// Gaussians and the camera.
struct Scenery {
    const float* means;      // [N, 3]
    const float* quats;      // [N, 4], w first, of any length
    const float* scales;     // [N, 3], logarithms
    const float* opacities;  // [N], logits
    const float* sh0;        // [N, 3]
    const float* shN;        // [N, num_higher, 3]
    const float* viewmat;    // [4, 4], world to camera
    const float* K;          // [3, 3], px
    float near_plane, far_plane;
    int num;
    int num_higher;          // coefficients above degree 0 that there are,
    int num_used;            // and that count: 0, 3, 8 or 15
    int width, height;       // px
    int is_antialiased;
};

// What the camera sees. Where a Gaussian is not seen, only radii, counts and distances are written.
struct Projected {
    float* rows;       // [N, 12]: see ROW in gaussians.cuh
    int* radii;        // [N, 2], px; 0: not seen
    int* counts;       // [N], tiles that the box around it touches
    float* distances;  // [N], depth; infinite where it touches none
};

// What backward is given and makes.
struct Slopes {
    const float* v_rows;
    const int* radii;
    const float* rows;
    float* v_means;     // [N, 3], and so on: as Scenery
    float* v_quats;
    float* v_scales;
    float* v_logits;
    float* v_sh0;
    float* v_shN;
};

struct Camera {
    float3 right, down, ahead;  // rows of the rotation
    float3 shift, center;
    float fx, fy, cx, cy;
};

DEVICE Camera camera(const Scenery& of) {
    const float* m = of.viewmat;
    Camera seen;
    seen.right = load3(m), seen.down = load3(m + 4), seen.ahead = load3(m + 8);
    seen.shift = make_float3(m[3], m[7], m[11]);
    seen.center = times(-1.0f, plus(plus(times(m[3], seen.right), times(m[7], seen.down)), times(m[11], seen.ahead)));
    seen.fx = of.K[0], seen.fy = of.K[4], seen.cx = of.K[2], seen.cy = of.K[5];
    return seen;
}

// All that forward and backward both need of one Gaussian before its camera.
struct Seen {
    float3 place;            // before the camera
    float ray_x, ray_y;      // place / depth,
    float bent_x, bent_y;    // and no further out than where the slope is taken
    float3 slope_x, slope_y; // rows of the projection's slope, in the world
    Turn turn;
    Axes rotation;
    float3 sides;            // standard deviations
    float3 a, b;             // rows of slope * rotation * sides: the covariance is their products
    float xx, xy, yy;        // the widened covariance on the image
    float determinant, ratio;
};

DEVICE Seen see(const Scenery& of, const Camera& by, int n) {
    Seen seen;
    const float3 mean = load3(of.means + 3 * n), scales = load3(of.scales + 3 * n);
    seen.place = plus(make_float3(dot(by.right, mean), dot(by.down, mean), dot(by.ahead, mean)), by.shift);
    const float nearness = 1.0f / seen.place.z;
    seen.ray_x = seen.place.x * nearness, seen.ray_y = seen.place.y * nearness;
    const float over_x = BEYOND * of.width / by.fx, over_y = BEYOND * of.height / by.fy;
    seen.bent_x = clamped(seen.ray_x, -by.cx / by.fx - over_x, (of.width - by.cx) / by.fx + over_x);
    seen.bent_y = clamped(seen.ray_y, -by.cy / by.fy - over_y, (of.height - by.cy) / by.fy + over_y);
    seen.slope_x = times(by.fx * nearness, plus(by.right, times(-seen.bent_x, by.ahead)));
    seen.slope_y = times(by.fy * nearness, plus(by.down, times(-seen.bent_y, by.ahead)));
    seen.turn = turn_of(of.quats + 4 * n);
    seen.rotation = axes(seen.turn);
    seen.sides = make_float3(expf(scales.x), expf(scales.y), expf(scales.z));
    seen.a = make_float3(seen.sides.x * dot(seen.slope_x, seen.rotation.x), seen.sides.y * dot(seen.slope_x, seen.rotation.y),
                         seen.sides.z * dot(seen.slope_x, seen.rotation.z));
    seen.b = make_float3(seen.sides.x * dot(seen.slope_y, seen.rotation.x), seen.sides.y * dot(seen.slope_y, seen.rotation.y),
                         seen.sides.z * dot(seen.slope_y, seen.rotation.z));
    const float xx = dot(seen.a, seen.a), yy = dot(seen.b, seen.b);
    seen.xy = dot(seen.a, seen.b);
    seen.xx = xx + LOW_PASS_PX2, seen.yy = yy + LOW_PASS_PX2;
    seen.determinant = seen.xx * seen.yy - seen.xy * seen.xy;
    seen.ratio = (xx * yy - seen.xy * seen.xy) / seen.determinant;
    return seen;
}

// The direction from the camera, and one over its length before.
DEVICE float4 direction(const Camera& by, float3 mean) {
    const float3 far = plus(mean, times(-1.0f, by.center));
    const float shortening = 1.0f / sqrtf(fmaxf(dot(far, far), 1e-24f));
    return make_float4(far.x * shortening, far.y * shortening, far.z * shortening, shortening);
}

DEVICE float3 color_of(const Scenery& of, const Camera& by, int n) {
    const float4 to = direction(by, load3(of.means + 3 * n));
    float basis[MOST_HIGHER];
    harmonics(to.x, to.y, to.z, basis);
    const float* higher = of.shN + static_cast<size_t>(3 * of.num_higher) * n;
    float3 color = plus(make_float3(0.5f, 0.5f, 0.5f), times(SH_C0, load3(of.sh0 + 3 * n)));
#pragma unroll
    for (int k = 0; k < MOST_HIGHER; ++k)
        if (k < of.num_used) color = plus(color, times(basis[k], load3(higher + 3 * k)));
    return make_float3(fmaxf(color.x, 0.0f), fmaxf(color.y, 0.0f), fmaxf(color.z, 0.0f));
}

// How many tiles from one to the other edge of a box, of as many as there are.
DEVICE int tiles_between(float low, float high, int size) {
    const float num = static_cast<float>((size + TILE_PX - 1) / TILE_PX);
    return static_cast<int>(clamped(ceilf(high / TILE_PX), 0.0f, num)) -
           static_cast<int>(clamped(floorf(low / TILE_PX), 0.0f, num));
}
