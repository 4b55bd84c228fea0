// What all kernels share. No header is included: only the compiler is needed, not the toolkit.

typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef long long int64_t;

#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif

// The bits of a bf16 number. Arithmetic is done in float.
struct bf16 {
    uint16_t bits;
};

[[maybe_unused]] static __forceinline__ float to_float(bf16 x) { return __uint_as_float(uint32_t(x.bits) << 16); }

// Rounds to nearest even.
[[maybe_unused]] static __forceinline__ bf16 to_bf16(float x) {
    bf16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}

// Two bf16 numbers in one word, the first in the low half.
[[maybe_unused]] static __forceinline__ uint32_t pack(float first, float second) {
    uint32_t y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(second), "f"(first));
    return y;
}

[[maybe_unused]] static __forceinline__ float low(uint32_t x) { return __uint_as_float(x << 16); }
[[maybe_unused]] static __forceinline__ float high(uint32_t x) { return __uint_as_float(x & 0xffff0000u); }

// Eight bf16 numbers, as one access of 16 bytes.
struct Eight {
    float v[8];
};

[[maybe_unused]] static __forceinline__ Eight load_eight(const bf16* from) {
    const uint4 w = *reinterpret_cast<const uint4*>(from);
    return {low(w.x), high(w.x), low(w.y), high(w.y), low(w.z), high(w.z), low(w.w), high(w.w)};
}

[[maybe_unused]] static __forceinline__ void store_eight(bf16* to, const Eight& x) {
    uint4 w;
    w.x = pack(x.v[0], x.v[1]);
    w.y = pack(x.v[2], x.v[3]);
    w.z = pack(x.v[4], x.v[5]);
    w.w = pack(x.v[6], x.v[7]);
    *reinterpret_cast<uint4*>(to) = w;
}

[[maybe_unused]] static __forceinline__ float warp_sum(float x) {
    for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

[[maybe_unused]] static __forceinline__ float warp_max(float x) {
    for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

// The sum over all threads of a block of up to 32 whole warps; every thread gets it. `room` holds 33 floats.
[[maybe_unused]] static __forceinline__ float block_sum(float x, float* room) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = (blockDim.x + 31) / 32;
    x = warp_sum(x);
    __syncthreads();
    if (lane == 0) room[warp] = x;
    __syncthreads();
    float sum = 0;
    for (int w = 0; w < warps; ++w) sum += room[w];
    return sum;
}
