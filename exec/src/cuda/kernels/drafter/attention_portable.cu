// The drafter's attention for devices before Hopper, and what the fast kernels are held against: a warp a query, or a warp a key, with
// nothing but shuffles. Layouts are those of attention.cu. Given by the host: HEAD_DIM, SLOTS, UNIT_HEADS, and
// WINDOW and CAUSAL as there.

#define EACH ((HEAD_DIM + 31) / 32)
#define LOG2E 1.4426950408889634f

// A head spread over a warp: lane l has elements l, l + 32, ...
struct Spread {
    float v[EACH];
};

static __forceinline__ Spread load_spread(const bf16* from) {
    Spread x;
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        const int at = threadIdx.x % 32 + 32 * i;
        x.v[i] = at < HEAD_DIM ? to_float(from[at]) : 0.f;
    }
    return x;
}

static __forceinline__ void store_spread(bf16* to, const Spread& x, float factor) {
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        const int at = threadIdx.x % 32 + 32 * i;
        if (at < HEAD_DIM) to[at] = to_bf16(x.v[i] * factor);
    }
}

static __forceinline__ float dot(const Spread& a, const Spread& b) {
    float sum = 0.f;
#pragma unroll
    for (int i = 0; i < EACH; ++i) sum += a.v[i] * b.v[i];
    return warp_sum(sum);
}

static __forceinline__ void add(Spread& sum, float factor, const Spread& x) {
#pragma unroll
    for (int i = 0; i < EACH; ++i) sum.v[i] += factor * x.v[i];
}

// Rows of heads in memory.
struct Rows {
    const bf16* at;
    int64_t pitch;
    __forceinline__ const bf16* head(int row, int head) const { return at + row * pitch + head * HEAD_DIM; }
};

// Where the number of a query lies in log_sum and mean.
static __forceinline__ size_t place(int slot, int head, int slots) {
    return ((size_t)(head / UNIT_HEADS) * slots + slot) * UNIT_HEADS + head % UNIT_HEADS;
}

// A block of slots: its anchor, and the first context row of its row of the microbatch.
struct Sight {
    int anchor, context;
};

// The first context position that a slot sees.
static __forceinline__ int first_seen(int anchor, int slot) { return WINDOW ? max(0, anchor + slot % SLOTS - (WINDOW - 1)) : 0; }

// Whether a slot sees another one of its block.
static __forceinline__ bool sees(int slot, int other) { return !(WINDOW && CAUSAL) || other <= slot; }

// Calls work(key, value) for every key that a slot sees.
template <class Work>
static __forceinline__ void each_key(int slot, Sight sight, Rows context_keys, Rows context_values, Rows slot_keys, Rows slot_values,
                                     int key_head, Work work) {
    for (int p = first_seen(sight.anchor, slot); p < sight.anchor; ++p) {
        const int row = sight.context + p;
        work(load_spread(context_keys.head(row, key_head)), load_spread(context_values.head(row, key_head)));
    }
    for (int row = slot / SLOTS * SLOTS; row < (slot / SLOTS + 1) * SLOTS; ++row) {
        if (!sees(slot, row)) continue;
        work(load_spread(slot_keys.head(row, key_head)), load_spread(slot_values.head(row, key_head)));
    }
}

extern "C" __global__ void __launch_bounds__(256)
attention(const bf16* queries, int64_t query_pitch, const bf16* context_keys, int64_t context_key_pitch, const bf16* context_values,
          int64_t context_value_pitch, const bf16* slot_keys, int64_t slot_key_pitch, const bf16* slot_values, int64_t slot_value_pitch,
          const Sight* sights, bf16* out, float* log_sum, int slots, int heads, int group, float scale) {
    const int item = blockIdx.x * 8 + threadIdx.x / 32;
    if (item >= slots * heads) return;
    const int slot = item / heads, head = item % heads, block = slot / SLOTS;
    const Spread query = load_spread(queries + slot * query_pitch + head * HEAD_DIM);
    const float factor = scale * LOG2E;
    Spread sum = {};
    float top = __int_as_float(0xff800000), total = 0.f;
    each_key(slot, sights[block], {context_keys, context_key_pitch}, {context_values, context_value_pitch}, {slot_keys, slot_key_pitch},
             {slot_values, slot_value_pitch}, head / group, [&](const Spread& key, const Spread& value) {
                 const float score = dot(query, key) * factor, peak = fmaxf(top, score), keep = exp2f(top - peak), p = exp2f(score - peak);
                 total = total * keep + p;
                 top = peak;
#pragma unroll
                 for (int i = 0; i < EACH; ++i) sum.v[i] = sum.v[i] * keep + p * value.v[i];
             });
    store_spread(out + (size_t)item * HEAD_DIM, sum, 1.f / total);
    if (threadIdx.x % 32 == 0) log_sum[place(slot, head, slots)] = top + log2f(total);
}

extern "C" __global__ void __launch_bounds__(256)
query_gradient(const bf16* queries, int64_t query_pitch, const bf16* gradients, const bf16* context_keys, int64_t context_key_pitch,
               const bf16* context_values, int64_t context_value_pitch, const bf16* slot_keys, int64_t slot_key_pitch,
               const bf16* slot_values, int64_t slot_value_pitch, const Sight* sights, const float* log_sum, const float* mean, bf16* out,
               int64_t pitch, int slots, int heads, int group, float scale) {
    const int item = blockIdx.x * 8 + threadIdx.x / 32;
    if (item >= slots * heads) return;
    const int slot = item / heads, head = item % heads, block = slot / SLOTS;
    const Spread query = load_spread(queries + slot * query_pitch + head * HEAD_DIM);
    const Spread gradient = load_spread(gradients + (size_t)item * HEAD_DIM);
    const float logs = log_sum[place(slot, head, slots)], means = mean[place(slot, head, slots)];
    Spread sum = {};
    each_key(slot, sights[block], {context_keys, context_key_pitch}, {context_values, context_value_pitch}, {slot_keys, slot_key_pitch},
             {slot_values, slot_value_pitch}, head / group, [&](const Spread& key, const Spread& value) {
                 const float p = exp2f(dot(query, key) * scale * LOG2E - logs);
                 add(sum, p * (dot(gradient, value) - means), key);
             });
    store_spread(out + slot * pitch + head * HEAD_DIM, sum, scale);
}

struct KeyShare {
    int row, rows, position, first_block, blocks, own;
};

extern "C" __global__ void __launch_bounds__(256)
key_gradient(const bf16* queries, int64_t query_pitch, const bf16* gradients, const bf16* context_keys, int64_t context_key_pitch,
             const bf16* context_values, int64_t context_value_pitch, const bf16* slot_keys, int64_t slot_key_pitch,
             const bf16* slot_values, int64_t slot_value_pitch, const KeyShare* shares, const int* anchors, const float* log_sum,
             const float* mean, bf16* context_out, int context_pitch, bf16* slot_out, int slot_pitch, int values_behind, int slots,
             int heads, int group, float scale) {
    const KeyShare share = shares[blockIdx.x];
    const int key_head = blockIdx.y;
    const Rows keys = share.own ? Rows{slot_keys, slot_key_pitch} : Rows{context_keys, context_key_pitch};
    const Rows values = share.own ? Rows{slot_values, slot_value_pitch} : Rows{context_values, context_value_pitch};
    for (int row = threadIdx.x / 32; row < share.rows; row += 8) {
        const Spread key = load_spread(keys.head(share.row + row, key_head)), value = load_spread(values.head(share.row + row, key_head));
        Spread for_key = {}, for_value = {};
        for (int block = share.first_block; block < share.first_block + share.blocks; ++block) {
            const int key_row = share.row + row, position = share.position + row;
            if (share.own ? key_row / SLOTS != block : position >= anchors[block]) continue;
            for (int slot = block * SLOTS; slot < (block + 1) * SLOTS; ++slot) {
                if (share.own ? !sees(slot, key_row) : position < first_seen(anchors[block], slot)) continue;
                for (int head = key_head * group; head < (key_head + 1) * group; ++head) {
                    const Spread query = load_spread(queries + slot * query_pitch + head * HEAD_DIM);
                    const Spread gradient = load_spread(gradients + ((size_t)slot * heads + head) * HEAD_DIM);
                    const float p = exp2f(dot(query, key) * scale * LOG2E - log_sum[place(slot, head, slots)]);
                    add(for_value, p, gradient);
                    add(for_key, p * (dot(gradient, value) - mean[place(slot, head, slots)]), query);
                }
            }
        }
        bf16* to = (share.own ? slot_out + (size_t)(share.row + row) * slot_pitch : context_out + (size_t)(share.row + row) * context_pitch) +
                   key_head * HEAD_DIM;
        store_spread(to, for_key, scale);
        store_spread(to + values_behind, for_value, 1.f);
    }
}

// mean [key head][chunk][slot][head] = the sum over a head of gradient * out: a warp a head.
extern "C" __global__ void __launch_bounds__(256) gradient_means(const bf16* gradient, const bf16* out, float* mean, int slots, int heads) {
    const int item = blockIdx.x * 8 + threadIdx.x / 32;
    if (item >= slots * heads) return;
    const float sum = dot(load_spread(gradient + (size_t)item * HEAD_DIM), load_spread(out + (size_t)item * HEAD_DIM));
    if (threadIdx.x % 32 == 0) mean[place(item / heads, item % heads, slots)] = sum;
}
