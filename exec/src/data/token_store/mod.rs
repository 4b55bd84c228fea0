//! Token stores: samples tokenised once, published whole, and mapped by every later run.
//!
//! A store is a folder:
//!
//! | file | holds |
//! |---|---|
//! | `manifest.json` | format, settings, sources with size and digest, counts, and size and CRC-32 of every other file |
//! | `tokens.bin` | token ids, u32 |
//! | `mask.bin` | loss flags, one byte a token, 0 or 1 |
//! | `index.bin` | 32 bytes a sample: u64 first token, u64 end of its name, u32 length, u32 loss tokens, u32 source, u32 line |
//! | `names.bin` | the `id` of every record that has one, one behind another, UTF-8 |
//! | `dropped.bin` | 12 bytes a record that became no sample: u32 source, u32 line, u32 reason |
//!
//! Numbers are little-endian, and every `.bin` file begins with a header of 16 bytes. Flags take a
//! byte each so that a sample's mask is handed out as it lies in the file, as its ids are.
//!
//! [`prepare`] writes below another name and renames the folder when all of it is on the disk, so a
//! store is whole or not there. [`open()`] checks headers, sizes and the sums of the small files, and
//! that settings and sources are still those the store was made from; [`verify`] checks every byte.

mod error;
mod layout;
mod manifest;
mod map;
mod mapped;
mod open;
mod recipe;
mod sources;
mod stage;
#[cfg(test)]
mod tests;
mod write;

pub use error::StoreError;
pub use manifest::Summary;
pub(super) use mapped::Mapped;
pub use open::{is_store, open, summary, verify};
pub use recipe::Recipe;
pub use write::prepare;
