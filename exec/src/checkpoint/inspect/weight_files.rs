//! The headers of a drafter's safetensors files: one, or the shards of an index.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, Metadata};

use super::{BOTH, Notes};
use crate::checkpoint::MODEL;

/// A tensor as its file's header describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) shape: Vec<usize>,
    pub(super) dtype: Dtype,
    pub(super) file: PathBuf,
    /// First and last-plus-one byte in the file.
    pub(super) bytes: (u64, u64),
}

impl Entry {
    pub(super) fn size(&self) -> u64 {
        self.bytes.1 - self.bytes.0
    }
}

const INDEX: &str = "model.safetensors.index.json";
const AGAIN: &str = "fetch or write it again";

/// Largest header that the format allows. (bytes)
const HEADER_MAX: u64 = 100_000_000;

/// All tensors of the folder by name; none where a file cannot be used.
pub(super) fn entries(dir: &Path, notes: &mut Notes) -> Option<BTreeMap<String, Entry>> {
    if dir.join(INDEX).exists() && !dir.join(MODEL).exists() {
        return sharded(dir, notes);
    }
    match header(&dir.join(MODEL)) {
        Ok(entries) => Some(entries),
        Err(problem) => {
            notes.refuse(BOTH, MODEL, problem, AGAIN);
            None
        }
    }
}

fn sharded(dir: &Path, notes: &mut Notes) -> Option<BTreeMap<String, Entry>> {
    #[derive(serde::Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let read = std::fs::read(dir.join(INDEX)).map_err(|e| e.to_string());
    let index: Result<Index, String> =
        read.and_then(|text| serde_json::from_slice(&text).map_err(|e| e.to_string()));
    let index = match index {
        Ok(index) => index,
        Err(error) => {
            notes.refuse(BOTH, INDEX, format!("cannot be used: {error}"), AGAIN);
            return None;
        }
    };
    let mut all = BTreeMap::new();
    let mut shards: Vec<&String> = index.weight_map.values().collect();
    shards.sort_unstable();
    shards.dedup();
    let mut whole = true;
    for shard in &shards {
        match header(&dir.join(shard)) {
            Ok(entries) => all.extend(entries),
            Err(problem) => {
                whole = false;
                notes.refuse(BOTH, *shard, problem, AGAIN);
            }
        }
    }
    let lost: Vec<&String> = index
        .weight_map
        .keys()
        .filter(|name| whole && !all.contains_key(*name))
        .collect();
    if let Some(first) = lost.first() {
        let finding = format!(
            "lists {} tensors that no shard holds, {first} first",
            lost.len()
        );
        notes.refuse(BOTH, INDEX, finding, AGAIN);
    } else if whole {
        notes.pass(INDEX, format!("{} shards", shards.len()));
    }
    whole.then_some(all)
}

/// Reads a file's header and compares the length it promises with the file's own.
fn header(path: &Path) -> Result<BTreeMap<String, Entry>, String> {
    let unreadable = |e: std::io::Error| format!("cannot be read: {e}");
    let mut file = File::open(path).map_err(unreadable)?;
    let length = file.metadata().map_err(unreadable)?.len();
    let mut size = [0; 8];
    file.read_exact(&mut size)
        .map_err(|_| format!("is cut short: {length} bytes hold no header"))?;
    let size = u64::from_le_bytes(size);
    if size > HEADER_MAX || size + 8 > length {
        return Err(format!(
            "is damaged or cut short: its header of {size} bytes does not fit in {length}"
        ));
    }
    let mut bytes = vec![0; size as usize];
    file.read_exact(&mut bytes).map_err(unreadable)?;
    // Shapes and places are checked against each other as they are read.
    let metadata: Metadata =
        serde_json::from_slice(&bytes).map_err(|error| format!("has a damaged header: {error}"))?;
    let mut end = size + 8;
    let mut entries = BTreeMap::new();
    for (name, info) in metadata.tensors() {
        let (from, to) = info.data_offsets;
        let bytes = (size + 8 + from as u64, size + 8 + to as u64);
        end = end.max(bytes.1);
        let entry = Entry {
            shape: info.shape.clone(),
            dtype: info.dtype,
            file: path.to_owned(),
            bytes,
        };
        entries.insert(name, entry);
    }
    if end != length {
        return Err(format!(
            "is cut short or has bytes too many: its header describes {end} bytes, the file has {length}"
        ));
    }
    Ok(entries)
}
