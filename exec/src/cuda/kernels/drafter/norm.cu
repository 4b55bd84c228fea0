// RMSNorm over the hidden size and its derivative. HIDDEN (a multiple of 8) and THREADS are given by the host.

#define VECTORS ((HIDDEN / 8 + THREADS - 1) / THREADS)

// Which eight columns vector v of this thread holds; at least HIDDEN when none.
static __forceinline__ int column(int v) { return (v * THREADS + threadIdx.x) * 8; }

// y[i] = weight * x[from[i]] / rms. One block a row; `from` may be null: row i.
extern "C" __global__ void __launch_bounds__(THREADS) rms_norm(const bf16* x, const uint32_t* from, const float* weight, bf16* y, float eps) {
    __shared__ float room[64];
    const size_t row = from ? from[blockIdx.x] : blockIdx.x;
    Eight value[VECTORS];
    float square = 0.0f;
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        const int at = column(v);
        if (at < HIDDEN) {
            value[v] = load_eight(x + row * HIDDEN + at);
#pragma unroll
            for (int i = 0; i < 8; i++) square += value[v].v[i] * value[v].v[i];
        }
    }
    const float scale = rsqrtf(block_sums(square, 0.0f, room).x / HIDDEN + eps);
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        const int at = column(v);
        if (at < HIDDEN) {
            Eight w;
            w = load_eight(weight + at);
#pragma unroll
            for (int i = 0; i < 8; i++) value[v].v[i] *= scale * w.v[i];
            store_eight(y + (size_t)blockIdx.x * HIDDEN + at, value[v]);
        }
    }
}

// Eight numbers as they lie in memory, which for bf16 takes half the registers.
struct Packed {
    uint4 raw;
    __forceinline__ void load(const bf16* from) { raw = *reinterpret_cast<const uint4*>(from); }
    __forceinline__ Eight wide() const {
        return {low(raw.x), high(raw.x), low(raw.y), high(raw.y), low(raw.z), high(raw.z), low(raw.w), high(raw.w)};
    }
};
struct Wide {
    Eight raw;
    __forceinline__ void load(const float* from) { raw = load_eight(from); }
    __forceinline__ Eight wide() const { return raw; }
};

// The derivative. Row i of the gradient `dy` belongs to row from[i] of x (`from` null: row i). Writes
// - dx[from[i]] = residual[from[i]] + the gradient of x, where `residual` may be null (0) and dx may be null (not wanted),
// - y[i], the normalised rows again, unless null,
// - partial[block][HIDDEN], this block's share of the gradient of the weight.
template <class Held, class Gradient>
static __forceinline__ void norm_backward(const bf16* x, const uint32_t* from, const Gradient* dy, const bf16* residual,
                                              const float* weight, bf16* dx, bf16* y, float* partial, int rows, float eps) {
    __shared__ float room[64];
    Eight for_weight[VECTORS];
#pragma unroll
    for (int v = 0; v < VECTORS; v++)
#pragma unroll
        for (int i = 0; i < 8; i++) for_weight[v].v[i] = 0.0f;

    for (int n = blockIdx.x; n < rows; n += gridDim.x) {
        const size_t row = from ? from[n] : n;
        Packed held[VECTORS];
        Held held_gradient[VECTORS];
        float square = 0.0f, along = 0.0f;
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
            const int at = column(v);
            if (at < HIDDEN) {
                held[v].load(x + row * HIDDEN + at);
                held_gradient[v].load(dy + (size_t)n * HIDDEN + at);
                const Eight w = load_eight(weight + at), value = held[v].wide(), gradient = held_gradient[v].wide();
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    square += value.v[i] * value.v[i];
                    along += value.v[i] * gradient.v[i] * w.v[i];
                }
            }
        }
        const float2 sums = block_sums(square, along, room);
        const float scale = rsqrtf(sums.x / HIDDEN + eps);
        const float back = sums.y * scale / HIDDEN;
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
            const int at = column(v);
            if (at < HIDDEN) {
                const Eight w = load_eight(weight + at), value = held[v].wide(), gradient = held_gradient[v].wide();
                Eight out, again;
                if (residual) out = load_eight(residual + row * HIDDEN + at);
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    const float unit = value.v[i] * scale;
                    again.v[i] = unit * w.v[i];
                    for_weight[v].v[i] += gradient.v[i] * unit;
                    const float of_x = (gradient.v[i] * w.v[i] - unit * back) * scale;
                    out.v[i] = residual ? out.v[i] + of_x : of_x;
                }
                if (dx) store_eight(dx + row * HIDDEN + at, out);
                if (y) store_eight(y + (size_t)n * HIDDEN + at, again);
            }
        }
    }
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        const int at = column(v);
        if (at < HIDDEN)
#pragma unroll
            for (int i = 0; i < 8; i++) partial[(size_t)blockIdx.x * HIDDEN + at + i] = for_weight[v].v[i];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 768 / THREADS)
rms_norm_backward(const bf16* x, const uint32_t* from, const bf16* dy, const bf16* residual, const float* weight, bf16* dx, bf16* y,
                  float* partial, int rows, float eps) {
    norm_backward<Packed>(x, from, dy, residual, weight, dx, y, partial, rows, eps);
}

extern "C" __global__ void __launch_bounds__(THREADS)
rms_norm_backward_wide(const bf16* x, const float* dy, const float* weight, bf16* dx, float* partial, int rows, float eps) {
    norm_backward<Wide>(x, nullptr, dy, nullptr, weight, dx, nullptr, partial, rows, eps);
}

// sum[c] = keep * sum[c] + the sum over rows of partial[rows][pitch], in a fixed order, for c < width. A block of 256 threads takes 32
// columns.
extern "C" __global__ void __launch_bounds__(256) add_rows(const float* partial, float* sum, int rows, int width, int pitch, float keep) {
    __shared__ float room[8][32];
    const int lane = threadIdx.x % 32, group = threadIdx.x / 32, c = blockIdx.x * 32 + lane;
    float total = 0.f;
    if (c < width)
#pragma unroll 8
        for (int r = group; r < rows; r += 8) total += partial[(size_t)r * pitch + c];
    room[group][lane] = total;
    __syncthreads();
    if (group > 0 || c >= width) return;
    for (int g = 1; g < 8; ++g) total += room[g][lane];
    sum[c] = keep == 0.f ? total : keep * sum[c] + total;
}
