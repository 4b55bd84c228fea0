// AdamW over one flat vector of all weights, and the norm of its gradient.

// partial[block] = the sum of squares of this block's share. Numbers are read four at a time.
extern "C" __global__ void __launch_bounds__(256) square_sum(const float4* gradient, size_t fours, double* partial) {
    __shared__ double room[256];
    double sum = 0.0;
    for (size_t i = (size_t)blockIdx.x * 256 + threadIdx.x; i < fours; i += (size_t)gridDim.x * 256) {
        const float4 g = gradient[i];
        sum += (double)(g.x * g.x + g.y * g.y) + (double)(g.z * g.z + g.w * g.w);
    }
    room[threadIdx.x] = sum;
    for (int step = 128; step > 0; step >>= 1) {
        __syncthreads();
        if (threadIdx.x < step) room[threadIdx.x] += room[threadIdx.x + step];
    }
    if (threadIdx.x == 0) partial[blockIdx.x] = room[0];
}

// total[0] = the sum of partial[count], in order.
extern "C" __global__ void add_squares(const double* partial, int count, double* total) {
    double sum = 0.0;
    for (int i = 0; i < count; i++) sum += partial[i];
    total[0] = sum;
}

// What one step multiplies with.
struct Settings {
    float beta1, beta2, eps;
    float decay;   // 1 - lr * weight decay
    float stride;  // lr / (1 - beta1^step)
    float spread;  // 1 / sqrt(1 - beta2^step)
};

static __forceinline__ void update(float& w, float& m, float& v, float g, const Settings& s) {
    m = s.beta1 * m + (1.f - s.beta1) * g;
    v = s.beta2 * v + (1.f - s.beta2) * g * g;
    w = s.decay * w - s.stride * (m / (sqrtf(v) * s.spread + s.eps));
}

// One step with the gradient divided by weight_sum and clipped to norm_max as L2 norm. Nothing changes when the loss or the norm is not finite: the host reads both
// afterwards and reports it.
extern "C" __global__ void __launch_bounds__(256)
adamw(float4* weights, float4* first, float4* second, const float4* gradient, uint2* narrow_weights, size_t fours,
      const double* squares, const double* loss, float beta1, float beta2, float eps, float decay, float stride, float spread,
      double weight_sum, double norm_max) {
    const Settings s = {beta1, beta2, eps, decay, stride, spread};
    const double norm = sqrt(squares[0]) / weight_sum;
    if (!isfinite(norm) || !isfinite(loss[0])) return;
    const double clip = norm_max / (norm + 1e-6);
    const float scale = (float)((clip < 1.0 ? clip : 1.0) / weight_sum);
    for (size_t i = (size_t)blockIdx.x * 256 + threadIdx.x; i < fours; i += (size_t)gridDim.x * 256) {
        float4 w = weights[i], m = first[i], v = second[i];
        const float4 g = gradient[i];
        update(w.x, m.x, v.x, g.x * scale, s);
        update(w.y, m.y, v.y, g.y * scale, s);
        update(w.z, m.z, v.z, g.z * scale, s);
        update(w.w, m.w, v.w, g.w * scale, s);
        weights[i] = w;
        first[i] = m;
        second[i] = v;
        narrow_weights[i] = make_uint2(pack(w.x, w.y), pack(w.z, w.w));
    }
}

// Rounds all weights.
extern "C" __global__ void round_weights(const float4* weights, uint2* narrow_weights, size_t fours) {
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < fours; i += (size_t)gridDim.x * blockDim.x) {
        const float4 w = weights[i];
        narrow_weights[i] = make_uint2(pack(w.x, w.y), pack(w.z, w.w));
    }
}

// Adds the loss and the counts of another drafter; one thread a count.
extern "C" __global__ void add_sums(double* loss, const double* other_loss, uint64_t* counts, const uint64_t* other_counts, int count) {
    const int i = threadIdx.x;
    if (i == 0) loss[0] += other_loss[0];
    if (i < count) counts[i] += other_counts[i];
}

// sum += other.
extern "C" __global__ void add_to(float4* sum, const float4* other, size_t fours) {
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < fours; i += (size_t)gridDim.x * blockDim.x) {
        float4 a = sum[i];
        const float4 b = other[i];
        a.x += b.x; a.y += b.y; a.z += b.z; a.w += b.w;
        sum[i] = a;
    }
}
