// Photographs evened before they are compared: see training/photos/posed_image.py.
#include "device.cuh"

struct Evening {
    const float* render;         // [H, W, 3]
    const unsigned char* photo;  // [H, W, 3]
    const float* tone;           // [4 + num_coefficients]: gains, 1 / (half the diagonal)^2, vignetting 2, tilt 2, tint 3, field
    const float* K;              // [3, 3], px
    float* target;               // [H, W, 3]
    float clipped, clipped_counts;
    int width, height, num_coefficients;  // width in values
};

constexpr int EVENING_THREADS = 256;
constexpr int NODES = 9;  // of a field, along each side of the square from -1 to 1

// What a field has at a place, in halves of the diagonal: bilinear, and beyond its edge what is there.
DEVICE float field_at(const float* field, float x, float y) {
    const float across = (fminf(fmaxf(x, -1.0f), 1.0f) + 1.0f) * (0.5f * (NODES - 1));
    const float down = (fminf(fmaxf(y, -1.0f), 1.0f) + 1.0f) * (0.5f * (NODES - 1));
    const int i = min((int)across, NODES - 2), j = min((int)down, NODES - 2);
    const float* upper = field + j * NODES + i;
    const float right = across - i, below = down - j;
    const float above = upper[0] + right * (upper[1] - upper[0]);
    const float under = upper[NODES] + right * (upper[NODES + 1] - upper[NODES]);
    return above + below * (under - above);
}

// Divides bytes by gain, vignetting, tilt and field; draws what is clipped towards the rendering where that is brighter.
KERNEL(EVENING_THREADS) even(Evening of) {
    const int place = blockIdx.x * EVENING_THREADS + threadIdx.x;
    if (place >= of.width * of.height) return;
    const int row = place / of.width, column = place % of.width;
    const float byte = of.photo[place];
    const float x = column / 3 + 0.5f - of.K[2], y = row + 0.5f - of.K[5];
    const float square = (x * x + y * y) * of.tone[3], shorter = sqrtf(of.tone[3]);
    float logarithm = 0.0f;
    if (of.num_coefficients > 0) logarithm = (of.tone[4] + of.tone[5] * square) * square;
    if (of.num_coefficients > 2) logarithm += (of.tone[6] * x + of.tone[7] * y) * shorter;
    if (of.num_coefficients > 4) logarithm += of.tone[8 + column % 3] * field_at(of.tone + 11, x * shorter, y * shorter);
    const float evened = byte / (255.0f * of.tone[column % 3] * expf(logarithm)), seen = of.render[place];
    const bool is_brighter = byte >= of.clipped && seen > evened;
    of.target[place] = is_brighter ? seen + of.clipped_counts * (evened - seen) : evened;
}
