//! Event files that TensorBoard reads.
//!
//! A file is a row of frames: length, its checksum, an `Event` message, its checksum. Lengths and checksums are little-endian; a
//! checksum is a masked CRC-32C. <https://www.tensorflow.org/tutorials/load_data/tfrecord> describes the frame,
//! `tensorboard/compat/proto/event.proto` the message.

use super::observer::Fields;
use crate::output::OutputError;
use prost::Message;
use serde_json::Value;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// One event file, written step by step.
pub(crate) struct EventFile {
    path: PathBuf,
    writer: BufWriter<File>,
    /// Seconds since 1970 at the run's beginning.
    began_s: f64,
}

impl EventFile {
    /// Begins a file in `folder`, which is made. What TensorBoard knows of steps after `done_steps`, from a part of the run that was
    /// lost, is withdrawn.
    ///
    /// # Errors
    /// When the disk refuses.
    pub(crate) fn create(folder: &Path, done_steps: u64) -> Result<Self, OutputError> {
        std::fs::create_dir_all(folder).map_err(|source| OutputError::NoDirectory {
            path: folder.into(),
            source,
        })?;
        let began = SystemTime::now().duration_since(UNIX_EPOCH);
        let began_s = began.unwrap_or_default().as_secs_f64();
        let name = format!(
            "events.out.tfevents.{:010}.dflash.{}",
            began_s as u64,
            std::process::id()
        );
        let path = folder.join(name);
        let file = File::create(&path).map_err(|source| OutputError::Failed {
            path: path.clone(),
            source,
        })?;
        let mut events = Self {
            path,
            writer: BufWriter::new(file),
            began_s,
        };
        let version = What::FileVersion("brain.Event:2".into());
        let start = What::SessionLog(SessionLog { status: START });
        let begun = events
            .event(0.0, 0, version)
            .and_then(|()| events.event(0.0, done_steps + 1, start))
            .and_then(|()| events.writer.flush());
        begun.map_err(|source| events.failed(source))?;
        Ok(events)
    }

    /// Writes every number of a step's line as a scalar and flushes, so that a watcher sees it.
    pub(crate) fn step(&mut self, at_s: f64, step: u64, line: &Fields) -> io::Result<()> {
        let value = scalars(line)
            .into_iter()
            .map(|(tag, value)| Scalar {
                tag,
                simple_value: Some(value as f32),
            })
            .collect();
        self.event(at_s, step, What::Summary(Summary { value }))?;
        self.writer.flush()
    }

    /// The error for a write that the system refused.
    pub(crate) fn failed(&self, source: io::Error) -> OutputError {
        OutputError::Failed {
            path: self.path.clone(),
            source,
        }
    }

    fn event(&mut self, at_s: f64, step: u64, what: What) -> io::Result<()> {
        let event = Event {
            wall_time: self.began_s + at_s,
            step: i64::try_from(step).unwrap_or(i64::MAX),
            what: Some(what),
        };
        frame(&mut self.writer, &event.encode_to_vec())
    }
}

/// The numbers of a line by tag: what is trained under `train/`, how it is dispatched under `dispatch/`, lists and tables by entry.
fn scalars(line: &Fields) -> Vec<(String, f64)> {
    let mut scalars = Vec::new();
    for (name, value) in line {
        let group = match name.as_str() {
            "step" | "time_s" => continue,
            "tokens_per_s" | "infer_capacity" | "train_capacity" | "wait" | "hs_slots"
            | "hs_bytes" => "dispatch",
            _ if name.starts_with("checkpoint") => "checkpoint",
            _ => "train",
        };
        let tag = match name.as_str() {
            "checkpoints_removed" => "removed",
            "expected_accepted_length" => "accepted_length",
            "grad_norm" => "gradient_norm",
            name => name.strip_prefix("checkpoint_").unwrap_or(name),
        };
        gather(&format!("{group}/{tag}"), value, &mut scalars);
    }
    scalars
}

fn gather(tag: &str, value: &Value, scalars: &mut Vec<(String, f64)>) {
    match value {
        Value::Number(number) => scalars.extend(number.as_f64().map(|x| (tag.to_owned(), x))),
        Value::Array(list) => {
            for (i, value) in list.iter().enumerate() {
                gather(&format!("{tag}/{}", i + 1), value, scalars);
            }
        }
        Value::Object(table) => {
            for (name, value) in table {
                gather(&format!("{tag}/{name}"), value, scalars);
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn frame(out: &mut impl Write, message: &[u8]) -> io::Result<()> {
    let length = (message.len() as u64).to_le_bytes();
    out.write_all(&length)?;
    out.write_all(&masked(&length).to_le_bytes())?;
    out.write_all(message)?;
    out.write_all(&masked(message).to_le_bytes())
}

/// CRC-32C, turned and shifted: a checksum over bytes that hold their own checksum says little.
fn masked(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
        .rotate_right(15)
        .wrapping_add(0xa282_ead8)
}

/// The fields of `tensorflow.Event` that are written.
#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    step: i64,
    #[prost(oneof = "What", tags = "3, 5, 7")]
    what: Option<What>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum What {
    #[prost(string, tag = "3")]
    FileVersion(String),
    #[prost(message, tag = "5")]
    Summary(Summary),
    #[prost(message, tag = "7")]
    SessionLog(SessionLog),
}

#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    value: Vec<Scalar>,
}

#[derive(Clone, PartialEq, Message)]
struct Scalar {
    #[prost(string, tag = "1")]
    tag: String,
    /// One of several kinds of values: it is written even where it is 0.
    #[prost(float, optional, tag = "2")]
    simple_value: Option<f32>,
}

#[derive(Clone, PartialEq, Message)]
struct SessionLog {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// A session begins: what was said of later steps no longer holds.
const START: i32 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The messages of a file, after every length and checksum is found right.
    fn events(mut bytes: &[u8]) -> Vec<Event> {
        let mut events = Vec::new();
        let u32_of = |b: &[u8]| u32::from_le_bytes(b.try_into().unwrap());
        while !bytes.is_empty() {
            let (length, rest) = bytes.split_at(8);
            let (sum, rest) = rest.split_at(4);
            assert_eq!(u32_of(sum), masked(length));
            let size = u64::from_le_bytes(length.try_into().unwrap()) as usize;
            let (message, rest) = rest.split_at(size);
            let (sum, rest) = rest.split_at(4);
            assert_eq!(u32_of(sum), masked(message));
            events.push(Event::decode(message).unwrap());
            bytes = rest;
        }
        events
    }

    #[test]
    fn the_checksum_is_the_published_one() {
        // RFC 3720, B.4: 32 bytes of zeros.
        assert_eq!(crc32c::crc32c(&[0; 32]), 0x8a91_36aa);
        // Turned right by 15 bits, 0xa282ead8 added.
        assert_eq!(masked(&[0; 32]), 0x0fd7_fffa);
    }

    #[test]
    fn a_file_reads_back_as_the_steps_that_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = EventFile::create(&folder.path().join("tb"), 4).unwrap();
        let line = json!({
            "step": 5, "time_s": 1.5, "loss": 2.5, "accuracy_per_slot": [0.5, 0.25], "wait": 0.125,
            "tokens_per_s": null, "loss_per_bucket": {"b0": 3.0}, "checkpoint_write_s": 0.5, "accuracy": 0.0,
        });
        file.step(1.5, 5, line.as_object().unwrap()).unwrap();
        let events = events(&std::fs::read(&file.path).unwrap());
        assert_eq!(
            events[0].what,
            Some(What::FileVersion("brain.Event:2".into()))
        );
        assert_eq!(events[1].step, 5);
        assert_eq!(
            events[1].what,
            Some(What::SessionLog(SessionLog { status: START }))
        );
        let Some(What::Summary(summary)) = &events[2].what else {
            panic!("a step is a summary");
        };
        assert!((events[2].wall_time - events[0].wall_time - 1.5).abs() < 1e-6);
        let mut found: Vec<(&str, f32)> = summary
            .value
            .iter()
            .map(|scalar| (scalar.tag.as_str(), scalar.simple_value.unwrap()))
            .collect();
        found.sort_by_key(|(tag, _)| *tag);
        let expected = [
            ("checkpoint/write_s", 0.5),
            ("dispatch/wait", 0.125),
            ("train/accuracy", 0.0),
            ("train/accuracy_per_slot/1", 0.5),
            ("train/accuracy_per_slot/2", 0.25),
            ("train/loss", 2.5),
            ("train/loss_per_bucket/b0", 3.0),
        ];
        assert_eq!(found, expected);
    }
}
