//! cuDNN's fused attention, where the library is installed: on Hopper twice as fast as the kernels of this program.
//!
//! The library takes a graph of operations and finds one kernel for all of them. The graph below is the form in which it knows causal
//! attention (as its own frontend writes it): scores, scale, mask by comparing row and column, softmax, mix. The logarithms of the
//! softmax's sums are asked for too, though nobody reads them: without them it knows no kernel.

mod descriptor;

use crate::cuda::{Buffer, CudaError, Pool, Ptr, Stream};
use cudarc::cudnn::sys::{
    self, cudnnBackendAttributeName_t as Name, cudnnBackendDescriptorType_t as Kind,
    cudnnBackendHeurMode_t as HeurMode, cudnnDataType_t as DataType, cudnnPointwiseMode_t as Mode,
    cudnnReduceTensorOp_t as Reduce,
};
use descriptor::{Address, Descriptor, Handle, Pointer, check};
use half::bf16;
use std::collections::HashMap;
use std::sync::Arc;

/// What a plan may use beside its operands. (bytes)
pub(crate) const WORKSPACE_BYTES: usize = 16 << 20;

/// Kernels tried before a shape counts as unsupported.
const ENGINES: usize = 8;

/// Rows of attention, as they lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    /// Sequences.
    pub(crate) rows: usize,
    /// Tokens of each.
    pub(crate) width: usize,
    /// Query heads.
    pub(crate) heads: usize,
    /// Key and value heads.
    pub(crate) kv_heads: usize,
    /// Width of a head.
    pub(crate) head_dim: usize,
    /// Elements from token to token in queries, keys and values.
    pub(crate) pitch: usize,
    /// Elements from token to token in the result.
    pub(crate) out_pitch: usize,
}

/// The library on one stream.
#[derive(Debug)]
pub(crate) struct Cudnn {
    handle: sys::cudnnHandle_t,
    workspace: Buffer<u8>,
    /// An error where the library has no kernel for the shape.
    plans: HashMap<Shape, Result<Plan, CudaError>>,
}

// SAFETY: a handle may be used by any thread, one at a time, which `&mut self` keeps.
unsafe impl Send for Cudnn {}

impl Cudnn {
    /// `None` where the library is not installed.
    pub(crate) fn open(pool: &Arc<Pool>, stream: &Stream) -> Result<Option<Self>, CudaError> {
        // SAFETY: loading the library runs its initialisers.
        if !unsafe { sys::is_culib_present() } {
            return Ok(None);
        }
        pool.gpu().bind()?;
        let workspace = pool.buffer(WORKSPACE_BYTES)?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the library is there and the result has a place.
        check(unsafe { sys::cudnnCreate(&raw mut handle) }, "cudnnCreate")?;
        let made = Self {
            handle,
            workspace,
            plans: HashMap::new(),
        };
        // SAFETY: handle and stream are alive.
        let status = unsafe { sys::cudnnSetStream(made.handle, stream.raw().cast()) };
        check(status, "cudnnSetStream")?;
        Ok(Some(made))
    }

    /// Causal attention of q, k, v into out on the stream that it was opened for; `sums` [rows, heads, width] takes the logarithms of
    /// the softmax's sums. False, with nothing done, where the library has no kernel for the shape.
    pub(crate) fn attend(
        &mut self,
        shape: Shape,
        [q, k, v, out]: [Ptr<bf16>; 4],
        sums: Ptr<f32>,
    ) -> Result<bool, CudaError> {
        sums.check("sums", shape.rows * shape.heads * shape.width)?;
        let last = shape.rows * shape.width - 1;
        let (wide, narrow) = (shape.heads, shape.kv_heads);
        for (what, ptr, pitch, heads) in [
            ("queries", q, shape.pitch, wide),
            ("keys", k, shape.pitch, narrow),
            ("values", v, shape.pitch, narrow),
            ("attention's result", out, shape.out_pitch, wide),
        ] {
            ptr.check(what, last * pitch + heads * shape.head_dim)?;
        }
        if !self.plans.contains_key(&shape) {
            let plan = Plan::find(self.handle, &shape);
            self.plans.insert(shape, plan);
        }
        let Some(Ok(plan)) = self.plans.get(&shape) else {
            return Ok(false);
        };
        let scale = (shape.head_dim as f32).powf(-0.5);
        let mask = f32::NEG_INFINITY;
        let places = [
            Address(q.address()),
            Address(k.address()),
            Address(v.address()),
            Address(out.address()),
            Address((&raw const scale) as u64),
            Address((&raw const mask) as u64),
            Address(sums.address()),
        ];
        let mut pack = Descriptor::new(Kind::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?;
        pack.set(Name::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, &places)?;
        pack.set(Name::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &IDS)?;
        let workspace = Address(self.workspace.ptr().address());
        pack.set(Name::CUDNN_ATTR_VARIANT_PACK_WORKSPACE, &[workspace])?;
        let pack = pack.finalise()?;
        // SAFETY: operands were checked, the workspace is as large as the plan needs, numbers by value are read before this returns.
        let status = unsafe { sys::cudnnBackendExecute(self.handle, plan.plan.raw(), pack.raw()) };
        check(status, "cudnnBackendExecute(attention)")?;
        Ok(true)
    }

    /// Why the library has no kernel for a shape that it was asked for; `None` when it has one.
    pub(crate) fn refusal(&self) -> Option<&CudaError> {
        self.plans.values().find_map(|plan| plan.as_ref().err())
    }
}

impl Drop for Cudnn {
    fn drop(&mut self) {
        self.plans.clear();
        // SAFETY: made by `open` and destroyed once. Nobody is left to hear of an error.
        let _ = unsafe { sys::cudnnDestroy(self.handle) };
    }
}

/// Ids of queries, keys, values, result, scale, mask value and sums.
const IDS: [i64; 7] = [1, 2, 3, 4, 5, 6, 7];

/// A kernel for a shape.
#[derive(Debug)]
struct Plan {
    plan: Descriptor,
    /// What the plan was made from and may refer to.
    _made_from: Vec<Descriptor>,
}

impl Plan {
    fn find(handle: sys::cudnnHandle_t, shape: &Shape) -> Result<Self, CudaError> {
        let mut graph = Graph::default();
        graph.attention(shape)?;
        let Graph { mut parts, ops, .. } = graph;
        let mut whole = Descriptor::new(Kind::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?;
        let list: Vec<Pointer> = ops.iter().map(|&n| Pointer(parts[n].raw())).collect();
        whole.set(Name::CUDNN_ATTR_OPERATIONGRAPH_OPS, &list)?;
        whole.set(Name::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, &[Handle(handle)])?;
        let whole = whole.finalise()?;
        let mut heuristics = Descriptor::new(Kind::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?;
        heuristics.refer(Name::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &[&whole])?;
        let mode = [HeurMode::CUDNN_HEUR_MODE_A];
        heuristics.set(Name::CUDNN_ATTR_ENGINEHEUR_MODE, &mode)?;
        let heuristics = heuristics.finalise()?;
        let configs: Vec<Descriptor> = (0..ENGINES)
            .map(|_| Descriptor::new(Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR))
            .collect::<Result<_, _>>()?;
        let found = heuristics.list(Name::CUDNN_ATTR_ENGINEHEUR_RESULTS, &configs)?;
        let mut refused = CudaError::Shape("cuDNN knows no kernel for this attention".to_owned());
        for config in &configs[..found] {
            match plan_of(handle, config) {
                Ok(plan) => {
                    parts.extend([whole, heuristics]);
                    parts.extend(configs);
                    return Ok(Self {
                        plan,
                        _made_from: parts,
                    });
                }
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }
}

fn plan_of(handle: sys::cudnnHandle_t, config: &Descriptor) -> Result<Descriptor, CudaError> {
    let mut plan = Descriptor::new(Kind::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?;
    plan.set(Name::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, &[Handle(handle)])?;
    plan.refer(Name::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &[config])?;
    let plan = plan.finalise()?;
    let needed = plan.number(Name::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)?;
    if needed > WORKSPACE_BYTES as i64 {
        return Err(CudaError::Shape(format!(
            "cuDNN's attention wants a workspace of {needed} bytes, {WORKSPACE_BYTES} are set aside"
        )));
    }
    Ok(plan)
}

/// Operations under construction. Descriptors are named by their place in the list.
#[derive(Debug, Default)]
struct Graph {
    parts: Vec<Descriptor>,
    ops: Vec<usize>,
    id: i64,
}

impl Graph {
    fn attention(&mut self, s: &Shape) -> Result<(), CudaError> {
        use DataType::{
            CUDNN_DATA_BFLOAT16 as BF16, CUDNN_DATA_BOOLEAN as BOOL, CUDNN_DATA_FLOAT as F32,
            CUDNN_DATA_INT32 as I32,
        };
        let [b, n, h, g, d] = [s.rows, s.width, s.heads, s.kv_heads, s.head_dim].map(|x| x as i64);
        let (pitch, out_pitch) = (s.pitch as i64, s.out_pitch as i64);
        let tokens = [n * pitch, d, pitch, 1];
        let q = self.given(BF16, IDS[0], [b, h, n, d], tokens)?;
        let k = self.given(BF16, IDS[1], [b, g, d, n], [n * pitch, d, 1, pitch])?;
        let v = self.given(BF16, IDS[2], [b, g, n, d], tokens)?;
        let out = self.given(BF16, IDS[3], [b, h, n, d], [n * out_pitch, d, out_pitch, 1])?;
        let scale = self.by_value(IDS[4])?;
        let hidden = self.by_value(IDS[5])?;
        let all = ([b, h, n, n], [h * n * n, n * n, n, 1]);
        let each = ([b, h, n, 1], [h * n, n, 1, 1]);

        let scores = self.inner(F32, all)?;
        self.multiply(q, k, scores)?;
        let scaled = self.inner(F32, all)?;
        self.pointwise(Mode::CUDNN_POINTWISE_MUL, F32, &[scores, scale], scaled)?;
        let (row, column) = (self.inner(I32, all)?, self.inner(I32, all)?);
        self.index(2, scaled, row)?;
        self.index(3, scaled, column)?;
        let seen = self.inner(BOOL, all)?;
        self.pointwise(Mode::CUDNN_POINTWISE_CMP_GE, BOOL, &[row, column], seen)?;
        let masked = self.inner(F32, all)?;
        let select = Mode::CUDNN_POINTWISE_BINARY_SELECT;
        self.pointwise(select, F32, &[scaled, hidden, seen], masked)?;
        let top = self.inner(F32, each)?;
        self.reduce(Reduce::CUDNN_REDUCE_TENSOR_MAX, masked, top)?;
        let below = self.inner(F32, all)?;
        self.pointwise(Mode::CUDNN_POINTWISE_SUB, F32, &[masked, top], below)?;
        let raised = self.inner(F32, all)?;
        self.pointwise(Mode::CUDNN_POINTWISE_EXP, F32, &[below], raised)?;
        let total = self.inner(F32, each)?;
        self.reduce(Reduce::CUDNN_REDUCE_TENSOR_ADD, raised, total)?;
        let logarithm = self.inner(F32, each)?;
        self.pointwise(Mode::CUDNN_POINTWISE_LOG, F32, &[total], logarithm)?;
        let sums = self.given(F32, IDS[6], each.0, each.1)?;
        self.pointwise(Mode::CUDNN_POINTWISE_ADD, F32, &[top, logarithm], sums)?;
        let shares = self.inner(BF16, all)?;
        self.pointwise(Mode::CUDNN_POINTWISE_DIV, F32, &[raised, total], shares)?;
        self.multiply(shares, v, out)
    }

    fn keep(&mut self, part: Descriptor) -> Result<usize, CudaError> {
        self.parts.push(part.finalise()?);
        Ok(self.parts.len() - 1)
    }

    fn operation(&mut self, part: Descriptor) -> Result<(), CudaError> {
        let place = self.keep(part)?;
        self.ops.push(place);
        Ok(())
    }

    fn tensor(
        id: i64,
        kind: DataType,
        dims: [i64; 4],
        strides: [i64; 4],
    ) -> Result<Descriptor, CudaError> {
        let mut made = Descriptor::new(Kind::CUDNN_BACKEND_TENSOR_DESCRIPTOR)?;
        made.set(Name::CUDNN_ATTR_TENSOR_DATA_TYPE, &[kind])?;
        made.set(Name::CUDNN_ATTR_TENSOR_DIMENSIONS, &dims)?;
        made.set(Name::CUDNN_ATTR_TENSOR_STRIDES, &strides)?;
        made.set(Name::CUDNN_ATTR_TENSOR_UNIQUE_ID, &[id])?;
        made.set(Name::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, &[ALIGNMENT])?;
        Ok(made)
    }

    /// An operand in device memory.
    fn given(
        &mut self,
        kind: DataType,
        id: i64,
        dims: [i64; 4],
        strides: [i64; 4],
    ) -> Result<usize, CudaError> {
        let made = Self::tensor(id, kind, dims, strides)?;
        self.keep(made)
    }

    /// A number read from the host.
    fn by_value(&mut self, id: i64) -> Result<usize, CudaError> {
        let mut made = Self::tensor(id, DataType::CUDNN_DATA_FLOAT, [1; 4], [1; 4])?;
        made.set(Name::CUDNN_ATTR_TENSOR_IS_BY_VALUE, &[true])?;
        self.keep(made)
    }

    /// A result that exists inside the kernel alone.
    fn inner(
        &mut self,
        kind: DataType,
        (dims, strides): ([i64; 4], [i64; 4]),
    ) -> Result<usize, CudaError> {
        self.id += 1;
        let mut made = Self::tensor(INNER + self.id, kind, dims, strides)?;
        made.set(Name::CUDNN_ATTR_TENSOR_IS_VIRTUAL, &[true])?;
        self.keep(made)
    }

    fn multiply(&mut self, a: usize, b: usize, c: usize) -> Result<(), CudaError> {
        let mut how = Descriptor::new(Kind::CUDNN_BACKEND_MATMUL_DESCRIPTOR)?;
        let compute = [DataType::CUDNN_DATA_FLOAT];
        how.set(Name::CUDNN_ATTR_MATMUL_COMP_TYPE, &compute)?;
        let how = self.keep(how)?;
        let mut made = Descriptor::new(Kind::CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)?;
        let p = &self.parts;
        made.refer(Name::CUDNN_ATTR_OPERATION_MATMUL_ADESC, &[&p[a]])?;
        made.refer(Name::CUDNN_ATTR_OPERATION_MATMUL_BDESC, &[&p[b]])?;
        made.refer(Name::CUDNN_ATTR_OPERATION_MATMUL_CDESC, &[&p[c]])?;
        made.refer(Name::CUDNN_ATTR_OPERATION_MATMUL_DESC, &[&p[how]])?;
        self.operation(made)
    }

    fn reduce(&mut self, what: Reduce, x: usize, y: usize) -> Result<(), CudaError> {
        let mut how = Descriptor::new(Kind::CUDNN_BACKEND_REDUCTION_DESCRIPTOR)?;
        let compute = [DataType::CUDNN_DATA_FLOAT];
        how.set(Name::CUDNN_ATTR_REDUCTION_COMP_TYPE, &compute)?;
        how.set(Name::CUDNN_ATTR_REDUCTION_OPERATOR, &[what])?;
        let how = self.keep(how)?;
        let mut made = Descriptor::new(Kind::CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)?;
        let p = &self.parts;
        made.refer(Name::CUDNN_ATTR_OPERATION_REDUCTION_XDESC, &[&p[x]])?;
        made.refer(Name::CUDNN_ATTR_OPERATION_REDUCTION_YDESC, &[&p[y]])?;
        made.refer(Name::CUDNN_ATTR_OPERATION_REDUCTION_DESC, &[&p[how]])?;
        self.operation(made)
    }

    /// The place of each element along an axis.
    fn index(&mut self, axis: i64, like: usize, y: usize) -> Result<(), CudaError> {
        let mut how = pointwise(Mode::CUDNN_POINTWISE_GEN_INDEX, DataType::CUDNN_DATA_FLOAT)?;
        how.set(Name::CUDNN_ATTR_POINTWISE_AXIS, &[axis])?;
        self.apply(how, &[like], y)
    }

    fn pointwise(
        &mut self,
        mode: Mode,
        compute: DataType,
        inputs: &[usize],
        y: usize,
    ) -> Result<(), CudaError> {
        self.apply(pointwise(mode, compute)?, inputs, y)
    }

    fn apply(&mut self, how: Descriptor, inputs: &[usize], y: usize) -> Result<(), CudaError> {
        let how = self.keep(how)?;
        let mut made = Descriptor::new(Kind::CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)?;
        let p = &self.parts;
        made.refer(
            Name::CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
            &[&p[how]],
        )?;
        let names = [
            Name::CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
            Name::CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
            Name::CUDNN_ATTR_OPERATION_POINTWISE_TDESC,
        ];
        for (name, &input) in names.into_iter().zip(inputs) {
            made.refer(name, &[&p[input]])?;
        }
        made.refer(Name::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &[&p[y]])?;
        self.operation(made)
    }
}

fn pointwise(mode: Mode, compute: DataType) -> Result<Descriptor, CudaError> {
    let mut made = Descriptor::new(Kind::CUDNN_BACKEND_POINTWISE_DESCRIPTOR)?;
    made.set(Name::CUDNN_ATTR_POINTWISE_MODE, &[mode])?;
    made.set(Name::CUDNN_ATTR_POINTWISE_MATH_PREC, &[compute])?;
    Ok(made)
}

/// What operands are aligned to. (bytes)
const ALIGNMENT: i64 = 16;

/// Ids of inner tensors are above this.
const INNER: i64 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_takes_every_operation_of_the_graph() {
        // SAFETY: loading the library runs its initialisers.
        if !unsafe { sys::is_culib_present() } {
            return;
        }
        let shape = Shape {
            rows: 2,
            width: 512,
            heads: 32,
            kv_heads: 8,
            head_dim: 128,
            pitch: 6144,
            out_pitch: 4096,
        };
        let mut graph = Graph::default();
        graph.attention(&shape).unwrap();
        assert_eq!(graph.ops.len(), 14);
    }
}
