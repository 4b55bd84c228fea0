//! Looks at hidden states where they are: numbers that are none, and how far two of them are apart.

use super::{Buffer, CudaError, Kernel, Module, Pool, Ptr, Source, Stream, piece_bytes};
use half::bf16;
use shared::id::Bytes;
use std::sync::Arc;

/// The kernels' text.
pub(in crate::cuda) const SOURCE: Source<'_> = Source {
    file: "hidden.cu",
    text: include_str!("kernels/hidden.cu"),
};

/// The checks' kernels and their memory, for one stream.
#[derive(Debug)]
pub struct HiddenCheck {
    stream: Stream,
    first_not_finite: Kernel,
    squares_apart: Kernel,
    lengths: Buffer<u32>,
    found: Buffer<u64>,
    sums: Buffer<f64>,
}

/// A number that is none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NotFinite {
    /// The row, from 0.
    pub row: usize,
    /// The token, from 0.
    pub position: usize,
    /// NaN or an infinity.
    pub value: f64,
}

impl HiddenCheck {
    /// Device memory that it takes for microbatches of up to `rows` rows and rows of up to `width` tokens.
    pub fn bytes_needed(rows: usize, width: usize) -> Bytes {
        let bytes = piece_bytes(4 * rows) + piece_bytes(8) + piece_bytes(16 * width);
        Bytes(bytes as u64)
    }

    /// Kernels and memory for work in `stream`.
    ///
    /// # Errors
    /// Not enough memory, kernels that do not compile.
    pub fn new(stream: &Stream, rows: usize, width: usize) -> Result<Self, CudaError> {
        let gpu = stream.gpu();
        let pool: Arc<Pool> = Pool::new(gpu, Self::bytes_needed(rows, width), "checks")?;
        let module = Module::load(gpu, &SOURCE)?;
        Ok(Self {
            stream: stream.clone(),
            first_not_finite: module.kernel("first_not_finite")?,
            squares_apart: module.kernel("squares_apart")?,
            lengths: pool.buffer(rows)?,
            found: pool.buffer(1)?,
            sums: pool.buffer(2 * width)?,
        })
    }

    /// The first number that is none at a real token of `x` [rows, width, features]; waits for the stream. One pass over `x`.
    ///
    /// # Errors
    /// More rows than it was made for, failures of the device.
    pub fn not_finite(
        &self,
        x: Ptr<bf16>,
        lengths: &[u32],
        width: usize,
        features: usize,
    ) -> Result<Option<NotFinite>, CudaError> {
        let tokens = lengths.len() * width;
        x.check("hidden states", tokens * features)?;
        self.stream.upload(lengths, self.lengths.ptr())?;
        self.stream.zero(self.found.ptr())?;
        let launch = self
            .first_not_finite
            .launch([tokens, 1, 1], THREADS)
            .ptr(x)
            .ptr(self.lengths.ptr())
            .int(width)
            .int(features)
            .ptr(self.found.ptr());
        // SAFETY: as declared; lengths were checked.
        unsafe { launch.on(&self.stream) }?;
        let mut found = [0];
        self.stream.download_into(self.found.ptr(), &mut found)?;
        if found[0] == 0 {
            return Ok(None);
        }
        let place = !found[0] as usize;
        let mut value = [bf16::ZERO];
        self.stream
            .download_into(x.at(place..place + 1), &mut value)?;
        let token = place / features;
        Ok(Some(NotFinite {
            row: token / width,
            position: token % width,
            value: value[0].to_f64(),
        }))
    }

    /// ‖given − wanted‖ / ‖wanted‖ of two lists of `tokens` tokens; waits for the stream.
    ///
    /// # Errors
    /// More tokens than it was made for, failures of the device.
    pub fn distance(
        &self,
        given: Ptr<bf16>,
        wanted: Ptr<bf16>,
        tokens: usize,
        features: usize,
    ) -> Result<f64, CudaError> {
        given.check("hidden states", tokens * features)?;
        wanted.check("hidden states computed again", tokens * features)?;
        self.sums.ptr().check("sums of squares", 2 * tokens)?;
        let launch = self
            .squares_apart
            .launch([tokens, 1, 1], THREADS)
            .ptr(given)
            .ptr(wanted)
            .int(features)
            .ptr(self.sums.ptr());
        // SAFETY: as declared; lengths were checked.
        unsafe { launch.on(&self.stream) }?;
        let sums = self.stream.download(self.sums.ptr().at(0..2 * tokens))?;
        let sum = |n: usize| sums.iter().skip(n).step_by(2).sum::<f64>();
        let (apart, length) = (sum(0), sum(1));
        match apart == 0.0 {
            true => Ok(0.0),
            false => Ok((apart / length).sqrt()),
        }
    }
}

/// Threads of a block, which looks at one token.
const THREADS: usize = 256;
