// SwiGLU: inner = silu(gate) * up, and its derivative. gate_up [rows][2][width] holds both inputs of a row side by side; width is a
// multiple of 8.

static __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + __expf(-x)); }

extern "C" __global__ void __launch_bounds__(256) swiglu(const bf16* gate_up, bf16* inner, int width) {
    const size_t row = blockIdx.x;
    const int c = (blockIdx.y * 256 + threadIdx.x) * 8;
    if (c >= width) return;
    Eight gate, up;
    gate = load_eight(gate_up + row * 2 * width + c);
    up = load_eight(gate_up + row * 2 * width + width + c);
#pragma unroll
    for (int i = 0; i < 8; i++) up.v[i] *= gate.v[i] * sigmoid(gate.v[i]);
    store_eight(inner + row * width + c, up);
}

// In place: gate_up becomes its gradient, and `inner`, which holds the gradient of the product, becomes the product again (the
// gradient of the down projection needs it).
extern "C" __global__ void __launch_bounds__(256) swiglu_backward(bf16* gate_up, bf16* inner, int width) {
    const size_t row = blockIdx.x;
    const int c = (blockIdx.y * 256 + threadIdx.x) * 8;
    if (c >= width) return;
    Eight gate, up, g;
    bf16* at_gate = gate_up + row * 2 * width + c;
    gate = load_eight(at_gate);
    up = load_eight(at_gate + width);
    g = load_eight(inner + row * width + c);
    Eight product;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float s = sigmoid(gate.v[i]), silu = gate.v[i] * s;
        product.v[i] = silu * up.v[i];
        gate.v[i] = g.v[i] * up.v[i] * (s * (1.0f - silu) + silu);
        up.v[i] = g.v[i] * silu;
    }
    store_eight(inner + row * width + c, product);
    store_eight(at_gate, gate);
    store_eight(at_gate + width, up);
}
