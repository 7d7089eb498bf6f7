// What moves the Gaussians in a step: Adam, and mcmc's noise.
#include "vectors.cuh"

constexpr int STEP_THREADS = 256;

constexpr int MOST_MOVED = 6;

// Parameters, moved in one kernel: blocks of their own for each.
struct Moved {
    float* values[MOST_MOVED];
    const float* gradients[MOST_MOVED];
    float* means[MOST_MOVED];        // of gradients, and of their squares
    float* squares[MOST_MOVED];
    const float* steps[MOST_MOVED];  // [], those before and this one
    const float* rates[MOST_MOVED];  // []
    long long nums[MOST_MOVED];
    int ends[MOST_MOVED];            // blocks of this one and of those before
    int if_seen[MOST_MOVED];         // numbers of a Gaussian that stay as they are unless it is seen; 0: all move
    float pulls[MOST_MOVED];         // on each number: of the mean of sigmoids of logits, or of exponentials; 0: none
    int are_logits[MOST_MOVED];
    const int* radii;                // [N, 2], 0: not seen
    float* norms;                    // [warps]: sums of squared gradients
    float beta1, beta2, log_beta1, log_beta2, eps;
};

// Adam (Kingma 2015, algorithm 1); returns the gradient.
DEVICE float move(const Moved& of, int one, long long place) {
    const float given = of.gradients[one][place], value = of.values[one][place];
    float gradient = given;
    if (of.pulls[one] != 0.0f) {
        const float share = sigmoid(value);
        gradient += of.pulls[one] * (of.are_logits[one] ? share * (1.0f - share) : expf(value));
    }
    const float mean = of.beta1 * of.means[one][place] + (1.0f - of.beta1) * gradient;
    const float square = of.beta2 * of.squares[one][place] + (1.0f - of.beta2) * gradient * gradient;
    of.means[one][place] = mean;
    of.squares[one][place] = square;
    // both averages start at 0 and are too small by 1 - beta^step
    const float steps = *of.steps[one];
    const float correction1 = 1.0f - expf(steps * of.log_beta1), correction2 = 1.0f - expf(steps * of.log_beta2);
    of.values[one][place] = value - *of.rates[one] / correction1 * mean / (sqrtf(square / correction2) + of.eps);
    return given;
}

KERNEL(STEP_THREADS) adam(Moved of) {
    int one = 0;
    while (static_cast<int>(blockIdx.x) >= of.ends[one]) ++one;
    const long long block = static_cast<int>(blockIdx.x) - (one > 0 ? of.ends[one - 1] : 0);
    const long long place = block * STEP_THREADS + threadIdx.x;
    bool moves = place < of.nums[one];
    if (moves && of.if_seen[one] > 0) {
        const size_t n = static_cast<unsigned>(place) / static_cast<unsigned>(of.if_seen[one]);
        moves = of.radii[2 * n] > 0 && of.radii[2 * n + 1] > 0;
    }
    const float gradient = moves ? move(of, one, place) : 0.0f;
    const float squares = warp_sum(gradient * gradient);
    if (threadIdx.x % 32 == 0) of.norms[(blockIdx.x * STEP_THREADS + threadIdx.x) / 32] = squares;
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

struct Watching {
    const float* pulls;  // [N, stride], the gradient of means2d first
    const int* radii;    // [N, 2], 0: not seen
    float* sums;         // [N], of how strongly each is pulled, in halves of the image
    float* counts;       // [N], of how often it was seen
    float half_width, half_height;
    int stride, num;
};

// Adds up what `default` grows by.
KERNEL(STEP_THREADS) watch(Watching of) {
    const int n = blockIdx.x * STEP_THREADS + threadIdx.x;
    if (n >= of.num || of.radii[2 * n] <= 0 || of.radii[2 * n + 1] <= 0) return;
    const float* pull = of.pulls + static_cast<size_t>(of.stride) * n;
    of.sums[n] += hypotf(pull[0] * of.half_width, pull[1] * of.half_height);
    of.counts[n] += 1.0f;
}
