// The gated delta rule over right-padded rows of tokens, in chunks of 64 (Yang et al. 2024, "Gated Delta Networks"). KEY_DIM, VALUE_DIM and
// TAPS are defined before this text; both widths are multiples of 4.
//
// A token's projections lie in one row of `pitch` elements: queries and keys of all key heads, values, gates of the output, then one
// strength and one decay a value head. In shared memory rows have 8 elements more than they need, so that eight of them hit different banks.

constexpr int CHUNK = 64, THREADS = 128;
constexpr int KEYS = (KEY_DIM + 15) / 16 * 16, VALUES = (VALUE_DIM + 15) / 16 * 16;
// Columns of values that a block of the scan works on.
constexpr int SLICE = VALUES % 64 == 0 ? 64 : VALUES % 32 == 0 ? 32 : 16;
constexpr int KEY_ROW = KEYS + 8, VALUE_ROW = VALUES + 8, SLICE_ROW = SLICE + 8, CHUNK_ROW = CHUNK + 8, WIDE_ROW = CHUNK + 1;
// Elements of one access.
constexpr int EACH = KEY_DIM % 8 == 0 && VALUE_DIM % 8 == 0 ? 8 : 4;
static_assert(KEY_DIM % 4 == 0 && VALUE_DIM % 4 == 0 && KEY_DIM <= 256 && VALUE_DIM <= 256, "widths of heads");

static __forceinline__ uint32_t shared_address(const void* at) { return uint32_t(__cvta_generic_to_shared(at)); }

static __forceinline__ void load_4(uint32_t (&x)[4], const bf16* at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(shared_address(at))
                 : "memory");
}

static __forceinline__ void load_4_transposed(uint32_t (&x)[4], const bf16* at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(shared_address(at))
                 : "memory");
}

static __forceinline__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// 16 rows from `row` on and 16 columns from `column` on, as the first factor of a product.
static __forceinline__ void first_factor(uint32_t (&a)[4], const bf16* tile, int stride, int row, int column) {
    const int lane = threadIdx.x % 32;
    load_4(a, tile + (row + lane % 16) * stride + column + lane / 16 * 8);
}

// The same of a tile that holds the factor transposed: rows of the tile are columns of the factor.
static __forceinline__ void first_factor_transposed(uint32_t (&a)[4], const bf16* tile, int stride, int row, int column) {
    const int lane = threadIdx.x % 32;
    load_4_transposed(a, tile + (column + lane % 8 + lane / 16 * 8) * stride + row + lane / 8 % 2 * 8);
}

// 16 rows and 16 columns of the second factor: b[0], b[1] for the first eight columns, b[2], b[3] for the others.
static __forceinline__ void second_factor(uint32_t (&b)[4], const bf16* tile, int stride, int row, int column) {
    const int lane = threadIdx.x % 32;
    load_4_transposed(b, tile + (row + lane % 16) * stride + column + lane / 16 * 8);
}

// The same of a tile that holds the factor transposed.
static __forceinline__ void second_factor_transposed(uint32_t (&b)[4], const bf16* tile, int stride, int row, int column) {
    const int lane = threadIdx.x % 32;
    load_4(b, tile + (column + lane % 8 + lane / 16 * 8) * stride + row + lane / 8 % 2 * 8);
}

// CHUNK rows of WIDTH elements into a tile of rows of PADDED + 8; zeros behind `count` rows and behind WIDTH. Wait with `arrived`.
template <int WIDTH, int PADDED>
static __forceinline__ void load_rows(bf16* tile, const bf16* from, int64_t pitch, int count) {
    constexpr int PIECES = PADDED / EACH;
    for (int at = threadIdx.x; at < CHUNK * PIECES; at += THREADS) {
        const int row = at / PIECES, column = at % PIECES * EACH;
        const bool inside = row < count && column < WIDTH;
        const uint32_t to = shared_address(tile + row * (PADDED + 8) + column);
        const bf16* source = from + (inside ? row * pitch + column : 0);
        if constexpr (EACH == 8) {
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(source), "r"(inside ? 16 : 0) : "memory");
        } else {
            asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(source), "r"(inside ? 8 : 0) : "memory");
        }
    }
}

static __forceinline__ void arrived() {
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
}

static __forceinline__ float silu(float x) { return __fdividef(x, 1.f + __expf(-x)); }

// ---------------------------------------------------------------- convolution

constexpr int MOST = KEY_DIM > VALUE_DIM ? KEY_DIM : VALUE_DIM, GROUPS = (MOST + 127) / 128;
// Tokens that a warp walks over.
constexpr int SPAN = 16;

// silu of the causal convolution over each channel of queries, keys and values; query and key heads become unit vectors, queries over the
// root of their width besides. taps [TAPS, channels], the oldest token's first; out [tokens, channels]. A warp a head and SPAN tokens.
extern "C" __global__ void __launch_bounds__(THREADS)
delta_convolve(const bf16* rows, int64_t pitch, const float* taps, bf16* out, int width, int key_heads, int value_heads) {
    const int lane = threadIdx.x % 32, first = (blockIdx.x * (THREADS / 32) + threadIdx.x / 32) * SPAN;
    if (first >= width) return;
    const int head = blockIdx.y, channels = 2 * key_heads * KEY_DIM + value_heads * VALUE_DIM;
    const bool is_value = head >= 2 * key_heads;
    const int dim = is_value ? VALUE_DIM : KEY_DIM;
    const int offset = is_value ? 2 * key_heads * KEY_DIM + (head - 2 * key_heads) * VALUE_DIM : head * KEY_DIM;
    rows += size_t(blockIdx.z) * width * pitch + offset;
    out += size_t(blockIdx.z) * width * channels + offset;
    float weight[GROUPS][TAPS][4], seen[GROUPS][TAPS][4];
#pragma unroll
    for (int g = 0; g < GROUPS; ++g) {
        const int at = (g * 32 + lane) * 4;
#pragma unroll
        for (int n = 0; n < TAPS; ++n) {
            const int token = first - (TAPS - 1) + n;
            const bool inside = at < dim && n < TAPS - 1 && token >= 0;
            const uint2 raw = inside ? *reinterpret_cast<const uint2*>(rows + token * pitch + at) : make_uint2(0, 0);
            // Kept one place on: each token moves them back by one before it is added.
            if (n + 1 < TAPS)
                seen[g][n + 1][0] = low(raw.x), seen[g][n + 1][1] = high(raw.x), seen[g][n + 1][2] = low(raw.y), seen[g][n + 1][3] = high(raw.y);
#pragma unroll
            for (int i = 0; i < 4; ++i) weight[g][n][i] = at < dim ? taps[n * channels + offset + at + i] : 0.f;
        }
    }
    const int end = min(first + SPAN, width);
    for (int token = first; token < end; ++token) {
        float y[GROUPS][4], squares = 0;
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
            const int at = (g * 32 + lane) * 4;
            const uint2 raw = at < dim ? *reinterpret_cast<const uint2*>(rows + token * pitch + at) : make_uint2(0, 0);
            const float now[4] = {low(raw.x), high(raw.x), low(raw.y), high(raw.y)};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                float sum = 0;
#pragma unroll
                for (int n = 0; n < TAPS; ++n) {
                    seen[g][n][i] = n + 1 < TAPS ? seen[g][n + 1 < TAPS ? n + 1 : n][i] : now[i];
                    sum += weight[g][n][i] * seen[g][n][i];
                }
                y[g][i] = silu(sum);
                squares += y[g][i] * y[g][i];
            }
        }
        float scale = 1.f;
        if (!is_value) {
            scale = rsqrtf(warp_sum(squares) + 1e-6f);
            if (head < key_heads) scale *= rsqrtf(float(KEY_DIM));
        }
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
            const int at = (g * 32 + lane) * 4;
            if (at < dim)
                *reinterpret_cast<uint2*>(out + size_t(token) * channels + at) =
                    make_uint2(pack(y[g][0] * scale, y[g][1] * scale), pack(y[g][2] * scale, y[g][3] * scale));
        }
    }
}

// ---------------------------------------------------------------- within a chunk

// What depends on a chunk's tokens alone, for each row, value head and chunk: with A the strictly lower part of
// strength_i · (k_i · k_j) · decay from j to i, and T = (I + A)⁻¹,
//   writes = T · strength · v, erases = T · strength · decay since the chunk's start · k, within = lower part of (q_i · k_j) · decay from j to i,
// and sums, the logarithm of the decay since the chunk's start. A pad writes nothing and leaves all. mixed comes from delta_convolve.
extern "C" __global__ void __launch_bounds__(THREADS)
delta_chunk(const bf16* rows, int64_t pitch, const bf16* mixed, const float* bias, const float* rate, const uint32_t* lengths, bf16* writes,
            bf16* erases, bf16* within, float* sums, int width, int key_heads, int value_heads) {
    extern __shared__ __align__(128) unsigned char shared[];
    bf16* q_tile = reinterpret_cast<bf16*>(shared);
    bf16* k_tile = q_tile + CHUNK * KEY_ROW;
    bf16* v_tile = k_tile + CHUNK * KEY_ROW;
    bf16* for_writes = v_tile + CHUNK * VALUE_ROW;
    bf16* for_erases = for_writes + CHUNK * CHUNK_ROW;
    float* system = reinterpret_cast<float*>(for_erases + CHUNK * CHUNK_ROW);
    float* solved = system + CHUNK * WIDE_ROW;
    float* strength = solved + CHUNK * WIDE_ROW;
    float* sum = strength + CHUNK;
    const int chunk = blockIdx.x, head = blockIdx.y, key_head = head / (value_heads / key_heads), first = chunk * CHUNK;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int channels = 2 * key_heads * KEY_DIM + value_heads * VALUE_DIM, count = min(CHUNK, width - first);
    const size_t token = size_t(blockIdx.z) * width + first, place = (size_t(blockIdx.z) * value_heads + head) * gridDim.x + chunk;
    const bf16* from = mixed + token * channels;
    load_rows<KEY_DIM, KEYS>(q_tile, from + key_head * KEY_DIM, channels, count);
    load_rows<KEY_DIM, KEYS>(k_tile, from + (key_heads + key_head) * KEY_DIM, channels, count);
    load_rows<VALUE_DIM, VALUES>(v_tile, from + 2 * key_heads * KEY_DIM + head * VALUE_DIM, channels, count);
    if (threadIdx.x < CHUNK) {
        const int at = threadIdx.x;
        const bool real = first + at < int(lengths[blockIdx.z]);
        const bf16* row = rows + (token + (real ? at : 0)) * pitch + channels + value_heads * VALUE_DIM + head;
        const float x = to_float(row[value_heads]) + bias[head];
        const float soft = x > 20.f ? x : log1pf(expf(x));
        strength[at] = real ? 1.f / (1.f + expf(-to_float(row[0]))) : 0.f;
        // For now each token's own decay.
        solved[at] = real ? soft * rate[head] : 0.f;
    }
    arrived();
    if (threadIdx.x < CHUNK) {
        float through = 0;
        for (int at = 0; at <= threadIdx.x; ++at) through += solved[at];
        sum[threadIdx.x] = through;
        sums[place * CHUNK + threadIdx.x] = through;
    }
    __syncthreads();
    {
        float keys[CHUNK / 8][4] = {}, queries[CHUNK / 8][4] = {};
#pragma unroll
        for (int step = 0; step < KEYS; step += 16) {
            uint32_t k[4], q[4];
            first_factor(k, k_tile, KEY_ROW, warp * 16, step);
            first_factor(q, q_tile, KEY_ROW, warp * 16, step);
#pragma unroll
            for (int n = 0; n < CHUNK / 16; ++n) {
                uint32_t b[4];
                second_factor_transposed(b, k_tile, KEY_ROW, step, n * 16);
                multiply_add(keys[2 * n], k, b[0], b[1]);
                multiply_add(keys[2 * n + 1], k, b[2], b[3]);
                multiply_add(queries[2 * n], q, b[0], b[1]);
                multiply_add(queries[2 * n + 1], q, b[2], b[3]);
            }
        }
#pragma unroll
        for (int n = 0; n < CHUNK / 8; ++n) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int i = warp * 16 + lane / 4 + half * 8, j = n * 8 + lane % 4 * 2;
                float seen[2];
#pragma unroll
                for (int m = 0; m < 2; ++m) {
                    const float decay = j + m <= i ? __expf(sum[i] - sum[j + m]) : 0.f;
                    system[i * WIDE_ROW + j + m] = j + m < i ? strength[i] * keys[n][2 * half + m] * decay : 0.f;
                    seen[m] = queries[n][2 * half + m] * decay;
                }
                *reinterpret_cast<uint32_t*>(within + (place * CHUNK + i) * CHUNK + j) = pack(seen[0], seen[1]);
            }
        }
    }
    __syncthreads();
    // Column by column, from the top: a thread a column. What stands above the diagonal is 0.
    if (threadIdx.x < CHUNK) {
        const int j = threadIdx.x;
        for (int i = 0; i < CHUNK; ++i) {
            float x[4] = {i == j ? 1.f : 0.f, 0, 0, 0};
            int l = 0;
            for (; l + 4 <= i; l += 4)
#pragma unroll
                for (int n = 0; n < 4; ++n) x[n] -= system[i * WIDE_ROW + l + n] * solved[(l + n) * WIDE_ROW + j];
            for (; l < i; ++l) x[0] -= system[i * WIDE_ROW + l] * solved[l * WIDE_ROW + j];
            solved[i * WIDE_ROW + j] = (x[0] + x[1]) + (x[2] + x[3]);
        }
    }
    __syncthreads();
    for (int at = threadIdx.x; at < CHUNK * CHUNK; at += THREADS) {
        const int i = at / CHUNK, j = at % CHUNK;
        const float x = solved[i * WIDE_ROW + j] * strength[j];
        for_writes[i * CHUNK_ROW + j] = to_bf16(x);
        for_erases[i * CHUNK_ROW + j] = to_bf16(x * __expf(sum[j]));
    }
    __syncthreads();
    const auto multiply = [&](const bf16* solve, const bf16* tile, int stride, int columns, bf16* to) {
        uint32_t a[CHUNK / 16][4];
#pragma unroll
        for (int step = 0; step < CHUNK / 16; ++step) first_factor(a[step], solve, CHUNK_ROW, warp * 16, step * 16);
        for (int n = 0; n < columns; n += 16) {
            float c[2][4] = {};
#pragma unroll
            for (int step = 0; step < CHUNK / 16; ++step) {
                uint32_t b[4];
                second_factor(b, tile, stride, step * 16, n);
                multiply_add(c[0], a[step], b[0], b[1]);
                multiply_add(c[1], a[step], b[2], b[3]);
            }
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                bf16* row = to + (place * CHUNK + warp * 16 + lane / 4 + half * 8) * columns + n + lane % 4 * 2;
                *reinterpret_cast<uint32_t*>(row) = pack(c[0][2 * half], c[0][2 * half + 1]);
                *reinterpret_cast<uint32_t*>(row + 8) = pack(c[1][2 * half], c[1][2 * half + 1]);
            }
        }
    };
    multiply(for_writes, v_tile, VALUE_ROW, VALUES, writes);
    multiply(for_erases, k_tile, KEY_ROW, KEYS, erases);
}

// ---------------------------------------------------------------- from chunk to chunk

// The state M [KEYS, SLICE] of one head, in registers as f32, goes through the chunks of a row:
//   new = writes − erases · M, read = decay since start · q · M + within · new, M ← decay of the chunk · M + (decay until the end · k)ᵀ · new.
// out [tokens, value heads · VALUE_DIM]; zeros behind a row's last chunk. A block a row, value head and slice of its columns.
extern "C" __global__ void __launch_bounds__(THREADS)
delta_scan(const bf16* mixed, const bf16* writes, const bf16* erases, const bf16* within, const float* sums, const uint32_t* lengths, bf16* out,
           int width, int key_heads, int value_heads) {
    extern __shared__ __align__(128) unsigned char shared[];
    bf16* q_tile = reinterpret_cast<bf16*>(shared);
    bf16* k_tile = q_tile + CHUNK * KEY_ROW;
    bf16* erase_tile = k_tile + CHUNK * KEY_ROW;
    bf16* within_tile = erase_tile + CHUNK * KEY_ROW;
    bf16* write_tile = within_tile + CHUNK * CHUNK_ROW;
    bf16* state_tile = write_tile + CHUNK * SLICE_ROW;
    bf16* new_tile = state_tile + KEYS * SLICE_ROW;
    bf16* late_tile = new_tile + CHUNK * SLICE_ROW;
    float* sum = reinterpret_cast<float*>(late_tile + CHUNK * SLICE_ROW);
    const int head = blockIdx.y, key_head = head / (value_heads / key_heads), column = blockIdx.x * SLICE;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int channels = 2 * key_heads * KEY_DIM + value_heads * VALUE_DIM, values = value_heads * VALUE_DIM;
    const int chunks = (width + CHUNK - 1) / CHUNK, length = lengths[blockIdx.z];
    mixed += size_t(blockIdx.z) * width * channels;
    out += size_t(blockIdx.z) * width * values + head * VALUE_DIM;
    // 16 rows of the state each, so many a warp.
    constexpr int TILES = KEYS / 16, OWN = (TILES + 3) / 4;
    float state[OWN][SLICE / 8][4] = {};
    for (int chunk = 0; chunk < chunks; ++chunk) {
        const int first = chunk * CHUNK, count = min(CHUNK, width - first);
        if (first >= length) {
            for (int at = threadIdx.x; at < count * SLICE; at += THREADS)
                if (column + at % SLICE < VALUE_DIM) out[size_t(first + at / SLICE) * values + column + at % SLICE] = to_bf16(0.f);
            continue;
        }
        const size_t place = (size_t(blockIdx.z) * value_heads + head) * chunks + chunk;
        const bf16* from = mixed + size_t(first) * channels;
        load_rows<KEY_DIM, KEYS>(q_tile, from + key_head * KEY_DIM, channels, count);
        load_rows<KEY_DIM, KEYS>(k_tile, from + (key_heads + key_head) * KEY_DIM, channels, count);
        load_rows<KEYS, KEYS>(erase_tile, erases + place * CHUNK * KEYS, KEYS, CHUNK);
        load_rows<CHUNK, CHUNK>(within_tile, within + place * CHUNK * CHUNK, CHUNK, CHUNK);
        load_rows<SLICE, SLICE>(write_tile, writes + place * CHUNK * VALUES + column, VALUES, CHUNK);
        if (threadIdx.x < CHUNK) sum[threadIdx.x] = sums[place * CHUNK + threadIdx.x];
#pragma unroll
        for (int own = 0; own < OWN; ++own) {
            const int tile = warp * OWN + own;
            if (tile >= TILES) break;
#pragma unroll
            for (int n = 0; n < SLICE / 8; ++n) {
                bf16* at = state_tile + (tile * 16 + lane / 4) * SLICE_ROW + n * 8 + lane % 4 * 2;
                *reinterpret_cast<uint32_t*>(at) = pack(state[own][n][0], state[own][n][1]);
                *reinterpret_cast<uint32_t*>(at + 8 * SLICE_ROW) = pack(state[own][n][2], state[own][n][3]);
            }
        }
        arrived();
        const float total = sum[CHUNK - 1];
        float old[SLICE / 8][4] = {}, read[SLICE / 8][4] = {};
#pragma unroll
        for (int step = 0; step < KEYS; step += 16) {
            uint32_t e[4], q[4];
            first_factor(e, erase_tile, KEY_ROW, warp * 16, step);
            first_factor(q, q_tile, KEY_ROW, warp * 16, step);
#pragma unroll
            for (int n = 0; n < SLICE / 16; ++n) {
                uint32_t b[4];
                second_factor(b, state_tile, SLICE_ROW, step, n * 16);
                multiply_add(old[2 * n], e, b[0], b[1]);
                multiply_add(old[2 * n + 1], e, b[2], b[3]);
                multiply_add(read[2 * n], q, b[0], b[1]);
                multiply_add(read[2 * n + 1], q, b[2], b[3]);
            }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = warp * 16 + lane / 4 + half * 8;
            const float since = __expf(sum[row]), until = __expf(total - sum[row]);
#pragma unroll
            for (int n = 0; n < SLICE / 8; ++n) {
                const int at = row * SLICE_ROW + n * 8 + lane % 4 * 2;
                const uint32_t written = *reinterpret_cast<const uint32_t*>(write_tile + at);
                const float a = low(written) - old[n][2 * half], b = high(written) - old[n][2 * half + 1];
                *reinterpret_cast<uint32_t*>(new_tile + at) = pack(a, b);
                *reinterpret_cast<uint32_t*>(late_tile + at) = pack(a * until, b * until);
                read[n][2 * half] *= since;
                read[n][2 * half + 1] *= since;
            }
        }
        __syncthreads();
#pragma unroll
        for (int step = 0; step < CHUNK; step += 16) {
            uint32_t a[4];
            first_factor(a, within_tile, CHUNK_ROW, warp * 16, step);
#pragma unroll
            for (int n = 0; n < SLICE / 16; ++n) {
                uint32_t b[4];
                second_factor(b, new_tile, SLICE_ROW, step, n * 16);
                multiply_add(read[2 * n], a, b[0], b[1]);
                multiply_add(read[2 * n + 1], a, b[2], b[3]);
            }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = warp * 16 + lane / 4 + half * 8;
            if (row >= count) continue;
#pragma unroll
            for (int n = 0; n < SLICE / 8; ++n) {
                const int at = column + n * 8 + lane % 4 * 2;
                if (at < VALUE_DIM)
                    *reinterpret_cast<uint32_t*>(out + size_t(first + row) * values + at) = pack(read[n][2 * half], read[n][2 * half + 1]);
            }
        }
        const float kept = __expf(total);
#pragma unroll
        for (int own = 0; own < OWN; ++own) {
            const int tile = warp * OWN + own;
            if (tile >= TILES) break;
#pragma unroll
            for (int n = 0; n < SLICE / 8; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i) state[own][n][i] *= kept;
#pragma unroll
            for (int step = 0; step < CHUNK; step += 16) {
                uint32_t a[4];
                first_factor_transposed(a, k_tile, KEY_ROW, tile * 16, step);
#pragma unroll
                for (int n = 0; n < SLICE / 16; ++n) {
                    uint32_t b[4];
                    second_factor(b, late_tile, SLICE_ROW, step, n * 16);
                    multiply_add(state[own][2 * n], a, b[0], b[1]);
                    multiply_add(state[own][2 * n + 1], a, b[2], b[3]);
                }
            }
        }
        __syncthreads();
    }
}

// ---------------------------------------------------------------- output

// Norm of each value head, then its gate: x / sqrt(mean(x²) + eps) · weight · silu(gate), in place over [tokens, value heads · VALUE_DIM].
// gates are rows of `pitch` elements. A warp a head of a token.
extern "C" __global__ void delta_gate(bf16* x, const bf16* gates, int64_t pitch, const bf16* weight, int tokens, int value_heads, float eps) {
    constexpr int FOURS = (VALUE_DIM + 127) / 128;
    const int unit = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    const int token = unit / value_heads, head = unit % value_heads;
    if (token >= tokens) return;
    x += (size_t(token) * value_heads + head) * VALUE_DIM;
    gates += token * pitch + head * VALUE_DIM;
    float held[FOURS][4] = {}, squares = 0;
#pragma unroll
    for (int g = 0; g < FOURS; ++g) {
        const int at = (g * 32 + lane) * 4;
        if (at >= VALUE_DIM) continue;
        const uint2 raw = *reinterpret_cast<const uint2*>(x + at);
        held[g][0] = low(raw.x), held[g][1] = high(raw.x), held[g][2] = low(raw.y), held[g][3] = high(raw.y);
#pragma unroll
        for (int i = 0; i < 4; ++i) squares += held[g][i] * held[g][i];
    }
    const float scale = rsqrtf(warp_sum(squares) / VALUE_DIM + eps);
#pragma unroll
    for (int g = 0; g < FOURS; ++g) {
        const int at = (g * 32 + lane) * 4;
        if (at >= VALUE_DIM) continue;
        const uint2 raw = *reinterpret_cast<const uint2*>(gates + at);
        const float z[4] = {low(raw.x), high(raw.x), low(raw.y), high(raw.y)};
#pragma unroll
        for (int i = 0; i < 4; ++i) held[g][i] *= scale * to_float(weight[at + i]) * silu(z[i]);
        *reinterpret_cast<uint2*>(x + at) = make_uint2(pack(held[g][0], held[g][1]), pack(held[g][2], held[g][3]));
    }
}
