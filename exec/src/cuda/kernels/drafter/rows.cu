// Rows moved by index, and the rows of the first layer that many slots share.

// y[i] = x[from[i]] for rows of `width` bf16 numbers (a multiple of 8).
extern "C" __global__ void gather_rows(const bf16* x, const uint32_t* from, bf16* y, int width) {
    const size_t source = (size_t)from[blockIdx.x] * width, target = (size_t)blockIdx.x * width;
    for (int c = threadIdx.x * 8; c < width; c += blockDim.x * 8)
        *reinterpret_cast<uint4*>(y + target + c) = *reinterpret_cast<const uint4*>(x + source + c);
}

// y[to[i]] = x[i].
extern "C" __global__ void scatter_rows(const bf16* x, const uint32_t* to, bf16* y, int width) {
    const size_t source = (size_t)blockIdx.x * width, target = (size_t)to[blockIdx.x] * width;
    for (int c = threadIdx.x * 8; c < width; c += blockDim.x * 8)
        *reinterpret_cast<uint4*>(y + target + c) = *reinterpret_cast<const uint4*>(x + source + c);
}

// Slots 1 ... slots-1 of all blocks hold the mask token and share one input row. partial[chunk][width] sums their rows of
// x [blocks * slots, width] over the blocks of a chunk. Grid: (width / (8 * blockDim.x) rounded up, chunks).
extern "C" __global__ void sum_masked_slots(const bf16* x, float* partial, int blocks, int slots, int width) {
    const int c = (blockIdx.x * blockDim.x + threadIdx.x) * 8;
    if (c >= width) return;
    Eight total = {};
    for (int block = blockIdx.y; block < blocks; block += gridDim.y)
#pragma unroll 4
        for (int slot = 1; slot < slots; slot++) {
            Eight value;
            value = load_eight(x + ((size_t)block * slots + slot) * width + c);
#pragma unroll
            for (int i = 0; i < 8; i++) total.v[i] += value.v[i];
        }
#pragma unroll
    for (int i = 0; i < 8; i++) partial[(size_t)blockIdx.y * width + c + i] = total.v[i];
}

// y[c] = the sum of partial[chunks][width] over chunks, in a fixed order, rounded. A block of 256 threads takes 32 columns.
extern "C" __global__ void __launch_bounds__(256) round_rows(const float* partial, bf16* y, int chunks, int width) {
    __shared__ float room[8][32];
    const int lane = threadIdx.x % 32, group = threadIdx.x / 32, c = blockIdx.x * 32 + lane;
    float total = 0.f;
    if (c < width)
#pragma unroll 8
        for (int r = group; r < chunks; r += 8) total += partial[(size_t)r * width + c];
    room[group][lane] = total;
    __syncthreads();
    if (group > 0 || c >= width) return;
    for (int g = 1; g < 8; ++g) total += room[g][lane];
    y[c] = to_bf16(total);
}
