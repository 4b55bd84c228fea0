// Causal attention with grouped queries over right-padded rows: query i of a row sees keys 0 … i, so no real query ever sees a pad.
// Tokens are rows of `pitch` elements; head h of a token begins at h · D. Where `lengths` is given, queries behind a row's length may be
// left out: zeros are written for them.

// One warp a query, any D up to 256: simple, for head widths that the other kernel does not have.
extern "C" __global__ void attention_plain(const bf16* q, const bf16* k, const bf16* v, bf16* out, int width, int heads, int kv_heads,
                                           int dim, int64_t pitch, int64_t out_pitch, float scale, const uint32_t* lengths) {
    const int query = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32, head = blockIdx.y;
    if (query >= width) return;
    const size_t first = size_t(blockIdx.z) * width;
    const int kv = head / (heads / kv_heads);
    bf16* to = out + (first + query) * out_pitch + head * dim;
    if (lengths && query >= lengths[blockIdx.z]) {
        for (int i = lane; i < dim; i += 32) to[i] = to_bf16(0.f);
        return;
    }
    float asked[8], sum[8], top = -INFINITY, total = 0;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
        const int i = n * 32 + lane;
        asked[n] = i < dim ? to_float(q[(first + query) * pitch + head * dim + i]) * scale : 0.f;
        sum[n] = 0;
    }
    for (int key = 0; key <= query; ++key) {
        const bf16* at = k + (first + key) * pitch + kv * dim;
        const bf16* value = v + (first + key) * pitch + kv * dim;
        float score = 0;
#pragma unroll
        for (int n = 0; n < 8; ++n) {
            const int i = n * 32 + lane;
            if (i < dim) score += asked[n] * to_float(at[i]);
        }
        score = warp_sum(score);
        const float higher = fmaxf(top, score), shrink = __expf(top - higher), p = __expf(score - higher);
        top = higher;
        total = total * shrink + p;
#pragma unroll
        for (int n = 0; n < 8; ++n) {
            const int i = n * 32 + lane;
            if (i < dim) sum[n] = sum[n] * shrink + p * to_float(value[i]);
        }
    }
#pragma unroll
    for (int n = 0; n < 8; ++n) {
        const int i = n * 32 + lane;
        if (i < dim) to[i] = to_bf16(sum[n] / total);
    }
}

// ---------------------------------------------------------------- tensor cores

static __forceinline__ uint32_t shared_address(const void* at) { return uint32_t(__cvta_generic_to_shared(at)); }

static __forceinline__ void copy_16(uint32_t to, const void* from, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
}

static __forceinline__ void load_4(uint32_t (&x)[4], uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(at));
}

static __forceinline__ void load_4_transposed(uint32_t (&x)[4], uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(at));
}

static __forceinline__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

constexpr int QUERIES = 128, KEYS = 64, THREADS = 256;

// Where 16 bytes `chunk` of a tile's row lie: rows are spread so that eight of them hit different banks.
template <int D>
static __forceinline__ uint32_t place(int row, int chunk) {
    return uint32_t(row * D + ((chunk ^ (row & 7)) * 8)) * 2;
}

// Rows first … first+ROWS−1 of `from`, zeros behind `end`, into a tile in shared memory.
template <int D, int ROWS>
static __forceinline__ void load_tile(uint32_t tile, const bf16* from, int64_t pitch, int first, int end) {
    constexpr int CHUNKS = D / 8;
#pragma unroll
    for (int n = 0; n < ROWS * CHUNKS / THREADS; ++n) {
        const int at = n * THREADS + threadIdx.x, row = at / CHUNKS, chunk = at % CHUNKS;
        const bool inside = first + row < end;
        copy_16(tile + place<D>(row, chunk), from + (inside ? first + row : 0) * pitch + chunk * 8, inside);
    }
}

// A block computes QUERIES queries of one head, a warp 16 of them; keys come in tiles of KEYS, one loaded while another is used.
// Online softmax as in FlashAttention-2 (Dao 2023).
template <int D>
static __forceinline__ void attention(const bf16* q, const bf16* k, const bf16* v, bf16* out, int width, int heads, int kv_heads,
                                      int64_t pitch, int64_t out_pitch, float scale, const uint32_t* lengths) {
    extern __shared__ __align__(128) unsigned char shared[];
    constexpr uint32_t TILE = KEYS * D * 2;
    const uint32_t q_tile = shared_address(shared), k_tile = q_tile + QUERIES * D * 2, v_tile = k_tile + 2 * TILE;
    // The longest rows of work first.
    const int first_query = (gridDim.x - 1 - blockIdx.x) * QUERIES, head = blockIdx.y, kv = head / (heads / kv_heads);
    const size_t first = size_t(blockIdx.z) * width;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    q += first * pitch + head * D;
    k += first * pitch + kv * D;
    v += first * pitch + kv * D;
    out += first * out_pitch + head * D;
    if (lengths && first_query >= lengths[blockIdx.z]) {
        const int queries = min(QUERIES, width - first_query);
        for (int at = threadIdx.x; at < queries * (D / 8); at += THREADS)
            *reinterpret_cast<uint4*>(out + (first_query + at / (D / 8)) * out_pitch + at % (D / 8) * 8) = make_uint4(0, 0, 0, 0);
        return;
    }
    const int tiles = min((width + KEYS - 1) / KEYS, (first_query + QUERIES - 1) / KEYS + 1);
    load_tile<D, QUERIES>(q_tile, q, pitch, first_query, width);
    load_tile<D, KEYS>(k_tile, k, pitch, 0, width);
    load_tile<D, KEYS>(v_tile, v, pitch, 0, width);
    asm volatile("cp.async.commit_group;" ::: "memory");

    uint32_t asked[D / 16][4];
    float sum[D / 8][4], top[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};
#pragma unroll
    for (int n = 0; n < D / 8; ++n) sum[n][0] = sum[n][1] = sum[n][2] = sum[n][3] = 0;
    // The two queries whose scores this thread holds.
    const int low_query = first_query + warp * 16 + lane / 4, last_of_warp = first_query + warp * 16 + 15;

    for (int tile = 0; tile < tiles; ++tile) {
        const uint32_t stage = (tile & 1) * TILE;
        if (tile + 1 < tiles) {
            load_tile<D, KEYS>(k_tile + (TILE - stage), k, pitch, (tile + 1) * KEYS, width);
            load_tile<D, KEYS>(v_tile + (TILE - stage), v, pitch, (tile + 1) * KEYS, width);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        __syncthreads();
        if (tile == 0) {
#pragma unroll
            for (int step = 0; step < D / 16; ++step)
                load_4(asked[step], q_tile + place<D>(warp * 16 + lane % 16, step * 2 + lane / 16));
        }
        const int first_key = tile * KEYS;
        // Nothing of the last tiles is seen by the upper warps.
        if (first_key <= last_of_warp) {
            float score[KEYS / 8][4];
#pragma unroll
            for (int n = 0; n < KEYS / 8; ++n) score[n][0] = score[n][1] = score[n][2] = score[n][3] = 0;
#pragma unroll
            for (int step = 0; step < D / 16; ++step) {
#pragma unroll
                for (int n = 0; n < KEYS / 16; ++n) {
                    uint32_t b[4];
                    load_4(b, k_tile + stage + place<D>(n * 16 + lane % 8 + lane / 16 * 8, step * 2 + lane / 8 % 2));
                    multiply_add(score[2 * n], asked[step], b[0], b[1]);
                    multiply_add(score[2 * n + 1], asked[step], b[2], b[3]);
                }
            }
            if (first_key + KEYS - 1 > first_query + warp * 16) {
#pragma unroll
                for (int n = 0; n < KEYS / 8; ++n) {
                    const int key = first_key + n * 8 + lane % 4 * 2;
#pragma unroll
                    for (int i = 0; i < 4; ++i)
                        if (key + i % 2 > low_query + i / 2 * 8) score[n][i] = -INFINITY;
                }
            }
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float higher = top[half];
#pragma unroll
                for (int n = 0; n < KEYS / 8; ++n) higher = fmaxf(higher, fmaxf(score[n][2 * half], score[n][2 * half + 1]));
                higher = fmaxf(higher, __shfl_xor_sync(0xffffffffu, higher, 1));
                higher = fmaxf(higher, __shfl_xor_sync(0xffffffffu, higher, 2));
                // Every query sees key 0, so `higher` is finite from the first tile on.
                const float shrink = exp2f((top[half] - higher) * scale), bias = higher * scale;
                top[half] = higher;
                float part = 0;
#pragma unroll
                for (int n = 0; n < KEYS / 8; ++n) {
#pragma unroll
                    for (int i = 2 * half; i < 2 * half + 2; ++i) {
                        score[n][i] = exp2f(fmaf(score[n][i], scale, -bias));
                        part += score[n][i];
                    }
                }
                total[half] = total[half] * shrink + part;
#pragma unroll
                for (int n = 0; n < D / 8; ++n) {
                    sum[n][2 * half] *= shrink;
                    sum[n][2 * half + 1] *= shrink;
                }
            }
#pragma unroll
            for (int step = 0; step < KEYS / 16; ++step) {
                const uint32_t p[4] = {pack(score[2 * step][0], score[2 * step][1]), pack(score[2 * step][2], score[2 * step][3]),
                                       pack(score[2 * step + 1][0], score[2 * step + 1][1]),
                                       pack(score[2 * step + 1][2], score[2 * step + 1][3])};
#pragma unroll
                for (int n = 0; n < D / 16; ++n) {
                    uint32_t b[4];
                    load_4_transposed(b, v_tile + stage + place<D>(step * 16 + lane % 16, n * 2 + lane / 16));
                    multiply_add(sum[2 * n], p, b[0], b[1]);
                    multiply_add(sum[2 * n + 1], p, b[2], b[3]);
                }
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        total[half] += __shfl_xor_sync(0xffffffffu, total[half], 1);
        total[half] += __shfl_xor_sync(0xffffffffu, total[half], 2);
        const int query = low_query + half * 8;
        if (query >= width) continue;
        const float share = 1.f / total[half];
#pragma unroll
        for (int n = 0; n < D / 8; ++n)
            *reinterpret_cast<uint32_t*>(out + query * out_pitch + n * 8 + lane % 4 * 2) =
                pack(sum[n][2 * half] * share, sum[n][2 * half + 1] * share);
    }
}

#define ATTENTION(D)                                                                                                             \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                                     \
        attention_##D(const bf16* q, const bf16* k, const bf16* v, bf16* out, int width, int heads, int kv_heads, int64_t pitch, \
                      int64_t out_pitch, float scale, const uint32_t* lengths) {                                                 \
        attention<D>(q, k, v, out, width, heads, kv_heads, pitch, out_pitch, scale, lengths);                                    \
    }
ATTENTION(64)
ATTENTION(128)
ATTENTION(256)
