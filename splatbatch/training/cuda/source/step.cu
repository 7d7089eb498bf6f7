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

constexpr int NUMBERS = 4;  // that a thread moves, side by side; all indices are known, so that they stay in registers

DEVICE void read(float* to, const float* from, int num) {
    if (num == NUMBERS) {
        const float4 all = load4(from);
        to[0] = all.x, to[1] = all.y, to[2] = all.z, to[3] = all.w;
        return;
    }
#pragma unroll
    for (int k = 0; k < NUMBERS; ++k)
        if (k < num) to[k] = from[k];
}

DEVICE void write(float* to, const float* from, int num) {
    if (num == NUMBERS) return store4(to, from[0], from[1], from[2], from[3]);
#pragma unroll
    for (int k = 0; k < NUMBERS; ++k)
        if (k < num) to[k] = from[k];
}

DEVICE bool is_seen(const Moved& of, unsigned n) { return of.radii[2 * n] > 0 && of.radii[2 * n + 1] > 0; }

// Adam (Kingma 2015, algorithm 1) for some numbers from a place on; returns the sum of their squared gradients.
DEVICE float move(const Moved& of, int one, long long place, int num) {
    bool first_moves = true, last_moves = true;
    int num_first = num;  // of the first Gaussian: the others belong to the next
    if (of.if_seen[one] > 0) {
        const unsigned size = of.if_seen[one], n = static_cast<unsigned>(place) / size;
        num_first = static_cast<int>((n + 1) * size - static_cast<unsigned>(place));
        first_moves = is_seen(of, n);
        last_moves = num_first < num ? is_seen(of, n + 1) : first_moves;
        if (!first_moves && !last_moves) return 0.0f;
    }
    float values[NUMBERS], gradients[NUMBERS], means[NUMBERS], squares[NUMBERS], sum = 0.0f;
    read(values, of.values[one] + place, num), read(gradients, of.gradients[one] + place, num);
    read(means, of.means[one] + place, num), read(squares, of.squares[one] + place, num);
    // both averages start at 0 and are too small by 1 - beta^step
    const float steps = *of.steps[one], pull = of.pulls[one];
    const float rate = *of.rates[one] / (1.0f - expf(steps * of.log_beta1)), rise = 1.0f / (1.0f - expf(steps * of.log_beta2));
#pragma unroll
    for (int k = 0; k < NUMBERS; ++k) {
        if (k >= num || !(k < num_first ? first_moves : last_moves)) continue;
        float gradient = gradients[k];
        sum += gradient * gradient;
        if (pull != 0.0f) {
            const float share = sigmoid(values[k]);
            gradient += pull * (of.are_logits[one] ? share * (1.0f - share) : expf(values[k]));
        }
        means[k] = of.beta1 * means[k] + (1.0f - of.beta1) * gradient;
        squares[k] = of.beta2 * squares[k] + (1.0f - of.beta2) * gradient * gradient;
        values[k] -= rate * means[k] / (sqrtf(squares[k] * rise) + of.eps);
    }
    write(of.values[one] + place, values, num);
    write(of.means[one] + place, means, num), write(of.squares[one] + place, squares, num);
    return sum;
}

KERNEL(STEP_THREADS) adam(Moved of) {
    int one = 0;
    while (static_cast<int>(blockIdx.x) >= of.ends[one]) ++one;
    const long long block = static_cast<int>(blockIdx.x) - (one > 0 ? of.ends[one - 1] : 0);
    const long long place = NUMBERS * (block * STEP_THREADS + threadIdx.x), left = of.nums[one] - place;
    const float squares = warp_sum(left > 0 ? move(of, one, place, left < NUMBERS ? static_cast<int>(left) : NUMBERS) : 0.0f);
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
