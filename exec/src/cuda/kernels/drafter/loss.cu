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

// Writes over a row of logits the gradient of weight * cross entropy with `label`.
static __forceinline__ void put_gradient(bf16* row, int width, uint32_t label, float weight, float top, float total) {
    const float scale = weight / total;
    const auto put = [&](const uint4& raw, int c) {
        float x[8] = {low(raw.x), high(raw.x), low(raw.y), high(raw.y), low(raw.z), high(raw.z), low(raw.w), high(raw.w)};
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float p = scale * __expf(x[i] - top);
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
    put_gradient(row, width, label, weight, peak.top, peak.total);
}

// The first of three steps of D-PACE: cross entropies to loss, hits, and what the gradient needs of a row to peaks.
extern "C" __global__ void __launch_bounds__(LOSS_THREADS)
entropies(const bf16* logits, int width, const uint32_t* slots, const uint32_t* labels, const float* weights, float* loss, uint8_t* hits,
          float2* peaks) {
    const bf16* row = logits + (size_t)blockIdx.x * width;
    const uint32_t label = labels[blockIdx.x];
    const Peak peak = row_peak(row);
    if (threadIdx.x != 0) return;
    loss[blockIdx.x] = peak.top - to_float(row[label]) + logf(peak.total);
    peaks[blockIdx.x] = make_float2(peak.top, peak.total);
    if (weights[blockIdx.x] > 0.f) hits[slots[blockIdx.x]] = peak.best == (int)label;
}

// The second: what each slot is worth, the accepted tokens that hang on it by the drafter's own probabilities smoothed with `alpha`
// (arXiv 2605.18810). Slots of a block follow one another, `block` slots a block at most; the thread of a block's first one walks over
// it. loss holds cross entropies before and value * cross entropy after. A slot of weight 0 is none.
extern "C" __global__ void block_values(const uint32_t* slots, const float* weights, float* loss, float* values, int count, int block,
                                        float alpha) {
    const int first = blockIdx.x * blockDim.x + threadIdx.x;
    if (first >= count) return;
    if (!(weights[first] > 0.f)) {
        values[first] = 0.f;
        loss[first] = 0.f;
        return;
    }
    const uint32_t own = slots[first] / block;
    if (first > 0 && slots[first - 1] / block == own) return;
    int end = first;
    float reached = 1.f;
    for (; end < count && weights[end] > 0.f && slots[end] / block == own; ++end) {
        reached *= (1.f - alpha) * expf(-loss[end]) + alpha;
        values[end] = reached;
    }
    float value = 0.f;
    for (int at = end - 1; at >= first; --at) {
        value += values[at];
        values[at] = value;
        loss[at] *= value;
    }
}

// The third: the gradient of the sum of value * cross entropy over the logits.
extern "C" __global__ void __launch_bounds__(LOSS_THREADS)
entropy_gradients(bf16* logits, int width, const uint32_t* labels, const float* values, const float2* peaks) {
    const float2 peak = peaks[blockIdx.x];
    put_gradient(logits + (size_t)blockIdx.x * width, width, labels[blockIdx.x], values[blockIdx.x], peak.x, peak.y);
}

// Largest number of a row and the sums of exponentials of its distance from it, as it is and over a temperature.
struct Softmax {
    float top, total, soft;
    int best;
};

static __forceinline__ Softmax join(Softmax a, Softmax b, float cold) {
    const bool second = b.top > a.top || (b.top == a.top && b.best < a.best);
    const float top = second ? b.top : a.top;
    const float left = a.top - top, right = b.top - top;
    const auto part = [](float sum, float apart) { return sum == 0.0f ? 0.0f : sum * __expf(apart); };
    return {top, part(a.total, left) + part(b.total, right), part(a.soft, left * cold) + part(b.soft, right * cold),
            second ? b.best : a.best};
}

// `cold` is 1 over the temperature. Every thread gets the row's.
static __forceinline__ Softmax row_softmax(const bf16* logits, float cold) {
    __shared__ Softmax room[LOSS_THREADS / 32];
    Softmax all = {MINUS_INFINITY, 0.0f, 0.0f, 0x7fffffff};
    for (int c = threadIdx.x * 8; c < VOCAB; c += STRIDE) {
        const Eight x = load_eight(logits + c);
        Softmax part = {MINUS_INFINITY, 0.0f, 0.0f, 0x7fffffff};
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (c + i < VOCAB && x.v[i] > part.top) part.top = x.v[i], part.best = c + i;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if (c + i >= VOCAB) continue;
            part.total += __expf(x.v[i] - part.top);
            part.soft += __expf((x.v[i] - part.top) * cold);
        }
        all = join(all, part, cold);
    }
#pragma unroll
    for (int step = 16; step > 0; step >>= 1) {
        Softmax other;
        other.top = __shfl_xor_sync(0xffffffffu, all.top, step);
        other.total = __shfl_xor_sync(0xffffffffu, all.total, step);
        other.soft = __shfl_xor_sync(0xffffffffu, all.soft, step);
        other.best = __shfl_xor_sync(0xffffffffu, all.best, step);
        // Both partners must join in the same order to hold the same bits.
        all = (threadIdx.x & step) ? join(other, all, cold) : join(all, other, cold);
    }
    __syncthreads();
    if ((threadIdx.x & 31) == 0) room[threadIdx.x >> 5] = all;
    __syncthreads();
    all = room[0];
    for (int i = 1; i < LOSS_THREADS / 32; i++) all = join(all, room[i], cold);
    return all;
}

// weight * ((1 - hard) * t^2 * KL(target || drafter) + hard * cross entropy) to loss[i], both distributions at temperature t for the
// divergence; hits; and over the drafter's logits their gradient. theirs are the target's logits of the same slots.
extern "C" __global__ void __launch_bounds__(LOSS_THREADS)
distil(bf16* logits, const bf16* theirs, int width, const uint32_t* slots, const uint32_t* labels, const float* weights, float* loss,
       uint8_t* hits, float temperature, float hard_share) {
    __shared__ float room[33];
    bf16* row = logits + (size_t)blockIdx.x * width;
    const bf16* wanted = theirs + (size_t)blockIdx.x * width;
    const uint32_t label = labels[blockIdx.x];
    const float weight = weights[blockIdx.x], cold = 1.f / temperature;
    const Softmax given = row_softmax(row, cold), right = row_softmax(wanted, cold);
    const float at_label = to_float(row[label]);
    // Nobody writes before all have read the label's logit.
    __syncthreads();
    const float soft = weight * (1.f - hard_share), hard = weight * hard_share;
    const float for_soft = soft * temperature / given.soft, for_right = soft * temperature / right.soft, for_hard = hard / given.total;
    float apart = 0.f;
    for (int c = threadIdx.x * 8; c < width; c += STRIDE) {
        Eight x = load_eight(row + c);
        const Eight y = load_eight(wanted + c);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float z = x.v[i], e = __expf((y.v[i] - right.top) * cold);
            if (c + i < VOCAB) apart += e * ((y.v[i] - right.top) - (z - given.top));
            float g = for_soft * __expf((z - given.top) * cold) - for_right * e;
            if (hard > 0.f) g += for_hard * __expf(z - given.top) - (c + i == (int)label ? hard : 0.f);
            x.v[i] = VOCAB % 8 != 0 && c + i >= VOCAB ? 0.f : g;
        }
        store_eight(row + c, x);
    }
    apart = block_sum(apart, room);
    if (threadIdx.x != 0) return;
    const float divergence = apart * cold / right.soft + logf(given.soft) - logf(right.soft);
    const float entropy = given.top - at_label + logf(given.total);
    loss[blockIdx.x] = soft * temperature * temperature * divergence + hard * entropy;
    if (weight > 0.f) hits[slots[blockIdx.x]] = given.best == (int)label;
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
