// Runs CUDA kernels on the CPU, for tests: the 32 lanes of a warp are fibres that meet wherever they exchange values.
//
// Between two meetings one lane after the other runs as far as it can, so that a missing __syncwarp shows: the first
// lane reads what the others have not written yet, or overwrites what they still have to read. Lanes run in rising or
// falling order (emulated_order). Warps run one after the other: kernels whose warps wait for each other do not.
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <utility>
#include <vector>

struct float2 { float x, y; };
struct float3 { float x, y, z; };
struct alignas(16) float4 { float x, y, z, w; };
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float3 make_float3(float x, float y, float z) { return {x, y, z}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

namespace emulated {
constexpr int LANES = 32;
struct Index { unsigned x = 0; };
inline Index thread, block;
inline int order = 1;

struct Lane {
    ucontext_t start;
    jmp_buf at;
    std::vector<char> stack = std::vector<char>(1 << 17);
    bool begun = false, ended = false;
    int line = 0;  // of the meeting it waits at
    uint32_t brought = 0;
};
inline Lane lanes[LANES];
inline uint32_t met[LANES];
inline bool present[LANES];
inline unsigned first_thread = 0;
inline jmp_buf scheduler;
inline const std::function<void()>* body = nullptr;

inline void end_of_lane() {
    (*body)();
    lanes[thread.x - first_thread].ended = true;
    _longjmp(scheduler, 1);
}

inline void wait_at(int line, uint32_t value) {
    Lane& lane = lanes[thread.x - first_thread];
    lane.line = line, lane.brought = value;
    if (_setjmp(lane.at) == 0) _longjmp(scheduler, 1);
}

inline void resume(int index) {
    Lane& lane = lanes[index];
    thread.x = first_thread + index;
    if (_setjmp(scheduler) != 0) return;
    if (lane.begun) _longjmp(lane.at, 1);
    lane.begun = true;
    getcontext(&lane.start);
    lane.start.uc_stack.ss_sp = lane.stack.data();
    lane.start.uc_stack.ss_size = lane.stack.size();
    lane.start.uc_link = nullptr;
    makecontext(&lane.start, end_of_lane, 0);
    setcontext(&lane.start);
}

inline void run_warp() {
    for (Lane& lane : lanes) lane.begun = lane.ended = false;
    for (int left = LANES; left != 0;) {
        for (int i = 0; i < LANES; ++i) {
            const int index = order > 0 ? i : LANES - 1 - i;
            if (!lanes[index].ended) resume(index);
        }
        int line = 0;
        left = 0;
        for (int i = 0; i < LANES; ++i) {
            present[i] = !lanes[i].ended, met[i] = lanes[i].brought;
            if (lanes[i].ended) continue;
            ++left;
            if (line != 0 && line != lanes[i].line) {
                std::fprintf(stderr, "lanes wait at lines %d and %d\n", line, lanes[i].line);
                std::abort();
            }
            line = lanes[i].line;
        }
    }
}

inline void launch(unsigned blocks, unsigned threads, const std::function<void()>& kernel) {
    body = &kernel;
    for (block.x = 0; block.x < blocks; ++block.x)
        for (first_thread = 0; first_thread < threads; first_thread += LANES) run_warp();
    body = nullptr;
}

template <typename T>
uint32_t bits(T value) {
    static_assert(sizeof(T) == 4);
    uint32_t result;
    __builtin_memcpy(&result, &value, 4);
    return result;
}
template <typename T>
T shuffle(int line, T value, int from) {
    wait_at(line, bits(value));
    if (from < 0 || from >= LANES) return value;
    if (!present[from]) std::abort();
    T result;
    __builtin_memcpy(&result, &met[from], 4);
    return result;
}
inline unsigned ballot(int line, bool is) {
    wait_at(line, is);
    unsigned result = 0;
    for (int i = 0; i < LANES; ++i) result |= unsigned(present[i] && met[i] != 0) << i;
    return result;
}
inline unsigned all_present() {
    unsigned result = 0;
    for (int i = 0; i < LANES; ++i) result |= unsigned(present[i]) << i;
    return result;
}
inline int lane() { return thread.x - first_thread; }

// Runs a kernel whose arguments lie at some addresses.
template <typename... Arguments, size_t... I>
void start(void (*kernel)(Arguments...), unsigned blocks, unsigned threads, void** at, std::index_sequence<I...>) {
    launch(blocks, threads, [&] { kernel(*static_cast<Arguments*>(at[I])...); });
}
template <typename... Arguments>
void start(void (*kernel)(Arguments...), unsigned blocks, unsigned threads, void** at) {
    start(kernel, blocks, threads, at, std::index_sequence_for<Arguments...>{});
}
}  // namespace emulated

#define threadIdx emulated::thread
#define blockIdx emulated::block
#define DEVICE inline
#define KERNEL(threads) void
#define __shared__ static
#define __syncwarp() emulated::wait_at(__LINE__, 0)
#define __shfl_sync(mask, value, from) emulated::shuffle(__LINE__, value, from)
#define __shfl_up_sync(mask, value, by) emulated::shuffle(__LINE__, value, emulated::lane() - (by))
#define __shfl_xor_sync(mask, value, with) emulated::shuffle(__LINE__, value, emulated::lane() ^ (with))
#define __ballot_sync(mask, is) emulated::ballot(__LINE__, is)
#define __any_sync(mask, is) (emulated::ballot(__LINE__, is) != 0)
#define __all_sync(mask, is) (emulated::ballot(__LINE__, is) == emulated::all_present())

inline int __ffs(unsigned word) { return __builtin_ffs(int(word)); }
inline int __popc(unsigned word) { return __builtin_popcount(word); }
template <typename T>
inline T max(T a, T b) { return a < b ? b : a; }
template <typename T>
inline T min(T a, T b) { return a < b ? a : b; }
inline float exp2_fast(float x) { return exp2f(x); }
inline float log2_fast(float x) { return log2f(x); }
inline float reciprocal(float x) { return 1.0f / x; }
inline void atomicAdd(float* to, float value) { *to += value; }
inline void add_four(float* to, float a, float b, float c, float d) {
    if (reinterpret_cast<uintptr_t>(to) % 16 != 0) std::abort();
    to[0] += a, to[1] += b, to[2] += c, to[3] += d;
}

#define EXPORTED extern "C" __attribute__((visibility("default")))
extern "C" inline __attribute__((used, visibility("default"))) void emulated_order(int order) { emulated::order = order; }
// What a test starts a kernel by.
#define STARTED_BY_TESTS(kernel) \
    EXPORTED void start_##kernel(unsigned blocks, unsigned threads, void** at) { emulated::start(kernel, blocks, threads, at); }
