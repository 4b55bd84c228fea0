//! Events as JSON, compressed as they come.

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use serde_json::{Value, json};
use shared::time::Time;
use std::io::Write;

/// A row of the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Track {
    pub(super) process: u32,
    pub(super) thread: u32,
}

/// A bar on a track.
pub(super) struct Slice<'a> {
    pub(super) track: Track,
    pub(super) category: &'static str,
    pub(super) name: &'a str,
    pub(super) from: Time,
    pub(super) to: Time,
    /// Shown when it is selected; null for nothing.
    pub(super) args: &'a Value,
}

/// A point that an arrow goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leg {
    Start,
    Step,
    End,
}

/// One event of the format. Times are microseconds.
#[derive(Serialize)]
struct Event<'a> {
    name: &'a str,
    ph: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'static str>,
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    pid: u32,
    tid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    /// Where an arrow ends: in the slice around it.
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'static str>,
    #[serde(skip_serializing_if = "Value::is_null")]
    args: &'a Value,
}

/// Writes the file into memory.
pub(super) struct Writer {
    out: GzEncoder<Vec<u8>>,
    is_first: bool,
}

impl Writer {
    /// Begins the file; `about` says what was run.
    pub(super) fn begin(about: &Value) -> Self {
        let mut writer = Self {
            out: GzEncoder::new(Vec::new(), Compression::default()),
            is_first: true,
        };
        let start = format!("{{\"displayTimeUnit\":\"ms\",\"otherData\":{about},\"traceEvents\":[");
        writer.put(start.as_bytes());
        writer
    }

    /// The compressed file.
    pub(super) fn end(mut self) -> Vec<u8> {
        self.put(b"\n]}\n");
        self.out.finish().expect(IN_MEMORY)
    }

    pub(super) fn name_process(&mut self, process: u32, name: &str) {
        let track = Track { process, thread: 0 };
        self.meta(track, "process_name", &json!({ "name": name }));
        self.meta(
            track,
            "process_sort_index",
            &json!({ "sort_index": process }),
        );
    }

    /// Names a track and says where it stands among those of its process.
    pub(super) fn name_track(&mut self, track: Track, name: &str, place: u32) {
        self.meta(track, "thread_name", &json!({ "name": name }));
        self.meta(track, "thread_sort_index", &json!({ "sort_index": place }));
    }

    fn meta(&mut self, track: Track, name: &str, args: &Value) {
        self.event(&blank(name, "M", track, Time::ZERO, args));
    }

    pub(super) fn slice(&mut self, slice: &Slice<'_>) {
        let event = blank(slice.name, "X", slice.track, slice.from, slice.args);
        self.event(&Event {
            cat: Some(slice.category),
            dur: Some((slice.to - slice.from).as_ns() as f64 / 1e3),
            ..event
        });
    }

    /// One point of the arrow `id`.
    pub(super) fn leg(&mut self, id: u64, leg: Leg, track: Track, at: Time) {
        let ph = ["s", "t", "f"][leg as usize];
        let event = blank("microbatch", ph, track, at, &Value::Null);
        self.event(&Event {
            cat: Some("flow"),
            id: Some(id),
            bp: (leg != Leg::Start).then_some("e"),
            ..event
        });
    }

    pub(super) fn counter(&mut self, process: u32, at: Time, name: &str, args: &Value) {
        let track = Track { process, thread: 0 };
        self.event(&blank(name, "C", track, at, args));
    }

    fn event(&mut self, event: &Event<'_>) {
        let separator: &[u8] = if self.is_first { b"\n" } else { b",\n" };
        self.is_first = false;
        self.put(separator);
        serde_json::to_writer(&mut self.out, event).expect(IN_MEMORY);
    }

    fn put(&mut self, bytes: &[u8]) {
        self.out.write_all(bytes).expect(IN_MEMORY);
    }
}

fn blank<'a>(
    name: &'a str,
    ph: &'static str,
    track: Track,
    at: Time,
    args: &'a Value,
) -> Event<'a> {
    Event {
        name,
        ph,
        cat: None,
        ts: at.as_ns() as f64 / 1e3,
        dur: None,
        pid: track.process,
        tid: track.thread,
        id: None,
        bp: None,
        args,
    }
}

const IN_MEMORY: &str = "writing to memory cannot fail";
