// What the drafter's kernels share beside the general prelude.
//
// Every reduction has a fixed order: no float atomics, so two runs on one kind of device give the same bits.

// Eight floats.
static __forceinline__ Eight load_eight(const float* from) {
    const float4 a = reinterpret_cast<const float4*>(from)[0], b = reinterpret_cast<const float4*>(from)[1];
    return {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
}

// Sums of two numbers over the threads of a block of whole warps; every thread gets both. `room` holds 64 floats.
static __forceinline__ float2 block_sums(float a, float b, float* room) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    a = warp_sum(a);
    b = warp_sum(b);
    __syncthreads();
    if (lane == 0) {
        room[warp] = a;
        room[32 + warp] = b;
    }
    __syncthreads();
    float2 sums = make_float2(0.f, 0.f);
    for (int w = 0; w < warps; ++w) {
        sums.x += room[w];
        sums.y += room[32 + w];
    }
    return sums;
}
