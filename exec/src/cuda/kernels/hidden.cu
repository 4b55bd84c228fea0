// What is looked at in hidden states [rows, width, features] before they are trained on. Features are a multiple of 8.

// The first number at a real token that is none: the largest complement of such an element's place, 0 where all are finite. A block a
// token.
extern "C" __global__ void first_not_finite(const bf16* x, const uint32_t* lengths, int width, int features, uint64_t* found) {
    const int row = blockIdx.x / width, position = blockIdx.x % width;
    if (position >= lengths[row]) return;
    const uint64_t first = uint64_t(blockIdx.x) * features;
    for (int at = threadIdx.x * 8; at < features; at += blockDim.x * 8) {
        const uint4 raw = *reinterpret_cast<const uint4*>(x + first + at);
        const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const uint32_t exponent = words[i / 2] >> (i % 2 * 16) & 0x7f80u;
            if (exponent == 0x7f80u) {
                atomicMax(found, ~(first + at + i));
                break;
            }
        }
    }
}

// Squares of given − wanted and of wanted, summed over each token's features, as [tokens, 2]. A block a token.
extern "C" __global__ void squares_apart(const bf16* given, const bf16* wanted, int features, double* sums) {
    __shared__ float room[33];
    const size_t first = size_t(blockIdx.x) * features;
    float apart = 0, length = 0;
    for (int at = threadIdx.x * 8; at < features; at += blockDim.x * 8) {
        const Eight a = load_eight(given + first + at), b = load_eight(wanted + first + at);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            apart += (a.v[i] - b.v[i]) * (a.v[i] - b.v[i]);
            length += b.v[i] * b.v[i];
        }
    }
    apart = block_sum(apart, room);
    length = block_sum(length, room);
    if (threadIdx.x == 0) {
        sums[2 * blockIdx.x] = apart;
        sums[2 * blockIdx.x + 1] = length;
    }
}
