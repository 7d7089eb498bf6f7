// What moves the Gaussians in a step: Adam, and mcmc's noise.
#include "vectors.cuh"

constexpr int STEP_THREADS = 256;

struct Moved {
    float* values;
    const float* gradients;
    float* means;         // of gradients, and of their squares
    float* squares;
    const float* steps;   // [], those before and this one
    const float* rate;    // []
    long long num;
    float beta1, beta2, log_beta1, log_beta2, eps;
};

// Adam (Kingma 2015, algorithm 1).
KERNEL(STEP_THREADS) adam(Moved of) {
    const long long place = static_cast<long long>(blockIdx.x) * STEP_THREADS + threadIdx.x;
    if (place >= of.num) return;
    const float gradient = of.gradients[place], steps = *of.steps;
    const float mean = of.beta1 * of.means[place] + (1.0f - of.beta1) * gradient;
    const float square = of.beta2 * of.squares[place] + (1.0f - of.beta2) * gradient * gradient;
    of.means[place] = mean;
    of.squares[place] = square;
    // both averages start at 0 and are too small by 1 - beta^step
    const float correction1 = 1.0f - expf(steps * of.log_beta1), correction2 = 1.0f - expf(steps * of.log_beta2);
    of.values[place] -= *of.rate / correction1 * mean / (sqrtf(square / correction2) + of.eps);
}

struct Exploration {
    float* means;            // [N, 3]
    const float* quats;      // [N, 4], w first, of any length
    const float* scales;     // [N, 3], logarithms
    const float* opacities;  // [N], logits
    const float* noise;      // [N, 3], normal
    const float* strength;   // []
    float steepness, transparent;
    int num;
};

// Adds covariance x noise to the means, the more transparent a Gaussian the more (3DGS-MCMC, equation 9).
KERNEL(STEP_THREADS) explore(Exploration of) {
    const int n = blockIdx.x * STEP_THREADS + threadIdx.x;
    if (n >= of.num) return;
    const float share = *of.strength * sigmoid(of.steepness * (of.transparent - sigmoid(of.opacities[n])));
    const float3 noise = times(share, load3(of.noise + 3 * n)), scales = load3(of.scales + 3 * n);
    const Axes axis = axes(turn_of(of.quats + 4 * n));
    const float3 x = times(expf(2.0f * scales.x) * dot(axis.x, noise), axis.x);
    const float3 y = times(expf(2.0f * scales.y) * dot(axis.y, noise), axis.y);
    const float3 z = times(expf(2.0f * scales.z) * dot(axis.z, noise), axis.z);
    store3(of.means + 3 * n, plus(load3(of.means + 3 * n), plus(x, plus(y, z))));
}
