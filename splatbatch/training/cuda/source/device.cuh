// What NVRTC lacks, and the few things that a test's run on the CPU says differently. Kernels include no header else.
#pragma once
#ifdef __CUDACC_RTC__
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 700
#error "lanes must be able to wait for each other: compute capability 7.0 at least"
#endif
#define INFINITY __int_as_float(0x7f800000)
#define DEVICE __device__ __forceinline__
// A kernel that Python starts by its name, in blocks of so many threads: see sources.py.
#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)

DEVICE float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEVICE float log2_fast(float x) { return __log2f(x); }
DEVICE float reciprocal(float x) { return __fdividef(1.0f, x); }

// Adds four neighbours, 16 bytes aligned: one request to memory on GPUs that can (Hopper and later, since CUDA 12.1).
DEVICE void add_four(float* to, float a, float b, float c, float d) {
#if __CUDA_ARCH__ >= 900 && CUDART_VERSION >= 12010
    atomicAdd(reinterpret_cast<float4*>(to), make_float4(a, b, c, d));
#else
    atomicAdd(to, a), atomicAdd(to + 1, b), atomicAdd(to + 2, c), atomicAdd(to + 3, d);
#endif
}
#else
#include "cuda_on_cpu.h"
#endif

// Of four neighbours, 16 bytes aligned.
DEVICE float4 load4(const float* from) { return *reinterpret_cast<const float4*>(from); }
DEVICE void store4(float* to, float a, float b, float c, float d) { *reinterpret_cast<float4*>(to) = make_float4(a, b, c, d); }
