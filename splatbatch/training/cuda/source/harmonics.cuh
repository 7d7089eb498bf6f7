// Colours from spherical harmonics: 3DGS's basis, with the numbers of training/cpu/projection.py.
#pragma once
#include "device.cuh"

constexpr float SH_C0 = 0.28209479177387814f;  // 1 / (2 sqrt(pi))
constexpr int MOST_HIGHER = 15;                // functions above degree 0

// The functions above degree 0, in the direction (x, y, z) of length 1.
DEVICE void harmonics(float x, float y, float z, float* basis) {
    const float xx = x * x, yy = y * y, zz = z * z;
    basis[0] = -0.4886025119029199f * y;
    basis[1] = 0.4886025119029199f * z;
    basis[2] = -0.4886025119029199f * x;
    basis[3] = 1.0925484305920792f * x * y;
    basis[4] = -1.0925484305920792f * y * z;
    basis[5] = 0.31539156525252005f * (3.0f * zz - 1.0f);
    basis[6] = -1.0925484305920792f * x * z;
    basis[7] = 0.5462742152960396f * (xx - yy);
    basis[8] = -0.5900435899266435f * y * (3.0f * xx - yy);
    basis[9] = 2.890611442640554f * x * y * z;
    basis[10] = -0.4570457994644658f * y * (5.0f * zz - 1.0f);
    basis[11] = 0.3731763325901154f * z * (5.0f * zz - 3.0f);
    basis[12] = -0.4570457994644658f * x * (5.0f * zz - 1.0f);
    basis[13] = 1.445305721320277f * z * (xx - yy);
    basis[14] = -0.5900435899266435f * x * (xx - 3.0f * yy);
}

// The slope of sum_k weights_k basis_k in x, y and z, each for itself.
DEVICE float3 harmonics_slope(float x, float y, float z, const float* weights, int num) {
    const float xx = x * x, yy = y * y, zz = z * z;
    float3 slope = make_float3(0.0f, 0.0f, 0.0f);
    if (num >= 3) {
        slope.x += -0.4886025119029199f * weights[2];
        slope.y += -0.4886025119029199f * weights[0];
        slope.z += 0.4886025119029199f * weights[1];
    }
    if (num >= 8) {
        slope.x += 1.0925484305920792f * (y * weights[3] - z * weights[6] + x * weights[7]);
        slope.y += 1.0925484305920792f * (x * weights[3] - z * weights[4] - y * weights[7]);
        slope.z += 1.0925484305920792f * (-y * weights[4] - x * weights[6]) + 1.8923493915151202f * z * weights[5];
    }
    if (num >= 15) {
        slope.x += -3.540261539559861f * x * y * weights[8] + 2.890611442640554f * (y * z * weights[9] + x * z * weights[13]) -
                   0.4570457994644658f * (5.0f * zz - 1.0f) * weights[12] - 1.7701307697799304f * (xx - yy) * weights[14];
        slope.y += -1.7701307697799304f * (xx - yy) * weights[8] + 2.890611442640554f * (x * z * weights[9] - y * z * weights[13]) -
                   0.4570457994644658f * (5.0f * zz - 1.0f) * weights[10] + 3.540261539559861f * x * y * weights[14];
        slope.z += 2.890611442640554f * x * y * weights[9] - 4.5704579946446575f * z * (y * weights[10] + x * weights[12]) +
                   0.3731763325901154f * (15.0f * zz - 3.0f) * weights[11] + 1.445305721320277f * (xx - yy) * weights[13];
    }
    return slope;
}
