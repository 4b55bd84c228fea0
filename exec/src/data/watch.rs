//! How a long read tells of its progress and is told to stop.

/// Whoever watches a read.
pub trait Watch: Sync {
    /// Bytes of all files to read, told once.
    fn total(&self, bytes: u64);
    /// Further bytes that were read.
    fn advanced(&self, bytes: u64);
    /// Whether to stop; asked now and then.
    fn is_stopped(&self) -> bool;
}

/// Nobody: the read goes on to its end.
#[derive(Debug, Clone, Copy)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn total(&self, _: u64) {}

    fn advanced(&self, _: u64) {}

    fn is_stopped(&self) -> bool {
        false
    }
}
