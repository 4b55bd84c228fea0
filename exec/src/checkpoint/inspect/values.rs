//! What the weights themselves give away: numbers that are none, tensors that are empty, norms that never learnt.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use half::{bf16, f16};
use safetensors::tensor::Dtype;

use super::weight_files::Entry;
use super::{BOTH, Notes};

/// Read at once; a multiple of every element's size. (bytes)
const CHUNK: usize = 1 << 22;

/// Reads every weight once; `progress` hears of each piece, in bytes read and in all.
pub(super) fn check(
    entries: &BTreeMap<String, Entry>,
    progress: &mut dyn FnMut(u64, u64),
    notes: &mut Notes,
) {
    let total = entries.values().map(Entry::size).sum();
    let mut done = 0;
    let mut read = |bytes: u64| {
        done += bytes;
        progress(done, total);
    };
    let (mut broken, mut untrained, mut norms) = (0, 0, 0);
    for (name, entry) in entries {
        let Some(tally) = tally(entry, &mut read) else {
            continue;
        };
        if tally.not_finite > 0 {
            broken += 1;
            let finding = format!(
                "{} of {} weights are NaN or infinite",
                tally.not_finite, tally.count
            );
            let way_out = "take an earlier checkpoint; training diverged";
            notes.refuse(BOTH, name, finding, way_out);
            continue;
        }
        if tally.zeros == tally.count && !name.ends_with("bias") {
            let way_out = "check that it was trained and written";
            notes.warn(BOTH, name, "every weight is 0", way_out);
        }
        if name.ends_with("norm.weight") {
            norms += 1;
            untrained += usize::from(tally.ones == tally.count);
            let mean = tally.sum / tally.count.max(1) as f64;
            if tally.zeros < tally.count && mean.abs() < 0.05 {
                let finding = format!(
                    "averages {mean:.3}: engines multiply by the weight, not by 1 + weight"
                );
                let way_out = "add 1 if it was stored around 0";
                notes.warn(BOTH, name, finding, way_out);
            }
        }
    }
    if norms > 0 && untrained == norms {
        let finding = format!("all {norms} norms are exactly 1, as before training");
        let way_out = "check that this is a trained drafter";
        notes.warn(BOTH, "weights", finding, way_out);
    }
    if broken == 0 {
        notes.pass("weights", "all finite");
    }
}

#[derive(Debug, Default)]
struct Tally {
    count: u64,
    not_finite: u64,
    zeros: u64,
    ones: u64,
    sum: f64,
}

impl Tally {
    fn add(&mut self, x: f32) {
        self.count += 1;
        self.not_finite += u64::from(!x.is_finite());
        self.zeros += u64::from(x == 0.0);
        self.ones += u64::from(x == 1.0);
        self.sum += f64::from(x);
    }
}

/// Counts over one tensor; none where its elements are no floats or the file cannot be read any more.
fn tally(entry: &Entry, heard: &mut dyn FnMut(u64)) -> Option<Tally> {
    let mut file = File::open(&entry.file).ok()?;
    file.seek(SeekFrom::Start(entry.bytes.0)).ok()?;
    let mut data = file.take(entry.size());
    let mut tally = Tally::default();
    let mut chunk = Vec::with_capacity(CHUNK.min(entry.size() as usize));
    loop {
        chunk.clear();
        let read = data.by_ref().take(CHUNK as u64).read_to_end(&mut chunk);
        if read.ok()? == 0 {
            return Some(tally);
        }
        heard(chunk.len() as u64);
        match entry.dtype {
            Dtype::BF16 => each(&chunk, |b| tally.add(bf16::from_le_bytes(b).to_f32())),
            Dtype::F16 => each(&chunk, |b| tally.add(f16::from_le_bytes(b).to_f32())),
            Dtype::F32 => each(&chunk, |b| tally.add(f32::from_le_bytes(b))),
            _ => return None,
        }
    }
}

fn each<const N: usize>(bytes: &[u8], mut f: impl FnMut([u8; N])) {
    bytes.as_chunks::<N>().0.iter().for_each(|chunk| f(*chunk));
}
