// The few things that nvcc and a test's emulation on the CPU say differently.
#pragma once
#ifdef __CUDACC__
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 700
#error "lanes must be able to wait for each other: compute capability 7.0 at least"
#endif
#include <cuda_runtime.h>

#define DEVICE __device__ __forceinline__
#define KERNEL(...) __global__ void __launch_bounds__(__VA_ARGS__)
#define LAUNCH(kernel, blocks, threads, stream, ...) \
    kernel<<<blocks, threads, 0, static_cast<cudaStream_t>(stream)>>>(__VA_ARGS__)

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
