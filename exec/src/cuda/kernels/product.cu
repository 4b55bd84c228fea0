// Matrix products on Hopper with what goes before and after them: rows of a [m x k], each by its scale, times the transpose of
// b [n x k]; a and b are bf16, sums are float.
//
// A block computes tiles of 128 rows and 256 columns, one after the other. One warp copies panels of 64 numbers of k to shared memory
// through a ring; two warpgroups multiply, 64 rows each, and store what they made while the ring already fills for the next tile. Two
// blocks form a cluster: they work on tiles one below the other, each copies half of the columns' panel, and the copy engine writes it
// to both.
//
// Copies from outside a matrix give zeros, and stores outside are left out: sizes need only be multiples of 8.

#define TILE_ROWS 128
#define TILE_COLUMNS 256
#define PANEL 64
#define A_BYTES (TILE_ROWS * PANEL * 2)
#define B_BYTES (TILE_COLUMNS * PANEL * 2)
#define STAGE_BYTES (A_BYTES + B_BYTES)
#define STAGES 4
#define WARPS 8                // that multiply
#define PART_BYTES (16 * 128)  // 16 rows of 64 numbers: what a warp stores at a time
#define PARTS 2                // so many of them have room

// What is done with a product before it is stored.
enum Ending {
    GATED,   // silu(gate) * up: b holds the gates' rows and then as many of the ups
    TURNED,  // heads of 128 are normalised and turned
};

// d [64 x 256] = (or +=, with `add`) a * b, both along their rows.
static __forceinline__ void product_256(float (&d)[128], uint64_t a, uint64_t b, int add) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %130, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
        "%128, %129, p, 1, 1, 0, 0;\n"
        "}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
          "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
          "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
          "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
          "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),
          "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),
          "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]),
          "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]),
          "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]),
          "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]),
          "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]),
          "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]),
          "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
        : "l"(a), "l"(b), "r"(add));
}

static __forceinline__ uint32_t rank_in_cluster() {
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

static __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// Arrives at the same barrier of a block of the cluster. What is released are reads that are done: no memory needs ordering for the
// other block, and a release to the cluster would wait for all of this thread's memory accesses.
static __forceinline__ void barrier_arrive_at(uint32_t barrier, uint32_t block) {
    asm volatile(
        "{\n"
        ".reg .b32 there;\n"
        "mapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
        "}\n" ::"r"(barrier),
        "r"(block)
        : "memory");
}

// Copies a box of a matrix to shared memory, at first the number in column x of row y; its bytes count at `barrier`.
static __forceinline__ void copy_panel(uint32_t to, const TensorMap* map, uint32_t barrier, int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(to),
        "l"(map), "r"(barrier), "r"(x), "r"(y)
        : "memory");
}

// The same to both blocks of a cluster, at the same place and counting at the same barrier in each.
static __forceinline__ void copy_panel_to_both(uint32_t to, const TensorMap* map, uint32_t barrier, int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
        "l"(map), "r"(barrier), "r"(x), "r"(y), "h"((uint16_t)3)
        : "memory");
}

static __forceinline__ void store_part(const TensorMap* map, uint32_t from, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];\ncp.async.bulk.commit_group;" ::"l"(map),
                 "r"(from), "r"(x), "r"(y)
                 : "memory");
}

// Waits until at most N of this thread's stores still read shared memory.
template <int N>
static __forceinline__ void stores_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

// Four matrices of 8 x 8 numbers, as accumulators hold them, to the rows whose addresses the lanes give.
static __forceinline__ void store_matrices(uint32_t to, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}

// Tiles one below the other for the blocks of a cluster, by the place of the pair.
struct Place {
    int pair, column;
};

// The grid of tiles is walked in bands of `band` pairs, each from left to right: what clusters read at about the same time stays in
// the second-level cache.
static __forceinline__ Place place_of(int tile, int pairs, int columns, int band) {
    const int first = tile / (band * columns) * band, inside = tile - first * columns, height = min(band, pairs - first);
    return {first + inside % height, inside / height};
}

struct Ring {
    uint32_t stages, full, empty;
    int at = 0;
    uint32_t turn = 0;

    __forceinline__ uint32_t a() const { return stages + at * STAGE_BYTES; }
    __forceinline__ uint32_t b() const { return a() + A_BYTES; }
    __forceinline__ uint32_t filled() const { return full + at * 8; }
    __forceinline__ uint32_t freed(int stage) const { return empty + stage * 8; }
    __forceinline__ void next() {
        if (++at == STAGES) at = 0, turn ^= 1;
    }
};

// What a product's ending needs.
struct Extra {
    int rows, columns;                  // of the result
    int width, queries, keys;           // TURNED: tokens of a row; heads of either kind, both even
    float eps;                          // TURNED
    const float* scales;                // by row
    const bf16 *query_norm, *key_norm;  // TURNED: by number in the head
    const float2* table;                // TURNED: cos and sin [positions, 64]
};

// x / (1 + exp(-x)); tiny powers may become 0.
static __forceinline__ float silu(float x) {
    float power, part;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * -1.4426950408889634f));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(part) : "f"(1.f + power));
    return x * part;
}

// One warp's 16 rows of a tile, whose first is `row`.
struct Warp {
    uint32_t parts;  // PARTS of them in shared memory
    int lane, row;

    // 64 columns of d, from 4 * FIRST on, to `column` of the result.
    template <int FIRST>
    __forceinline__ void store(const TensorMap* out, int part, const float (&d)[128], int column) const {
        const uint32_t room = parts + part % PARTS * PART_BYTES;
        // Of the four matrices that a lane has a row of: rows 8 below in the second and fourth, columns 8 further in the third and fourth.
        const int matrix = lane / 8, y = lane % 8 + matrix % 2 * 8;
        if (lane == 0) stores_read<PARTS - 1>();
        __syncwarp();
#pragma unroll
        for (int j = 0; j < 8; j += 2) {
            const int i = 4 * (FIRST + j), chunk = j + matrix / 2;
            store_matrices(room + y * 128 + ((chunk ^ (y & 7)) << 4), pack(d[i], d[i + 1]), pack(d[i + 2], d[i + 3]),
                           pack(d[i + 4], d[i + 5]), pack(d[i + 6], d[i + 7]));
        }
        shared_fence();
        __syncwarp();
        if (lane == 0) store_part(out, room, column, row);
    }

    // The scale of the upper (half 0) or lower of a lane's two rows.
    __forceinline__ float scale_of(const Extra& e, int half) const {
        const int y = row + lane / 4 + 8 * half;
        return y < e.rows ? e.scales[y] : 0.f;
    }

    // Gates lie in the first half of d, their ups in the second; the first half is replaced.
    __forceinline__ void gate(float (&d)[128], const float (&scales)[2]) const {
#pragma unroll
        for (int i = 0; i < 64; ++i) {
            const float scale = scales[i / 2 % 2];
            d[i] = silu(scale * d[i]) * (scale * d[64 + i]);
        }
    }

    __forceinline__ void scale(float (&d)[128], const float (&scales)[2]) const {
#pragma unroll
        for (int i = 0; i < 128; ++i) d[i] *= scales[i / 2 % 2];
    }

    // 1 / sqrt(mean square) of the head that begins at FIRST, in the upper (HALF 0) or lower of a lane's two rows.
    template <int FIRST, int HALF>
    __forceinline__ float norm(const float (&d)[128], float eps) const {
        float squares = 0;
#pragma unroll
        for (int j = 0; j < 16; ++j)
#pragma unroll
            for (int i = 0; i < 2; ++i) squares += d[FIRST + 4 * j + 2 * HALF + i] * d[FIRST + 4 * j + 2 * HALF + i];
        squares += __shfl_xor_sync(0xffffffffu, squares, 1);
        squares += __shfl_xor_sync(0xffffffffu, squares, 2);
        return rsqrtf(squares / 128 + eps);
    }

    // cos and sin for a lane's numbers of a head: 8j + 2 (lane % 4) + {0, 1}, j = 0 ... 7, and those 64 further on.
    template <int HALF>
    __forceinline__ void load_turns(float4 (&turns)[8], const Extra& e) const {
        const int position = (row + lane / 4 + 8 * HALF) % e.width;
        const float4* from = reinterpret_cast<const float4*>(e.table + size_t(position) * 64) + lane % 4;
#pragma unroll
        for (int j = 0; j < 8; ++j) turns[j] = from[4 * j];
    }

    // Norm of the head that begins at FIRST, then rotation of its halves.
    template <int FIRST, int HALF>
    __forceinline__ void turn(float (&d)[128], const float4 (&turns)[8], const uint32_t (&weight)[16], float eps) const {
        const float scale = norm<FIRST, HALF>(d, eps);
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            float* lower = d + FIRST + 4 * j + 2 * HALF;
            float* upper = lower + 32;
            const float a = lower[0] * scale * low(weight[j]), b = upper[0] * scale * low(weight[8 + j]);
            const float u = lower[1] * scale * high(weight[j]), v = upper[1] * scale * high(weight[8 + j]);
            lower[0] = a * turns[j].x - b * turns[j].y, upper[0] = b * turns[j].x + a * turns[j].y;
            lower[1] = u * turns[j].z - v * turns[j].w, upper[1] = v * turns[j].z + u * turns[j].w;
        }
    }
};

template <Ending E>
static __forceinline__ void product(const TensorMap& a, const TensorMap& b, const TensorMap& out, int pairs, int columns, int panels, int band,
                                    const Extra& extra) {
    extern __shared__ uint8_t room[];
    const uint32_t base = (shared_address(room) + 1023) & ~1023u;
    Ring ring{base, base + STAGES * STAGE_BYTES + WARPS * PARTS * PART_BYTES, 0};
    ring.empty = ring.full + 8 * STAGES;
    const uint32_t rank = rank_in_cluster();
    // Uniform in a warp, which the compiler cannot know.
    const int group = __shfl_sync(0xffffffffu, int(threadIdx.x) / 128, 0), tiles = pairs * columns, cluster = blockIdx.x / 2, clusters = gridDim.x / 2;
    if (threadIdx.x == 0) {
        for (int n = 0; n < STAGES; ++n) {
            barrier_init(ring.full + 8 * n, 1);
            // The warps that multiply, of both blocks.
            barrier_init(ring.freed(n), 2 * WARPS);
        }
        barrier_init_fence();
    }
    cluster_sync();
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == 0) {
            prefetch_map(&a), prefetch_map(&b), prefetch_map(&out);
            ring.turn = 1;
            for (int tile = cluster; tile < tiles; tile += clusters) {
                const Place place = place_of(tile, pairs, columns, band);
                const int row = (2 * place.pair + rank) * TILE_ROWS;
                const int column = E == GATED ? place.column * TILE_COLUMNS / 2 + rank * extra.columns
                                              : place.column * TILE_COLUMNS + rank * TILE_COLUMNS / 2;
                for (int panel = 0; panel < panels; ++panel, ring.next()) {
                    barrier_wait(ring.freed(ring.at), ring.turn);
                    barrier_expect(ring.filled(), STAGE_BYTES);
                    copy_panel(ring.a(), &a, ring.filled(), panel * PANEL, row);
                    copy_panel_to_both(ring.b() + rank * B_BYTES / 2, &b, ring.filled(), panel * PANEL, column);
                }
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        const int warp = threadIdx.x / 32 - 4, lane = threadIdx.x % 32, half = group - 1;
        Warp mine{base + STAGES * STAGE_BYTES + warp * PARTS * PART_BYTES, lane, 0};
        float d[128];
        for (int tile = cluster; tile < tiles; tile += clusters) {
            const Place place = place_of(tile, pairs, columns, band);
            mine.row = (2 * place.pair + rank) * TILE_ROWS + warp * 16;
            int before = 0;
            for (int panel = 0; panel < panels; ++panel, ring.next()) {
                barrier_wait(ring.filled(), ring.turn);
                const uint64_t left = along_rows(ring.a() + half * A_BYTES / 2), right = along_rows(ring.b());
                products_begin();
#pragma unroll
                for (int step = 0; step < 4; ++step) product_256(d, left + 2 * step, right + 2 * step, panel > 0 || step > 0);
                products_commit();
                if (panel > 0) {
                    products_wait<1>();
                    if (lane < 2) barrier_arrive_at(ring.freed(before), lane);
                }
                before = ring.at;
            }
            const int column = place.column * (E == GATED ? TILE_COLUMNS / 2 : TILE_COLUMNS), head = column / 128;
            // Read while the last products are under way. A tile's two heads are of one kind.
            const bool turns = E == TURNED && head < extra.queries + extra.keys;
            float4 turn[8];
            uint32_t weight[16];
            if (turns) {
                const bf16* norm = (head < extra.queries ? extra.query_norm : extra.key_norm) + 2 * (lane % 4);
#pragma unroll
                for (int j = 0; j < 16; ++j) weight[j] = *reinterpret_cast<const uint32_t*>(norm + 8 * j);
                mine.load_turns<0>(turn, extra);
            }
            const float scales[2] = {mine.scale_of(extra, 0), mine.scale_of(extra, 1)};
            products_wait<0>();
            if (lane < 2) barrier_arrive_at(ring.freed(before), lane);
            hold(d);
            if (E == GATED) mine.gate(d, scales);
            if (E == TURNED) mine.scale(d, scales);
            if (turns) {
                mine.turn<0, 0>(d, turn, weight, extra.eps), mine.turn<64, 0>(d, turn, weight, extra.eps);
                mine.load_turns<1>(turn, extra);
                mine.turn<0, 1>(d, turn, weight, extra.eps), mine.turn<64, 1>(d, turn, weight, extra.eps);
            }
            mine.store<0>(&out, 0, d, column);
            mine.store<8>(&out, 1, d, column + 64);
            if (E == TURNED) {
                mine.store<16>(&out, 2, d, column + 128);
                mine.store<24>(&out, 3, d, column + 192);
            }
        }
        if (lane == 0) stores_read<0>();
    }
    // The other block may still write to this one's shared memory, or arrive at its barriers.
    cluster_sync();
}

#define PRODUCT(NAME, ENDING)                                                                                                         \
    extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)                                                    \
        NAME(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap out,         \
             int pairs, int columns, int panels, int band, const __grid_constant__ Extra extra) {                                     \
        product<ENDING>(a, b, out, pairs, columns, panels, band, extra);                                                              \
    }
PRODUCT(product_gated, GATED)
PRODUCT(product_turned, TURNED)
