// Photographs evened before they are compared: see training/photos/tones.py.
#include "device.cuh"

struct Evening {
    const float* render;         // [H, W, 3]
    const unsigned char* photo;  // [H, W, 3]
    const float* tone;           // [4 + num_coefficients]: gains, 1 / (half the diagonal)^2, vignetting 2, tilt 2
    const float* K;              // [3, 3], px
    float* target;               // [H, W, 3]
    float clipped, clipped_counts;
    int width, height, num_coefficients;  // width in values
};

constexpr int EVENING_THREADS = 256;

// Divides bytes by gain, vignetting and tilt; draws what is clipped towards the rendering where that is brighter.
KERNEL(EVENING_THREADS) even(Evening of) {
    const int place = blockIdx.x * EVENING_THREADS + threadIdx.x;
    if (place >= of.width * of.height) return;
    const int row = place / of.width, column = place % of.width;
    const float byte = of.photo[place];
    const float x = column / 3 + 0.5f - of.K[2], y = row + 0.5f - of.K[5];
    const float square = (x * x + y * y) * of.tone[3];
    float logarithm = 0.0f;
    if (of.num_coefficients > 0) logarithm = (of.tone[4] + of.tone[5] * square) * square;
    if (of.num_coefficients > 2) logarithm += (of.tone[6] * x + of.tone[7] * y) * sqrtf(of.tone[3]);
    const float evened = byte / (255.0f * of.tone[column % 3] * expf(logarithm)), seen = of.render[place];
    const bool is_brighter = byte >= of.clipped && seen > evened;
    of.target[place] = is_brighter ? seen + of.clipped_counts * (evened - seen) : evened;
}
