// Vectors of three, sums over a warp, and rotations by quaternions.
#pragma once
#include "device.cuh"

DEVICE float dot(float3 a, float3 b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
DEVICE float3 times(float s, float3 a) { return make_float3(s * a.x, s * a.y, s * a.z); }
DEVICE float3 plus(float3 a, float3 b) { return make_float3(a.x + b.x, a.y + b.y, a.z + b.z); }
DEVICE float3 load3(const float* from) { return make_float3(from[0], from[1], from[2]); }
DEVICE void store3(float* to, float3 a) { to[0] = a.x, to[1] = a.y, to[2] = a.z; }
DEVICE float clamped(float x, float least, float most) { return fminf(fmaxf(x, least), most); }
DEVICE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

DEVICE float warp_sum(float value) {
    for (int by = 16; by != 0; by /= 2) value += __shfl_xor_sync(0xffffffffu, value, by);
    return value;
}

// A rotation's columns, from a quaternion of any length.
struct Axes {
    float3 x, y, z;
};
struct Turn {
    float w, x, y, z;  // of length 1
    float shortening;
};

DEVICE Turn turn_of(const float* quat) {
    const float length = sqrtf(quat[0] * quat[0] + quat[1] * quat[1] + quat[2] * quat[2] + quat[3] * quat[3]);
    const float shortening = 1.0f / fmaxf(length, 1e-12f);
    return {quat[0] * shortening, quat[1] * shortening, quat[2] * shortening, quat[3] * shortening, shortening};
}

DEVICE Axes axes(const Turn& q) {
    return {make_float3(1 - 2 * (q.y * q.y + q.z * q.z), 2 * (q.x * q.y + q.w * q.z), 2 * (q.x * q.z - q.w * q.y)),
            make_float3(2 * (q.x * q.y - q.w * q.z), 1 - 2 * (q.x * q.x + q.z * q.z), 2 * (q.y * q.z + q.w * q.x)),
            make_float3(2 * (q.x * q.z + q.w * q.y), 2 * (q.y * q.z - q.w * q.x), 1 - 2 * (q.x * q.x + q.y * q.y))};
}

// From the slopes in the columns of a rotation to those in its quaternion.
DEVICE float4 turn_slope(const Turn& q, const Axes& v) {
    const float w = 2 * (q.z * (v.x.y - v.y.x) + q.y * (v.z.x - v.x.z) + q.x * (v.y.z - v.z.y));
    const float x = 2 * (q.y * (v.y.x + v.x.y) + q.z * (v.z.x + v.x.z) + q.w * (v.y.z - v.z.y)) - 4 * q.x * (v.y.y + v.z.z);
    const float y = 2 * (q.x * (v.y.x + v.x.y) + q.z * (v.z.y + v.y.z) + q.w * (v.z.x - v.x.z)) - 4 * q.y * (v.x.x + v.z.z);
    const float z = 2 * (q.x * (v.z.x + v.x.z) + q.y * (v.z.y + v.y.z) + q.w * (v.x.y - v.y.x)) - 4 * q.z * (v.x.x + v.y.y);
    const float along = q.w * w + q.x * x + q.y * y + q.z * z;
    return make_float4((w - along * q.w) * q.shortening, (x - along * q.x) * q.shortening,
                       (y - along * q.y) * q.shortening, (z - along * q.z) * q.shortening);
}
