// The drafter's attention on Hopper. Queries are slots of blocks; the keys that the T slots of block j see are the context of its row
// before its anchor, then the block's own slots. Anchors ascend within a row.
//
// A unit is what one warpgroup works on: UNIT_HEADS query heads of one key head for the SLOTS slots of one block, at most 64 rows of
// queries, row r being slot r / UNIT_HEADS and head r % UNIT_HEADS. Keys come in tiles of 64. Every tile, of the context or of the
// slots themselves, shows a unit an interval of its rows, so the mask is two numbers.
//
// Given by the host: HEAD_DIM (16 to 128), SLOTS, UNIT_HEADS, UNITS (warpgroups of a block that compute: 2 or 3), STAGES, UNIT_STAGES
// (depths of the rings of key tiles and of units) and LANES (see key_gradient).

// WINDOW is 0 where the whole context before the anchor is seen; else slot k of a block at anchor a sees it from a + k - (WINDOW - 1) on,
// and with CAUSAL only slots 0 ... k of its block.

#define ROWS (UNIT_HEADS * SLOTS)
#define PARTS ((HEAD_DIM + 63) / 64)  // tiles side by side
#define WIDTH (PARTS * 64)
#define STEPS (HEAD_DIM / 16)         // steps along a head
#define PART_BYTES (PARTS * TILE_BYTES)
#define BOX_BYTES (PARTS * ROWS * 128)  // what a box of queries brings
#define LOG2E 1.4426950408889634f

// One block of the grid's blocks of slots, all of one row of the microbatch.
struct Share {
    int first_block, blocks;  // blocks of slots, at most UNITS
    int context;              // first context row of the microbatch's row
    int reach;                // last anchor: context rows seen by any of them
};

static __forceinline__ uint32_t tile_step(int step) { return (step / 4) * (TILE_BYTES / 16) + (step % 4) * 2; }

// scores = a tile of queries times a tile of keys, both along their rows.
static __forceinline__ void scores_of(float (&scores)[32], uint32_t a, uint32_t b) {
    const uint64_t left = along_rows(a), right = along_rows(b);
#pragma unroll
    for (int step = 0; step < STEPS; ++step) product_64(scores, left + tile_step(step), right + tile_step(step), step > 0);
}

// sum += weights [64 x 64] * tile [64 x WIDTH].
static __forceinline__ void weigh(float (&sum)[WIDTH / 2], const uint32_t (&weights)[4][4], uint32_t tile) {
    const uint64_t right = over_rows(tile);
#pragma unroll
    for (int step = 0; step < 4; ++step) product_of(sum, weights[step], right + step * 128);
}

static __forceinline__ void pack_weights(uint32_t (&packed)[4][4], const float (&x)[32]) {
#pragma unroll
    for (int step = 0; step < 4; ++step)
#pragma unroll
        for (int i = 0; i < 4; ++i) packed[step][i] = pack(x[8 * step + 2 * i], x[8 * step + 2 * i + 1]);
}

// Which keys of a tile are seen: from `low` until before `high`.
struct Seen {
    int low, high;
    __forceinline__ bool any() const { return low < 64 && high > 0; }
    __forceinline__ bool has(int key) const { return key >= low && key < high; }
};

// What a unit sees of a tile: `wide` by some of its slots, `narrow` by all of them.
struct Sight {
    Seen wide, narrow;
    bool context;
    int first;  // key of slot 0 in a tile of slots, or of the anchor in one of the context

    __forceinline__ Sight(bool of_context, int first_key) : context(of_context), first(first_key) {
        if (context) {
            wide = {WINDOW ? first - (WINDOW - 1) : 0, first};
            narrow = {WINDOW ? first + SLOTS - WINDOW : 0, first};
        } else {
            wide = {first, first + SLOTS};
            narrow = {first, WINDOW && CAUSAL ? first + 1 : first + SLOTS};
        }
    }

    // Whether some slot does not see some key.
    __forceinline__ bool masks() const { return narrow.low > 0 || narrow.high < 64; }

    // What one slot sees.
    __forceinline__ Seen of(int slot) const {
        if (!WINDOW) return wide;
        if (context) return {first + slot - (WINDOW - 1), first};
        return {first, CAUSAL ? first + slot + 1 : first + SLOTS};
    }
};

static __forceinline__ Sight sight(int tile, int context_tiles, int anchor, int place) {
    const bool context = tile < context_tiles;
    return Sight(context, context ? anchor - 64 * tile : place * SLOTS - 64 * (tile - context_tiles));
}

// The first tile of the context that any block of a share sees; anchors ascend.
static __forceinline__ int first_tile(const Share& share, const int* anchors) {
    return WINDOW ? max(0, anchors[share.first_block] - (WINDOW - 1)) / 64 : 0;
}

// The copies of a share's queries and keys, by one thread. What differs between the forward and the backward pass is the second tensor
// that travels with the queries.
struct Feed {
    const TensorMap *context_keys, *context_values, *slot_keys, *slot_values;

    __forceinline__ void tile(uint32_t to, uint32_t barrier, const Share& share, int tile, int context_tiles, int key_head) const {
        barrier_expect(barrier, 2 * PART_BYTES);
        const bool context = tile < context_tiles;
        const int row = context ? share.context + 64 * tile : share.first_block * SLOTS + 64 * (tile - context_tiles);
        const TensorMap *keys = context ? context_keys : slot_keys, *values = context ? context_values : slot_values;
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            copy_box(to + part * TILE_BYTES, keys, barrier, 64 * part, key_head, row);
            copy_box(to + PART_BYTES + part * TILE_BYTES, values, barrier, 64 * part, key_head, row);
        }
    }
};

static __forceinline__ void copy_unit(uint32_t to, const TensorMap* map, uint32_t barrier, int head, int slot) {
#pragma unroll
    for (int part = 0; part < PARTS; ++part) copy_box(to + part * TILE_BYTES, map, barrier, 64 * part, head, slot);
}

// A ring of STAGES tiles of keys and values between the warp that copies and the warpgroups that compute.
struct Ring {
    uint32_t tiles, full, empty;
    __forceinline__ uint32_t at(int stage) const { return tiles + stage * 2 * PART_BYTES; }
};

static __forceinline__ uint32_t aligned(const void* room) { return (shared_address(room) + 1023) & ~1023u; }

// Of the warpgroups, the last copies and needs few registers; the others compute.
#define FORWARD_THREADS (UNITS * 128 + 128)
#if UNITS == 2
#define GIVE_REGISTERS asm volatile("setmaxnreg.dec.sync.aligned.u32 24;")
#define TAKE_REGISTERS asm volatile("setmaxnreg.inc.sync.aligned.u32 240;")
#else
#define GIVE_REGISTERS asm volatile("setmaxnreg.dec.sync.aligned.u32 32;")
#define TAKE_REGISTERS asm volatile("setmaxnreg.inc.sync.aligned.u32 160;")
#endif

// out [slots, heads * HEAD_DIM] and the logarithm (base 2) of each query's sum of exponentials, log_sum [key head][chunk][slot][head].
// Grid: (shares, key heads * chunks), where chunks * UNIT_HEADS query heads share a key head.
extern "C" __global__ void __launch_bounds__(FORWARD_THREADS, 1)
attention(const __grid_constant__ TensorMap queries, const __grid_constant__ TensorMap context_keys,
          const __grid_constant__ TensorMap context_values, const __grid_constant__ TensorMap slot_keys,
          const __grid_constant__ TensorMap slot_values, const Share* shares, const int* anchors, bf16* out, float* log_sum, int slots,
          int heads, int chunks, float scale) {
    extern __shared__ uint8_t room[];
    __shared__ alignas(8) uint64_t barriers[2 * STAGES + 1];
    const Share share = shares[blockIdx.x];
    const int key_head = blockIdx.y / chunks, head = blockIdx.y * UNIT_HEADS;
    const int context_tiles = (share.reach + 63) / 64, tiles = context_tiles + (share.blocks * SLOTS + 63) / 64;
    const int begin = first_tile(share, anchors);
    const uint32_t query_tiles = aligned(room), barrier = shared_address(barriers);
    const Ring ring = {query_tiles + UNITS * PART_BYTES, barrier, barrier + 8 * STAGES};
    const uint32_t ready = barrier + 16 * STAGES;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            barrier_init(ring.full + 8 * stage, 1);
            barrier_init(ring.empty + 8 * stage, 4 * UNITS);
        }
        barrier_init(ready, 1);
        barrier_init_fence();
    }
    __syncthreads();
    const int unit = threadIdx.x / 128;
    if (unit == UNITS) {
        GIVE_REGISTERS;
        if (threadIdx.x % 128 == 0) {
            barrier_expect(ready, share.blocks * BOX_BYTES);
            for (int block = 0; block < share.blocks; ++block)
                copy_unit(query_tiles + block * PART_BYTES, &queries, ready, head, (share.first_block + block) * SLOTS);
            const Feed feed = {&context_keys, &context_values, &slot_keys, &slot_values};
            for (int tile = begin; tile < tiles; ++tile) {
                const int turn = tile - begin, stage = turn % STAGES;
                barrier_wait(ring.empty + 8 * stage, (turn / STAGES + 1) & 1);
                feed.tile(ring.at(stage), ring.full + 8 * stage, share, tile, context_tiles, key_head);
            }
        }
        return;
    }

    TAKE_REGISTERS;
    const bool active = unit < share.blocks;
    const int block = share.first_block + unit, anchor = active ? anchors[block] : 0;
    const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    // The slots of this thread's two rows.
    const int slot_of[2] = {(16 * warp + lane / 4) / UNIT_HEADS, (16 * warp + lane / 4 + 8) / UNIT_HEADS};
    const uint32_t query_tile = query_tiles + unit * PART_BYTES;
    const float factor = scale * LOG2E;
    float sum[WIDTH / 2], top[2] = {__int_as_float(0xff800000), __int_as_float(0xff800000)}, total[2] = {0.f, 0.f};
#pragma unroll
    for (int i = 0; i < WIDTH / 2; ++i) sum[i] = 0.f;
    barrier_wait(ready, 0);
    for (int tile = begin; tile < tiles; ++tile) {
        const int turn = tile - begin, stage = turn % STAGES;
        const uint32_t keys = ring.at(stage), values = keys + PART_BYTES;
        const Sight rows = sight(tile, context_tiles, anchor, unit);
        barrier_wait(ring.full + 8 * stage, (turn / STAGES) & 1);
        if (active && rows.wide.any()) {
            float scores[32];
            products_begin();
            scores_of(scores, query_tile, keys);
            products_commit();
            products_wait<0>();
            hold(scores);
            if (rows.masks()) {
                const Seen of_row[2] = {rows.of(slot_of[0]), rows.of(slot_of[1])};
#pragma unroll
                for (int i = 0; i < 32; ++i)
                    if (!of_row[i % 4 / 2].has(8 * (i / 4) + 2 * (lane % 4) + i % 2)) scores[i] = __int_as_float(0xff800000);
            }
            float factor_of[2], top_before;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float peak = scores[2 * half];
#pragma unroll
                for (int i = 0; i < 8; ++i) peak = fmaxf(peak, fmaxf(scores[4 * i + 2 * half], scores[4 * i + 2 * half + 1]));
                peak = fmaxf(peak, __shfl_xor_sync(0xffffffffu, peak, 1));
                peak = fmaxf(peak, __shfl_xor_sync(0xffffffffu, peak, 2));
                // Every tile that comes this far shows the unit at least one key; under a window not every slot has seen one yet.
                top_before = top[half];
                top[half] = fmaxf(top_before, peak * factor);
                peak = WINDOW && top[half] == __int_as_float(0xff800000) ? 0.f : top[half];
                factor_of[half] = exp2f(top_before - peak);
                float part = 0.f;
#pragma unroll
                for (int i = 0; i < 8; ++i) {
                    float &a = scores[4 * i + 2 * half], &b = scores[4 * i + 2 * half + 1];
                    a = exp2f(a * factor - peak);
                    b = exp2f(b * factor - peak);
                    part += a + b;
                }
                total[half] = total[half] * factor_of[half] + part;
            }
#pragma unroll
            for (int i = 0; i < WIDTH / 2; ++i) sum[i] *= factor_of[i % 4 / 2];
            uint32_t weights[4][4];
            pack_weights(weights, scores);
            products_begin();
            weigh(sum, weights, values);
            products_commit();
            products_wait<0>();
            hold(sum);
        }
        __syncwarp();
        if (lane == 0) barrier_arrive(ring.empty + 8 * stage);
    }
    if (!active) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        total[half] += __shfl_xor_sync(0xffffffffu, total[half], 1);
        total[half] += __shfl_xor_sync(0xffffffffu, total[half], 2);
        const int row = 16 * warp + lane / 4 + 8 * half;
        if (row >= ROWS) continue;
        const int slot = block * SLOTS + row / UNIT_HEADS, of = row % UNIT_HEADS;
        const float share_of = 1.f / total[half];
        bf16* to = out + ((size_t)slot * heads + head + of) * HEAD_DIM;
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 8; ++i)
            *reinterpret_cast<uint32_t*>(to + 8 * i + 2 * (lane % 4)) =
                pack(sum[4 * i + 2 * half] * share_of, sum[4 * i + 2 * half + 1] * share_of);
        if (lane % 4 == 0) log_sum[((size_t)blockIdx.y * slots + slot) * UNIT_HEADS + of] = top[half] + log2f(total[half]);
    }
}

// mean [key head][chunk][slot][head] = the sum over a head of gradient * out: a warp a head.
extern "C" __global__ void __launch_bounds__(256) gradient_means(const bf16* gradient, const bf16* out, float* mean, int slots, int heads) {
    const int item = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (item >= slots * heads) return;
    float sum = 0.f;
    for (int c = 2 * lane; c < HEAD_DIM; c += 64) {
        const uint32_t a = *reinterpret_cast<const uint32_t*>(gradient + (size_t)item * HEAD_DIM + c);
        const uint32_t b = *reinterpret_cast<const uint32_t*>(out + (size_t)item * HEAD_DIM + c);
        sum += low(a) * low(b) + high(a) * high(b);
    }
    sum = warp_sum(sum);
    const int slot = item / heads, head = item % heads;
    if (lane == 0) mean[((size_t)(head / UNIT_HEADS) * slots + slot) * UNIT_HEADS + head % UNIT_HEADS] = sum;
}

// The gradient of queries [slots, pitch], from that of `out`. Same grid as `attention`.
extern "C" __global__ void __launch_bounds__(FORWARD_THREADS, 1)
query_gradient(const __grid_constant__ TensorMap queries, const __grid_constant__ TensorMap gradients,
               const __grid_constant__ TensorMap context_keys, const __grid_constant__ TensorMap context_values,
               const __grid_constant__ TensorMap slot_keys, const __grid_constant__ TensorMap slot_values, const Share* shares,
               const int* anchors, const float* log_sum, const float* mean, bf16* out, int pitch, int slots, int chunks, float scale) {
    extern __shared__ uint8_t room[];
    __shared__ alignas(8) uint64_t barriers[2 * STAGES + 1];
    const Share share = shares[blockIdx.x];
    const int key_head = blockIdx.y / chunks, head = blockIdx.y * UNIT_HEADS;
    const int context_tiles = (share.reach + 63) / 64, tiles = context_tiles + (share.blocks * SLOTS + 63) / 64;
    const int begin = first_tile(share, anchors);
    const uint32_t query_tiles = aligned(room), barrier = shared_address(barriers);
    const Ring ring = {query_tiles + 2 * UNITS * PART_BYTES, barrier, barrier + 8 * STAGES};
    const uint32_t ready = barrier + 16 * STAGES;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            barrier_init(ring.full + 8 * stage, 1);
            barrier_init(ring.empty + 8 * stage, 4 * UNITS);
        }
        barrier_init(ready, 1);
        barrier_init_fence();
    }
    __syncthreads();
    const int unit = threadIdx.x / 128;
    if (unit == UNITS) {
        GIVE_REGISTERS;
        if (threadIdx.x % 128 == 0) {
            barrier_expect(ready, 2 * share.blocks * BOX_BYTES);
            for (int block = 0; block < share.blocks; ++block) {
                const uint32_t to = query_tiles + 2 * block * PART_BYTES;
                copy_unit(to, &queries, ready, head, (share.first_block + block) * SLOTS);
                copy_unit(to + PART_BYTES, &gradients, ready, head, (share.first_block + block) * SLOTS);
            }
            const Feed feed = {&context_keys, &context_values, &slot_keys, &slot_values};
            for (int tile = begin; tile < tiles; ++tile) {
                const int turn = tile - begin, stage = turn % STAGES;
                barrier_wait(ring.empty + 8 * stage, (turn / STAGES + 1) & 1);
                feed.tile(ring.at(stage), ring.full + 8 * stage, share, tile, context_tiles, key_head);
            }
        }
        return;
    }

    TAKE_REGISTERS;
    const bool active = unit < share.blocks;
    const int block = share.first_block + unit, anchor = active ? anchors[block] : 0;
    const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    // The slots of this thread's two rows.
    const int slot_of[2] = {(16 * warp + lane / 4) / UNIT_HEADS, (16 * warp + lane / 4 + 8) / UNIT_HEADS};
    const uint32_t query_tile = query_tiles + 2 * unit * PART_BYTES, gradient_tile = query_tile + PART_BYTES;
    const float factor = scale * LOG2E;
    float sum[WIDTH / 2], logs[2], means[2];
#pragma unroll
    for (int i = 0; i < WIDTH / 2; ++i) sum[i] = 0.f;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = 16 * warp + lane / 4 + 8 * half;
        const bool real = active && row < ROWS;
        const size_t at = ((size_t)blockIdx.y * slots + block * SLOTS) * UNIT_HEADS + row;
        logs[half] = real ? log_sum[at] : 0.f;
        means[half] = real ? mean[at] : 0.f;
    }
    barrier_wait(ready, 0);
    for (int tile = begin; tile < tiles; ++tile) {
        const int turn = tile - begin, stage = turn % STAGES;
        const uint32_t keys = ring.at(stage), values = keys + PART_BYTES;
        const Sight rows = sight(tile, context_tiles, anchor, unit);
        barrier_wait(ring.full + 8 * stage, (turn / STAGES) & 1);
        if (active && rows.wide.any()) {
            float p[32], g[32];
            products_begin();
            scores_of(p, query_tile, keys);
            products_commit();
            scores_of(g, gradient_tile, values);
            products_commit();
            products_wait<1>();
            hold(p);
#pragma unroll
            for (int i = 0; i < 32; ++i) p[i] = exp2f(p[i] * factor - logs[i % 4 / 2]);
            if (rows.masks()) {
                const Seen of_row[2] = {rows.of(slot_of[0]), rows.of(slot_of[1])};
#pragma unroll
                for (int i = 0; i < 32; ++i)
                    if (!of_row[i % 4 / 2].has(8 * (i / 4) + 2 * (lane % 4) + i % 2)) p[i] = 0.f;
            }
            products_wait<0>();
            hold(g);
#pragma unroll
            for (int i = 0; i < 32; ++i) p[i] *= g[i] - means[i % 4 / 2];
            uint32_t weights[4][4];
            pack_weights(weights, p);
            products_begin();
            weigh(sum, weights, keys);
            products_commit();
            products_wait<0>();
            hold(sum);
        }
        __syncwarp();
        if (lane == 0) barrier_arrive(ring.empty + 8 * stage);
    }
    if (!active) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = 16 * warp + lane / 4 + 8 * half;
        if (row >= ROWS) continue;
        bf16* to = out + (size_t)(block * SLOTS + row / UNIT_HEADS) * pitch + (head + row % UNIT_HEADS) * HEAD_DIM;
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 8; ++i)
            *reinterpret_cast<uint32_t*>(to + 8 * i + 2 * (lane % 4)) =
                pack(sum[4 * i + 2 * half] * scale, sum[4 * i + 2 * half + 1] * scale);
    }
}

// 128 rows of keys and values, 64 for each of two warpgroups, and the blocks that may see them.
struct KeyShare {
    int row, rows;            // first row of keys in its tensor, and how many are wanted
    int position;             // context: position of the first row; slots: the first row again
    int first_block, blocks;  // blocks of slots that see some of them
    int own;                  // whether the keys are slots
};

// LANES of a warp arrive at a barrier for all of it: 1, after the warp has met, or 32, each for itself. That is the same to the machine;
// a race checker that follows threads, not warps, understands the second alone.

#define KEY_WARPGROUPS 2
#define KEY_THREADS (KEY_WARPGROUPS * 128 + 128)

// Gradients of keys and values, from that of `out`. Grid: (key shares, key heads). Results go to context_out or slot_out, rows of
// `*_pitch` numbers whose first key head's gradient begins at the pointer and whose values' begin `*_values` numbers behind it.
extern "C" __global__ void __launch_bounds__(KEY_THREADS, 1)
key_gradient(const __grid_constant__ TensorMap queries, const __grid_constant__ TensorMap gradients,
             const __grid_constant__ TensorMap context_keys, const __grid_constant__ TensorMap context_values,
             const __grid_constant__ TensorMap slot_keys, const __grid_constant__ TensorMap slot_values, const KeyShare* shares,
             const int* anchors, const float* log_sum, const float* mean, bf16* context_out, int context_pitch, bf16* slot_out,
             int slot_pitch, int values_behind, int slots, int chunks, float scale) {
    extern __shared__ uint8_t room[];
    __shared__ alignas(8) uint64_t barriers[2 * UNIT_STAGES + 1];
    __shared__ alignas(16) float numbers[UNIT_STAGES][2][64];
    const KeyShare share = shares[blockIdx.x];
    const int key_head = blockIdx.y, units = share.blocks * chunks;
    const uint32_t key_tiles = aligned(room), unit_tiles = key_tiles + 2 * KEY_WARPGROUPS * PART_BYTES, barrier = shared_address(barriers);
    const uint32_t full = barrier, empty = barrier + 8 * UNIT_STAGES, ready = barrier + 16 * UNIT_STAGES;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < UNIT_STAGES; ++stage) {
            barrier_init(full + 8 * stage, LANES);
            barrier_init(empty + 8 * stage, 4 * KEY_WARPGROUPS * LANES);
        }
        barrier_init(ready, 1);
        barrier_init_fence();
    }
    // Boxes of fewer than 64 rows leave the rest as it is: it must add nothing.
    if (ROWS < 64) {
        uint8_t* from = room + (unit_tiles - shared_address(room));
        for (int at = threadIdx.x * 16; at < UNIT_STAGES * 2 * PART_BYTES; at += KEY_THREADS * 16)
            *reinterpret_cast<uint4*>(from + at) = make_uint4(0, 0, 0, 0);
        shared_fence();
    }
    __syncthreads();
    const int warpgroup = threadIdx.x / 128, lane = threadIdx.x % 32;
    if (warpgroup == KEY_WARPGROUPS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x % 128 < 32) {
            if (lane == 0) {
                barrier_expect(ready, 2 * KEY_WARPGROUPS * PART_BYTES);
                for (int w = 0; w < KEY_WARPGROUPS; ++w)
                    for (int part = 0; part < PARTS; ++part) {
                        const uint32_t to = key_tiles + 2 * w * PART_BYTES + part * TILE_BYTES;
                        copy_box(to, share.own ? &slot_keys : &context_keys, ready, 64 * part, key_head, share.row + 64 * w);
                        copy_box(to + PART_BYTES, share.own ? &slot_values : &context_values, ready, 64 * part, key_head, share.row + 64 * w);
                    }
            }
            for (int unit = 0; unit < units; ++unit) {
                const int stage = unit % UNIT_STAGES, slot = (share.first_block + unit / chunks) * SLOTS;
                const int chunk = key_head * chunks + unit % chunks;
                barrier_wait(empty + 8 * stage, (unit / UNIT_STAGES + 1) & 1);
                const size_t at = ((size_t)chunk * slots + slot) * UNIT_HEADS;
                for (int row = lane; row < 64; row += 32) {
                    // Rows without a query get weight 0.
                    numbers[stage][0][row] = row < ROWS ? log_sum[at + row] : __int_as_float(0x7f800000);
                    numbers[stage][1][row] = row < ROWS ? mean[at + row] : 0.f;
                }
                __syncwarp();
                if (lane == 0) {
                    const uint32_t to = unit_tiles + stage * 2 * PART_BYTES;
                    barrier_expect(full + 8 * stage, 2 * BOX_BYTES);
                    copy_unit(to, &queries, full + 8 * stage, chunk * UNIT_HEADS, slot);
                    copy_unit(to + PART_BYTES, &gradients, full + 8 * stage, chunk * UNIT_HEADS, slot);
                } else if (lane < LANES) {
                    barrier_arrive(full + 8 * stage);
                }
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        const int warp = threadIdx.x % 128 / 32, first = 64 * warpgroup;
        const uint32_t keys = key_tiles + 2 * warpgroup * PART_BYTES, values = keys + PART_BYTES;
        const float factor = scale * LOG2E;
        float for_keys[WIDTH / 2], for_values[WIDTH / 2];
#pragma unroll
        for (int i = 0; i < WIDTH / 2; ++i) for_keys[i] = for_values[i] = 0.f;
        const int row_here = 16 * warp + lane / 4;
        barrier_wait(ready, 0);
        for (int unit = 0; unit < units; ++unit) {
            const int stage = unit % UNIT_STAGES, block = share.first_block + unit / chunks;
            const uint32_t query_tile = unit_tiles + stage * 2 * PART_BYTES, gradient_tile = query_tile + PART_BYTES;
            // Where the anchor or slot 0 of the unit's block lies among this warpgroup's rows.
            const Sight rows = Sight(!share.own, (share.own ? block * SLOTS : anchors[block]) - share.position - first);
            barrier_wait(full + 8 * stage, (unit / UNIT_STAGES) & 1);
            if (rows.wide.any()) {
                float p[32], g[32];
                products_begin();
                scores_of(p, keys, query_tile);
                products_commit();
                scores_of(g, values, gradient_tile);
                products_commit();
                products_wait<1>();
                hold(p);
#pragma unroll
                for (int i = 0; i < 8; ++i) {
                    const float2 logs = *reinterpret_cast<const float2*>(&numbers[stage][0][8 * i + 2 * (lane % 4)]);
                    p[4 * i] = exp2f(p[4 * i] * factor - logs.x);
                    p[4 * i + 1] = exp2f(p[4 * i + 1] * factor - logs.y);
                    p[4 * i + 2] = exp2f(p[4 * i + 2] * factor - logs.x);
                    p[4 * i + 3] = exp2f(p[4 * i + 3] * factor - logs.y);
                }
                if (rows.masks()) {
#pragma unroll
                    for (int i = 0; i < 32; ++i) {
                        const int slot = (8 * (i / 4) + 2 * (lane % 4) + i % 2) / UNIT_HEADS;
                        if (!rows.of(slot).has(row_here + i % 4 / 2 * 8)) p[i] = 0.f;
                    }
                }
                uint32_t weights[4][4];
                pack_weights(weights, p);
                products_begin();
                weigh(for_values, weights, gradient_tile);
                products_commit();
                products_wait<1>();
                hold(g);
#pragma unroll
                for (int i = 0; i < 8; ++i) {
                    const float2 means = *reinterpret_cast<const float2*>(&numbers[stage][1][8 * i + 2 * (lane % 4)]);
                    p[4 * i] *= g[4 * i] - means.x;
                    p[4 * i + 1] *= g[4 * i + 1] - means.y;
                    p[4 * i + 2] *= g[4 * i + 2] - means.x;
                    p[4 * i + 3] *= g[4 * i + 3] - means.y;
                }
                uint32_t slopes[4][4];
                pack_weights(slopes, p);
                products_begin();
                weigh(for_keys, slopes, query_tile);
                products_commit();
                products_wait<0>();
                hold(for_values);
                hold(for_keys);
            }
            __syncwarp();
            if (lane < LANES) barrier_arrive(empty + 8 * stage);
        }
        bf16* out = share.own ? slot_out : context_out;
        const int pitch = share.own ? slot_pitch : context_pitch;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = first + row_here + 8 * half;
            if (row >= share.rows) continue;
            bf16* to = out + (size_t)(share.row + row) * pitch + key_head * HEAD_DIM + 2 * (lane % 4);
#pragma unroll
            for (int i = 0; i < HEAD_DIM / 8; ++i) {
                *reinterpret_cast<uint32_t*>(to + 8 * i) = pack(for_keys[4 * i + 2 * half] * scale, for_keys[4 * i + 2 * half + 1] * scale);
                *reinterpret_cast<uint32_t*>(to + values_behind + 8 * i) = pack(for_values[4 * i + 2 * half], for_values[4 * i + 2 * half + 1]);
            }
        }
    }
}
