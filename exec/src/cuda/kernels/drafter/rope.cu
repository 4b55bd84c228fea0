// RMSNorm of each query and key head, then the rotary turn; and their derivative. HEAD_DIM is 16, 32, 64 or 128.
//
// A head is held by HEAD_DIM / 4 lanes: lane l has elements 2l and 2l + 1 of the low half and of the high half, which are the pairs
// that rope turns.

#define LANES (HEAD_DIM / 4)
#define HALF (HEAD_DIM / 2)
#define ITEMS (256 / LANES)  // heads at a time in a block of 256 threads

// Sum over the lanes of a head.
static __forceinline__ float head_sum(float x) {
#pragma unroll
    for (int step = LANES / 2; step > 0; step >>= 1) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

struct Head {
    float low0, low1, high0, high1;
    __forceinline__ void load(const bf16* from, int lane) {
        const uint32_t a = *reinterpret_cast<const uint32_t*>(from + 2 * lane), b = *reinterpret_cast<const uint32_t*>(from + HALF + 2 * lane);
        low0 = low(a); low1 = high(a); high0 = low(b); high1 = high(b);
    }
    __forceinline__ void load(const float* from, int lane) {
        low0 = from[2 * lane]; low1 = from[2 * lane + 1]; high0 = from[HALF + 2 * lane]; high1 = from[HALF + 2 * lane + 1];
    }
    __forceinline__ void store(bf16* to, int lane) const {
        *reinterpret_cast<uint32_t*>(to + 2 * lane) = pack(low0, low1);
        *reinterpret_cast<uint32_t*>(to + HALF + 2 * lane) = pack(high0, high1);
    }
    __forceinline__ float square() const { return low0 * low0 + low1 * low1 + high0 * high0 + high1 * high1; }
};

// raw [.., raw_width] holds `queries` query heads, then `keys` key heads, then `values` value heads a row; out [rows, out_width] gets
// them turned (values copied). Row i reads row from[i] of raw (`from` null: row i) and stands at position[i].
// `turns` [positions][HALF] holds cosine and sine.
extern "C" __global__ void __launch_bounds__(256)
head_norm_rope(const bf16* __restrict__ raw, int raw_width, const uint32_t* __restrict__ from, bf16* __restrict__ out, int out_width,
               const uint32_t* __restrict__ position, const float2* __restrict__ turns, const float* q_weight, const float* k_weight, int rows, int queries, int keys, int values, float eps) {
    const int lane = threadIdx.x % LANES, heads = queries + keys + values;
    const long long items = (long long)rows * heads;
    Head qw, kw;
    qw.load(q_weight, lane);
    kw.load(k_weight, lane);
    // All lanes of a warp stay in the loop, since head_sum needs them.
    const long long first = (long long)blockIdx.x * ITEMS, stride = (long long)gridDim.x * ITEMS;
#pragma unroll 4
    for (long long base = first; base < items; base += stride) {
        const long long item = base + threadIdx.x / LANES;
        const bool here = item < items;
        const int row = here ? (int)(item / heads) : 0, head = here ? (int)(item % heads) : 0;
        Head x;
        x.load(raw + (size_t)(from ? from[row] : row) * raw_width + head * HEAD_DIM, lane);
        const float scale = rsqrtf(head_sum(x.square()) / HEAD_DIM + eps);
        if (head < queries + keys) {
            const Head w = head < queries ? qw : kw;
            const float4 turn = *reinterpret_cast<const float4*>(turns + (size_t)position[row] * HALF + 2 * lane);
            const float a0 = x.low0 * scale * w.low0, a1 = x.low1 * scale * w.low1;
            const float b0 = x.high0 * scale * w.high0, b1 = x.high1 * scale * w.high1;
            x.low0 = a0 * turn.x - b0 * turn.y;
            x.high0 = b0 * turn.x + a0 * turn.y;
            x.low1 = a1 * turn.z - b1 * turn.w;
            x.high1 = b1 * turn.z + a1 * turn.w;
        }
        if (here) x.store(out + (size_t)row * out_width + head * HEAD_DIM, lane);
    }
}

// The derivative, in place over `gradient` [rows, gradient_width]: from that of turned heads to that of raw ones. Value heads are not
// touched. partial[block][2][HEAD_DIM] gets this block's share of the gradients of q_weight and k_weight.
extern "C" __global__ void __launch_bounds__(256)
head_norm_rope_backward(const bf16* raw, int raw_width, const uint32_t* from, bf16* gradient, int gradient_width, const uint32_t* position,
                        const float2* turns, const float* q_weight, const float* k_weight, float* partial, int rows, int queries,
                        int keys, float eps) {
    __shared__ float room[ITEMS][2][HEAD_DIM];
    const int lane = threadIdx.x % LANES, heads = queries + keys;
    const long long items = (long long)rows * heads;
    Head qw, kw, sums[2] = {};
    qw.load(q_weight, lane);
    kw.load(k_weight, lane);
    const long long first = (long long)blockIdx.x * ITEMS, stride = (long long)gridDim.x * ITEMS;
    for (long long base = first; base < items; base += stride) {
        const long long item = base + threadIdx.x / LANES;
        const bool here = item < items;
        const int row = here ? (int)(item / heads) : 0, head = here ? (int)(item % heads) : 0;
        bf16* at = gradient + (size_t)row * gradient_width + head * HEAD_DIM;
        Head x, g;
        x.load(raw + (size_t)(from ? from[row] : row) * raw_width + head * HEAD_DIM, lane);
        g.load(at, lane);
        const bool query = head < queries;
        const Head w = query ? qw : kw;
        const float4 turn = *reinterpret_cast<const float4*>(turns + (size_t)position[row] * HALF + 2 * lane);
        const float a0 = g.low0 * turn.x + g.high0 * turn.y, b0 = g.high0 * turn.x - g.low0 * turn.y;
        const float a1 = g.low1 * turn.z + g.high1 * turn.w, b1 = g.high1 * turn.z - g.low1 * turn.w;
        const float scale = rsqrtf(head_sum(x.square()) / HEAD_DIM + eps);
        x.low0 *= scale; x.low1 *= scale; x.high0 *= scale; x.high1 *= scale;  // the unit head
        const float one = here ? 1.0f : 0.0f;
        const float in_q = query ? one : 0.0f, in_k = one - in_q;
        const float s0 = a0 * x.low0, s1 = a1 * x.low1, s2 = b0 * x.high0, s3 = b1 * x.high1;
        sums[0].low0 += in_q * s0; sums[0].low1 += in_q * s1; sums[0].high0 += in_q * s2; sums[0].high1 += in_q * s3;
        sums[1].low0 += in_k * s0; sums[1].low1 += in_k * s1; sums[1].high0 += in_k * s2; sums[1].high1 += in_k * s3;
        const float back = head_sum(s0 * w.low0 + s1 * w.low1 + s2 * w.high0 + s3 * w.high1) / HEAD_DIM;
        g.low0 = (a0 * w.low0 - x.low0 * back) * scale;
        g.low1 = (a1 * w.low1 - x.low1 * back) * scale;
        g.high0 = (b0 * w.high0 - x.high0 * back) * scale;
        g.high1 = (b1 * w.high1 - x.high1 * back) * scale;
        if (here) g.store(at, lane);
    }
    const int place = threadIdx.x / LANES;
    for (int kind = 0; kind < 2; kind++) {
        room[place][kind][2 * lane] = sums[kind].low0;
        room[place][kind][2 * lane + 1] = sums[kind].low1;
        room[place][kind][HALF + 2 * lane] = sums[kind].high0;
        room[place][kind][HALF + 2 * lane + 1] = sums[kind].high1;
    }
    __syncthreads();
    for (int c = threadIdx.x; c < 2 * HEAD_DIM; c += blockDim.x) {
        float total = 0.0f;
        for (int i = 0; i < ITEMS; i++) total += room[i][c / HEAD_DIM][c % HEAD_DIM];
        partial[(size_t)blockIdx.x * 2 * HEAD_DIM + c] = total;
    }
}
