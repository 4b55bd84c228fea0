// What the target does between its matrix products and its attention. Rows are tokens; widths are multiples of 8.

// x[t] = table[ids[t]]; a block a token.
extern "C" __global__ void embed(const uint32_t* ids, const bf16* table, bf16* x, int width) {
    const bf16* from = table + size_t(ids[blockIdx.x]) * width;
    bf16* to = x + size_t(blockIdx.x) * width;
    for (int at = threadIdx.x * 8; at < width; at += blockDim.x * 8)
        *reinterpret_cast<uint4*>(to + at) = *reinterpret_cast<const uint4*>(from + at);
}

// y = x / sqrt(mean(x²) + eps) · (offset + weight), a block a row; each thread holds N times 8 elements. Where `copy` is given, x goes there too,
// `copy_pitch` elements from row to row: that is how a captured layer's output reaches the hidden states. Where `scales` is given, only
// 1 / sqrt(mean(x²) + eps) of each row is written, there: the product that follows does the rest.
template <int N>
static __forceinline__ void rms_norm(const bf16* x, const bf16* weight, bf16* y, int width, float eps, bf16* copy,
                                     int64_t copy_pitch, float offset, float* scales) {
    __shared__ float room[33];
    const size_t row = blockIdx.x;
    x += row * width;
    y += row * width;
    Eight held[N];
    float squares = 0;
#pragma unroll
    for (int n = 0; n < N; ++n) {
        const int at = (n * blockDim.x + threadIdx.x) * 8;
        if (at < width) {
            const uint4 raw = *reinterpret_cast<const uint4*>(x + at);
            if (copy) *reinterpret_cast<uint4*>(copy + row * copy_pitch + at) = raw;
            held[n] = {low(raw.x), high(raw.x), low(raw.y), high(raw.y), low(raw.z), high(raw.z), low(raw.w), high(raw.w)};
#pragma unroll
            for (int i = 0; i < 8; ++i) squares += held[n].v[i] * held[n].v[i];
        }
    }
    const float scale = rsqrtf(block_sum(squares, room) / width + eps);
    if (scales) {
        if (threadIdx.x == 0) scales[row] = scale;
        return;
    }
#pragma unroll
    for (int n = 0; n < N; ++n) {
        const int at = (n * blockDim.x + threadIdx.x) * 8;
        if (at < width) {
            const Eight w = load_eight(weight + at);
#pragma unroll
            for (int i = 0; i < 8; ++i) held[n].v[i] *= scale * (offset + w.v[i]);
            store_eight(y + at, held[n]);
        }
    }
}

#define RMS_NORM(N)                                                                                                              \
    extern "C" __global__ void rms_norm_##N(const bf16* x, const bf16* weight, bf16* y, int width, float eps, bf16* copy,        \
                                            int64_t copy_pitch, float offset, float* scales) {                                   \
        rms_norm<N>(x, weight, y, width, eps, copy, copy_pitch, offset, scales);                                                 \
    }
RMS_NORM(1)
RMS_NORM(2)
RMS_NORM(4)
RMS_NORM(8)
RMS_NORM(16)

// matrix[r][c] *= offset + weight[c]; a block a row.
extern "C" __global__ void scale_columns(bf16* matrix, const bf16* weight, int width, float offset) {
    bf16* row = matrix + size_t(blockIdx.x) * width;
    for (int at = threadIdx.x * 8; at < width; at += blockDim.x * 8) {
        Eight x = load_eight(row + at);
        const Eight w = load_eight(weight + at);
#pragma unroll
        for (int i = 0; i < 8; ++i) x.v[i] *= offset + w.v[i];
        store_eight(row + at, x);
    }
}

// Rows of `from` to rows of `to`, `pitch` elements apart; a block a row.
extern "C" __global__ void copy_rows(const bf16* from, bf16* to, int width, int64_t pitch) {
    from += size_t(blockIdx.x) * width;
    to += size_t(blockIdx.x) * pitch;
    for (int at = threadIdx.x * 8; at < width; at += blockDim.x * 8)
        *reinterpret_cast<uint4*>(to + at) = *reinterpret_cast<const uint4*>(from + at);
}

// cos and sin of position · rate as [positions, pairs]; a block a position. The angle is taken in double: at position 8191 float would
// lose three digits.
extern "C" __global__ void rope_table(const double* rates, float2* table, int pairs) {
    for (int i = threadIdx.x; i < pairs; i += blockDim.x) {
        double s, c;
        sincos(blockIdx.x * rates[i], &s, &c);
        table[size_t(blockIdx.x) * pairs + i] = make_float2(float(c), float(s));
    }
}

// Normal draws with mean 0, two a thread (Box and Muller 1958), each a function of the stream and its place alone.
static __forceinline__ uint64_t mix(uint64_t word) {
    uint64_t z = word + 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

static __forceinline__ double unit(uint64_t stream, uint64_t word) {
    const uint64_t hash = mix(mix(mix(stream)) ^ mix(word));
    return double((hash >> 11) + 1) / double(1ull << 53);
}

extern "C" __global__ void normals(bf16* to, int64_t count, uint64_t stream, double std) {
    for (int64_t pair = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; 2 * pair < count; pair += int64_t(gridDim.x) * blockDim.x) {
        const double radius = std * sqrt(-2.0 * log(unit(stream, 2 * pair)));
        double s, c;
        sincos(6.283185307179586 * unit(stream, 2 * pair + 1), &s, &c);
        to[2 * pair] = to_bf16(float(radius * c));
        if (2 * pair + 1 < count) to[2 * pair + 1] = to_bf16(float(radius * s));
    }
}

extern "C" __global__ void fill(bf16* to, int64_t count, float value) {
    for (int64_t n = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; n < count; n += int64_t(gridDim.x) * blockDim.x)
        to[n] = to_bf16(value);
}

// Norm of each head (where weights are given), then rotation of its halves, in place. Heads 0 … queries−1 of a token are queries, the
// next `keys` are keys; they follow one another at the start of the token's row of `pitch` elements. A thread holds EACH neighbours of
// a head's lower half and those that they turn with; LANES threads, a power of two, hold a head.
template <int D>
static __forceinline__ void head_norm_rope(bf16* rows, const bf16* q_weight, const bf16* k_weight, const float2* table, int tokens,
                                           int width, int queries, int keys, int64_t pitch, float eps) {
    constexpr int HALF = D / 2, EACH = HALF == 48 ? 12 : HALF < 8 ? 4 : 8, LANES = HALF / EACH;
    static_assert(HALF % EACH == 0 && (LANES & (LANES - 1)) == 0, "whole threads");
    const int lane = threadIdx.x % LANES, heads = queries + keys;
    const uint32_t unit = (blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    const int token = unit / heads, head = unit % heads, first = lane * EACH;
    // All lanes of a warp take part in the sums below.
    const bool inside = token < tokens;
    bf16* x = rows + (inside ? token : 0) * pitch + head * D + first;
    const bf16* weight = head < queries ? q_weight : k_weight;
    float a[EACH], b[EACH], squares = 0;
#pragma unroll
    for (int n = 0; n < EACH; n += 4) {
        const uint2 low_half = *reinterpret_cast<const uint2*>(x + n), high_half = *reinterpret_cast<const uint2*>(x + HALF + n);
        a[n] = low(low_half.x), a[n + 1] = high(low_half.x), a[n + 2] = low(low_half.y), a[n + 3] = high(low_half.y);
        b[n] = low(high_half.x), b[n + 1] = high(high_half.x), b[n + 2] = low(high_half.y), b[n + 3] = high(high_half.y);
    }
    if (weight) {
#pragma unroll
        for (int n = 0; n < EACH; ++n) squares += a[n] * a[n] + b[n] * b[n];
#pragma unroll
        for (int step = LANES / 2; step > 0; step /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, step);
        const float scale = rsqrtf(squares / D + eps);
#pragma unroll
        for (int n = 0; n < EACH; ++n) {
            a[n] *= scale * to_float(weight[first + n]);
            b[n] *= scale * to_float(weight[first + HALF + n]);
        }
    }
    if (!inside) return;
    const float2* turn = table + size_t(token % width) * HALF + first;
#pragma unroll
    for (int n = 0; n < EACH; ++n) {
        const float2 t = turn[n];
        const float u = a[n], v = b[n];
        a[n] = u * t.x - v * t.y;
        b[n] = v * t.x + u * t.y;
    }
#pragma unroll
    for (int n = 0; n < EACH; n += 4) {
        *reinterpret_cast<uint2*>(x + n) = make_uint2(pack(a[n], a[n + 1]), pack(a[n + 2], a[n + 3]));
        *reinterpret_cast<uint2*>(x + HALF + n) = make_uint2(pack(b[n], b[n + 1]), pack(b[n + 2], b[n + 3]));
    }
}

#define HEAD_NORM_ROPE(D)                                                                                                        \
    extern "C" __global__ void head_norm_rope_##D(bf16* rows, const bf16* q_weight, const bf16* k_weight, const float2* table,   \
                                                  int tokens, int width, int queries, int keys, int64_t pitch, float eps) {      \
        head_norm_rope<D>(rows, q_weight, k_weight, table, tokens, width, queries, keys, pitch, eps);                            \
    }
HEAD_NORM_ROPE(8)
HEAD_NORM_ROPE(16)
HEAD_NORM_ROPE(32)
HEAD_NORM_ROPE(64)
HEAD_NORM_ROPE(96)
HEAD_NORM_ROPE(128)
HEAD_NORM_ROPE(256)

// The same for heads of `dim` ≤ 256 elements of which only the first 2 · `pairs` turn, with weights stored less `offset`. A warp a head.
extern "C" __global__ void head_norm_rope_part(bf16* rows, const bf16* q_weight, const bf16* k_weight, const float2* table, int tokens,
                                               int width, int queries, int keys, int64_t pitch, float eps, int dim, int pairs,
                                               float offset) {
    const int unit = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32, heads = queries + keys;
    const int token = unit / heads, head = unit % heads;
    if (token >= tokens) return;
    bf16* x = rows + token * pitch + head * dim;
    const bf16* weight = head < queries ? q_weight : k_weight;
    float held[8], other[8], squares = 0;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
        const int i = n * 32 + lane, partner = i < pairs ? i + pairs : i - pairs;
        held[n] = i < dim ? to_float(x[i]) : 0.f;
        other[n] = i < 2 * pairs ? to_float(x[partner]) : 0.f;
        squares += held[n] * held[n];
    }
    const float scale = weight ? rsqrtf(warp_sum(squares) / dim + eps) : 1.f;
    // All of the warp have read.
    __syncwarp();
#pragma unroll
    for (int n = 0; n < 8; ++n) {
        const int i = n * 32 + lane;
        if (i >= dim) continue;
        float y = weight ? held[n] * scale * (offset + to_float(weight[i])) : held[n];
        if (i < 2 * pairs) {
            const int partner = i < pairs ? i + pairs : i - pairs, pair = i < pairs ? i : i - pairs;
            const float z = weight ? other[n] * scale * (offset + to_float(weight[partner])) : other[n];
            const float2 turn = table[size_t(token % width) * pairs + pair];
            y = i < pairs ? y * turn.x - z * turn.y : y * turn.x + z * turn.y;
        }
        x[i] = to_bf16(y);
    }
}

// x · sigmoid(gate) in place, for rows of `width` elements whose gates begin `pitch` elements apart; `chunks` blocks share a row.
extern "C" __global__ void __launch_bounds__(256) gate_output(bf16* x, const bf16* gates, int width, int64_t pitch, int chunks) {
    const size_t row = blockIdx.x / chunks;
    const int at = (blockIdx.x % chunks * blockDim.x + threadIdx.x) * 8;
    if (at >= width) return;
    Eight y = load_eight(x + row * width + at);
    const Eight g = load_eight(gates + row * pitch + at);
#pragma unroll
    for (int i = 0; i < 8; ++i) y.v[i] = __fdividef(y.v[i], 1.f + __expf(-g.v[i]));
    store_eight(x + row * width + at, y);
}

// silu(gate) · up, where a row holds `width` gates and then as many ups; `chunks` blocks share a row.
extern "C" __global__ void __launch_bounds__(256) swiglu(const bf16* both, bf16* out, int width, int chunks) {
    const size_t row = blockIdx.x / chunks;
    const int at = (blockIdx.x % chunks * blockDim.x + threadIdx.x) * 8;
    if (at >= width) return;
    const bf16* gate = both + row * 2 * width + at;
    Eight g = load_eight(gate);
    const Eight u = load_eight(gate + width);
#pragma unroll
    for (int i = 0; i < 8; ++i) g.v[i] = __fdividef(g.v[i], 1.f + __expf(-g.v[i])) * u.v[i];
    store_eight(out + row * width + at, g);
}
