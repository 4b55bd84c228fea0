//! Matrices as products see them: where they lie, and whether they fit each other.

use crate::cuda::{CudaError, Element, Ptr};
use cudarc::cublaslt::sys;
use half::bf16;

/// A row-major matrix in device memory, or a batch of them, perhaps seen transposed.
#[derive(Debug)]
pub struct Matrix<T> {
    pub(super) ptr: Ptr<T>,
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Elements from one row to the next, in memory.
    pub(super) pitch: usize,
    pub(super) transposed: bool,
    pub(super) batch: usize,
    /// Elements from one matrix of the batch to the next.
    pub(super) stride: usize,
}

impl<T> Clone for Matrix<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Matrix<T> {}

impl<T: Element> Matrix<T> {
    /// A dense matrix at the start of `ptr`.
    pub fn new(ptr: Ptr<T>, rows: usize, columns: usize) -> Self {
        Self {
            ptr,
            rows,
            columns,
            pitch: columns,
            transposed: false,
            batch: 1,
            stride: 0,
        }
    }

    /// The same with `pitch` elements from row to row.
    #[must_use]
    pub fn with_pitch(self, pitch: usize) -> Self {
        Self { pitch, ..self }
    }

    /// `count` such matrices, `stride` elements apart; a stride of 0 repeats one.
    #[must_use]
    pub fn batched(self, count: usize, stride: usize) -> Self {
        Self {
            batch: count,
            stride,
            ..self
        }
    }

    /// The transposed view of the same memory.
    #[must_use]
    pub fn t(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            transposed: !self.transposed,
            ..self
        }
    }

    /// Elements from the first to behind the last one.
    pub(super) fn extent(&self) -> usize {
        let (rows, columns) = self.in_memory();
        match rows * columns {
            0 => 0,
            _ => (self.batch - 1) * self.stride + (rows - 1) * self.pitch + columns,
        }
    }

    pub(super) fn in_memory(&self) -> (usize, usize) {
        match self.transposed {
            true => (self.columns, self.rows),
            false => (self.rows, self.columns),
        }
    }

    pub(super) fn place(&self) -> Place {
        Place {
            pitch: self.pitch,
            transposed: self.transposed,
            stride: self.stride,
            // Pointers into the middle of a buffer may not allow the widest loads.
            alignment: 1 << self.ptr.address().trailing_zeros().min(8),
        }
    }
}

/// Where a product goes.
#[derive(Debug, Clone, Copy)]
pub enum Output {
    /// Rounded to bf16.
    Bf16(Matrix<bf16>),
    /// As summed.
    F32(Matrix<f32>),
}

impl From<Matrix<bf16>> for Output {
    fn from(matrix: Matrix<bf16>) -> Self {
        Self::Bf16(matrix)
    }
}

impl From<Matrix<f32>> for Output {
    fn from(matrix: Matrix<f32>) -> Self {
        Self::F32(matrix)
    }
}

impl Output {
    pub(super) fn shape(&self) -> [usize; 3] {
        match self {
            Self::Bf16(m) => [m.batch, m.rows, m.columns],
            Self::F32(m) => [m.batch, m.rows, m.columns],
        }
    }

    pub(super) fn place(&self) -> Place {
        match self {
            Self::Bf16(m) => m.place(),
            Self::F32(m) => m.place(),
        }
    }

    pub(super) fn fits(&self) -> bool {
        match self {
            Self::Bf16(m) => m.extent() <= m.ptr.len() && !m.transposed,
            Self::F32(m) => m.extent() <= m.ptr.len() && !m.transposed,
        }
    }

    pub(super) fn address(&self) -> u64 {
        match self {
            Self::Bf16(m) => m.ptr.address(),
            Self::F32(m) => m.ptr.address(),
        }
    }

    pub(super) fn kind(&self) -> sys::cudaDataType {
        match self {
            Self::Bf16(_) => sys::cudaDataType::CUDA_R_16BF,
            Self::F32(_) => sys::cudaDataType::CUDA_R_32F,
        }
    }
}

/// How a matrix lies in memory, as far as the choice of a kernel depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) pitch: usize,
    pub(super) transposed: bool,
    pub(super) stride: usize,
    pub(super) alignment: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    pub(super) batch: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) inner: usize,
    pub(super) places: [Place; 3],
    pub(super) is_f32: bool,
}

impl Shape {
    /// The same with sizes rounded up to eighths of a power of two: shapes of about one size share what timing chose.
    pub(super) fn rounded(self) -> Self {
        let up = |n: usize| n.next_multiple_of((n.next_power_of_two() / 8).max(1));
        Self {
            rows: up(self.rows),
            columns: up(self.columns),
            inner: up(self.inner),
            ..self
        }
    }
}

/// The shape of a product whose matrices fit each other and their memory.
pub(super) fn fit(a: &Matrix<bf16>, b: &Matrix<bf16>, c: &Output) -> Result<Shape, CudaError> {
    let [batch, rows, columns] = c.shape();
    let inner = a.columns;
    let fits = a.rows == rows
        && b.columns == columns
        && b.rows == inner
        && [a.batch, b.batch] == [batch; 2]
        && a.extent() <= a.ptr.len()
        && b.extent() <= b.ptr.len()
        && c.fits();
    if fits {
        return Ok(Shape {
            batch,
            rows,
            columns,
            inner,
            places: [a.place(), b.place(), c.place()],
            is_f32: matches!(c, Output::F32(_)),
        });
    }
    let (a, b) = ([a.batch, a.rows, a.columns], [b.batch, b.rows, b.columns]);
    let c = c.shape();
    Err(CudaError::Shape(format!(
        "a product of {a:?} and {b:?} into {c:?} (batch, rows, columns) does not fit"
    )))
}
