// Softmax cross entropy of a chunk of supervised slots, over logits [slots, width] whose first VOCAB columns count. One block of
// LOSS_THREADS threads a slot, and one block a multiprocessor: the rows under way then stay in the L2 cache between the two passes.

#define LOSS_THREADS 1024
#define MINUS_INFINITY __int_as_float(0xff800000)

struct Peak {
    float top;    // largest logit
    float total;  // sum of exp(logit - top)
    int best;     // first column that has it
};

static __forceinline__ Peak join(Peak a, Peak b) {
    const bool second = b.top > a.top || (b.top == a.top && b.best < a.best);
    const float top = second ? b.top : a.top;
    // -inf minus -inf is no number; an empty part has total 0.
    const float left = a.total == 0.0f ? 0.0f : a.total * __expf(a.top - top);
    const float right = b.total == 0.0f ? 0.0f : b.total * __expf(b.top - top);
    return {top, left + right, second ? b.best : a.best};
}

// A row is read eight numbers a thread at a time; AHEAD reads are under way at once.
#define STRIDE (LOSS_THREADS * 8)
#define AHEAD 4

static __forceinline__ void take_in(Peak& peak, const uint4& raw, int c) {
    float x[8] = {low(raw.x), high(raw.x), low(raw.y), high(raw.y), low(raw.z), high(raw.z), low(raw.w), high(raw.w)};
    float top = peak.top;
    int best = peak.best;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if (VOCAB % 8 != 0 && c + i >= VOCAB) x[i] = MINUS_INFINITY;
        if (x[i] > top) {
            top = x[i];
            best = c + i;
        }
    }
    float total = peak.total == 0.0f ? 0.0f : peak.total * __expf(peak.top - top);
#pragma unroll
    for (int i = 0; i < 8; i++) total += __expf(x[i] - top);
    peak = {top, total, best};
}

// Maximum, its column and the sum of exponentials of a row; every thread gets them.
static __forceinline__ Peak row_peak(const bf16* logits) {
    __shared__ Peak room[LOSS_THREADS / 32];
    Peak peak = {MINUS_INFINITY, 0.0f, 0x7fffffff};
    int c = threadIdx.x * 8;
    for (; c + (AHEAD - 1) * STRIDE < VOCAB; c += AHEAD * STRIDE) {
        uint4 raw[AHEAD];
#pragma unroll
        for (int n = 0; n < AHEAD; n++) raw[n] = *reinterpret_cast<const uint4*>(logits + c + n * STRIDE);
#pragma unroll
        for (int n = 0; n < AHEAD; n++) take_in(peak, raw[n], c + n * STRIDE);
    }
    for (; c < VOCAB; c += STRIDE) take_in(peak, *reinterpret_cast<const uint4*>(logits + c), c);
#pragma unroll
    for (int step = 16; step > 0; step >>= 1) {
        Peak other;
        other.top = __shfl_xor_sync(0xffffffffu, peak.top, step);
        other.total = __shfl_xor_sync(0xffffffffu, peak.total, step);
        other.best = __shfl_xor_sync(0xffffffffu, peak.best, step);
        // Both partners must join in the same order to hold the same bits.
        peak = (threadIdx.x & step) ? join(other, peak) : join(peak, other);
    }
    if ((threadIdx.x & 31) == 0) room[threadIdx.x >> 5] = peak;
    __syncthreads();
    Peak all = room[0];
    for (int i = 1; i < LOSS_THREADS / 32; i++) all = join(all, room[i]);
    return all;
}

// Slot i of the chunk is slot slots[i] of the microbatch, has label[i] and loss weight weight[i]. Writes weight * cross entropy to
// loss[i], whether the label is the likeliest token to hits[slots[i]] (unless the weight is 0), and over the logits their gradient of the weighted sum.
extern "C" __global__ void __launch_bounds__(LOSS_THREADS)
cross_entropy(bf16* logits, int width, const uint32_t* slots, const uint32_t* labels, const float* weights, float* loss, uint8_t* hits) {
    bf16* row = logits + (size_t)blockIdx.x * width;
    const uint32_t label = labels[blockIdx.x];
    const float weight = weights[blockIdx.x];
    const Peak peak = row_peak(row);
    if (threadIdx.x == 0) {
        loss[blockIdx.x] = weight * (peak.top - to_float(row[label]) + logf(peak.total));
        if (weight > 0.f) hits[slots[blockIdx.x]] = peak.best == (int)label;
    }
    __syncthreads();
    const float scale = weight / peak.total;
    const auto put = [&](const uint4& raw, int c) {
        float x[8] = {low(raw.x), high(raw.x), low(raw.y), high(raw.y), low(raw.z), high(raw.z), low(raw.w), high(raw.w)};
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float p = scale * __expf(x[i] - peak.top);
            x[i] = c + i == (int)label ? p - weight : p;
            if (VOCAB % 8 != 0 && c + i >= VOCAB) x[i] = 0.0f;
        }
        __stcs(reinterpret_cast<uint4*>(row + c), make_uint4(pack(x[0], x[1]), pack(x[2], x[3]), pack(x[4], x[5]), pack(x[6], x[7])));
    };
    // Read and written for the last time here: the first to leave the cache.
    const auto get = [&](int c) { return __ldcs(reinterpret_cast<const uint4*>(row + c)); };
    int c = threadIdx.x * 8;
    for (; c + (AHEAD - 1) * STRIDE < width; c += AHEAD * STRIDE) {
        uint4 raw[AHEAD];
#pragma unroll
        for (int n = 0; n < AHEAD; n++) raw[n] = get(c + n * STRIDE);
#pragma unroll
        for (int n = 0; n < AHEAD; n++) put(raw[n], c + n * STRIDE);
    }
    for (; c < width; c += STRIDE) put(get(c), c);
}

// Adds the losses of a microbatch to total[0], in order, in one block of 256 threads.
extern "C" __global__ void __launch_bounds__(256) add_losses(const float* loss, int count, double* total) {
    __shared__ double room[256];
    double sum = 0.0;
    for (int i = threadIdx.x; i < count; i += 256) sum += loss[i];
    room[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < 256; i++) sum += room[i];
        total[0] += sum;
    }
}

// Adds to counts[slot] the right slots 1 ... slots-1, and to counts[0] the runs of right slots from slot 1 on. Whole numbers: any
// order of adding gives the same. One thread a block.
extern "C" __global__ void add_hits(const uint8_t* hits, int blocks, int slots, uint64_t* counts) {
    const int block = blockIdx.x * blockDim.x + threadIdx.x;
    if (block >= blocks) return;
    bool running = true;
    uint64_t run = 0;
    for (int slot = 1; slot < slots; slot++) {
        const bool hit = hits[(size_t)block * slots + slot];
        running = running && hit;
        run += running;
        if (hit) atomicAdd(counts + slot, 1ull);
    }
    if (run) atomicAdd(counts, run);
}
