//! A whole trace as text.
//!
//! ```text
//! dflash-trace 1
//! fact seed 1
//! config name = "reference"
//! lengths 812 812*3 90
//! records
//! 0 started | Forward t0 m0; Forward t1 m1
//! ...
//! end 1532 9f0c1be2a7d4330e
//! ```
//! The last line counts the records and carries the fingerprint of everything before it, so a trace that was edited, cut or damaged is
//! known.

use super::codec::{read_record, write_record};
use super::{Digest, Header, Record};
use crate::core::{Action, Event};
use crate::time::Time;
use std::collections::BTreeMap;

const MAGIC: &str = "dflash-trace 1";

/// A trace that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// What the run was.
    pub header: Header,
    /// What happened.
    pub records: Vec<Record>,
}

/// Why a trace is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// Not a trace, or one of another version.
    #[error("line 1: not a dflash trace of version 1 (it should begin with \"{MAGIC}\")")]
    NotATrace,
    /// A line that means nothing.
    #[error("line {line}: cannot be read: {text:?}; the trace was edited or damaged")]
    BadLine {
        /// Its number, from 1.
        line: usize,
        /// Its beginning.
        text: String,
    },
    /// No last line.
    #[error(
        "the trace ends without its last line after {records} whole records: the run was killed or is still going on, or the file was cut"
    )]
    Cut {
        /// Records read.
        records: usize,
    },
    /// The fingerprint does not match.
    #[error(
        "the trace was edited or damaged: its fingerprint is {found:016x}, its last line says {said}"
    )]
    Edited {
        /// Of what was read.
        found: u64,
        /// As written.
        said: String,
    },
}

/// Writes a trace piece by piece: header, records, end.
#[derive(Clone, Debug, Default)]
pub struct Encoder {
    digest: Digest,
    records: usize,
}

impl Encoder {
    /// The text of the header.
    pub fn header(&mut self, header: &Header) -> String {
        let mut text = format!("{MAGIC}\n");
        for (name, value) in &header.facts {
            let value = value.replace(['\n', '\r'], " ");
            text.push_str(&format!("fact {name} {value}\n"));
        }
        for line in header.config.lines() {
            text.push_str(&format!("config {line}\n"));
        }
        text.push_str("lengths");
        for (length, times) in runs(&header.lengths) {
            if times == 1 {
                text.push_str(&format!(" {length}"));
            } else {
                text.push_str(&format!(" {length}*{times}"));
            }
        }
        text.push_str("\nrecords\n");
        self.digest_lines(&text);
        text
    }

    /// Appends one record's line to `text`.
    pub fn record(&mut self, text: &mut String, at: Time, event: &Event, actions: &[Action]) {
        let from = text.len();
        write_record(text, at, event, actions);
        self.records += 1;
        self.digest
            .add(text[from..].trim_end_matches('\n').as_bytes());
    }

    /// The last line.
    pub fn end(&self) -> String {
        format!("end {} {:016x}\n", self.records, self.digest.finish())
    }

    fn digest_lines(&mut self, text: &str) {
        for line in text.lines() {
            self.digest.add(line.as_bytes());
        }
    }
}

fn runs(lengths: &[u32]) -> impl Iterator<Item = (u32, usize)> {
    lengths
        .chunk_by(|a, b| a == b)
        .map(|run| (run[0], run.len()))
}

/// Reads a trace and checks its fingerprint.
pub fn parse(text: &str) -> Result<Trace, TraceError> {
    let mut lines = text.lines().enumerate();
    if lines.next().is_none_or(|(_, line)| line != MAGIC) {
        return Err(TraceError::NotATrace);
    }
    let mut digest = Digest::default();
    digest.add(MAGIC.as_bytes());
    let mut header = Header {
        facts: BTreeMap::new(),
        ..Header::default()
    };
    let mut records = Vec::new();
    let mut in_records = false;
    while let Some((i, line)) = lines.next() {
        let is_torn = !text.ends_with('\n') && lines.clone().next().is_none();
        if is_torn && !line.starts_with("end ") {
            // Half a line reads as nothing, or worse, as another one.
            break;
        }
        let bad = || TraceError::BadLine {
            line: i + 1,
            text: line.chars().take(80).collect(),
        };
        if let Some(end) = line.strip_prefix("end ").filter(|_| in_records) {
            let found = digest.finish();
            let expected = format!("{} {found:016x}", records.len());
            if end == expected {
                return match lines.next() {
                    None => Ok(Trace { header, records }),
                    Some((i, line)) => Err(TraceError::BadLine {
                        line: i + 1,
                        text: line.chars().take(80).collect(),
                    }),
                };
            }
            return Err(TraceError::Edited {
                found,
                said: end.to_owned(),
            });
        }
        digest.add(line.as_bytes());
        if in_records {
            records.push(read_record(line).ok_or_else(bad)?);
        } else if line == "records" {
            in_records = true;
        } else {
            read_header_line(line, &mut header).ok_or_else(bad)?;
        }
    }
    Err(TraceError::Cut {
        records: records.len(),
    })
}

fn read_header_line(line: &str, header: &mut Header) -> Option<()> {
    if let Some(fact) = line.strip_prefix("fact ") {
        let (name, value) = fact.split_once(' ')?;
        header.facts.insert(name.to_owned(), value.to_owned());
    } else if let Some(config) = line.strip_prefix("config") {
        header
            .config
            .push_str(config.strip_prefix(' ').unwrap_or(config));
        header.config.push('\n');
    } else {
        for run in line
            .strip_prefix("lengths")?
            .split(' ')
            .filter(|run| !run.is_empty())
        {
            let (length, times) = run.split_once('*').unwrap_or((run, "1"));
            let times: usize = times.parse().ok().filter(|&t| t <= u32::MAX as usize)?;
            header
                .lengths
                .extend(std::iter::repeat_n(length.parse::<u32>().ok()?, times));
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{Group, Outcome};
    use crate::id::{DrafterId, MicrobatchId, StepId, TargetId};

    fn sample() -> (Header, Vec<Record>) {
        let header = Header {
            facts: BTreeMap::from([("seed".into(), "7".into()), ("driver".into(), "sim".into())]),
            config: "name = \"x\"\n\n[policy]\ntargets = 2\n".into(),
            lengths: vec![5, 5, 5, 9],
        };
        let (t, d, m, s) = (TargetId(1), DrafterId(0), MicrobatchId(3), StepId(2));
        let outcome = Outcome::Done;
        let events = [
            Event::Started,
            Event::ForwardEnded {
                target: t,
                microbatch: m,
                outcome: Outcome::Failed,
            },
            Event::StageEnded {
                microbatch: m,
                outcome,
            },
            Event::FetchEnded {
                drafter: d,
                microbatch: m,
                outcome,
            },
            Event::TrainEnded {
                drafter: d,
                microbatch: m,
                outcome,
            },
            Event::StepApplied {
                step: s,
                group: Group::One(d),
            },
            Event::WakeDue,
            Event::TargetJoined(t),
            Event::TargetLost(t),
            Event::DrafterJoined(d),
            Event::DrafterLost(d),
            Event::StopAsked,
        ];
        let actions = vec![
            Action::Forward {
                target: t,
                microbatch: m,
            },
            Action::Admit { microbatch: m },
            Action::Stage {
                target: t,
                microbatch: m,
                drafter: None,
            },
            Action::Stage {
                target: t,
                microbatch: m,
                drafter: Some(d),
            },
            Action::Fetch {
                drafter: d,
                microbatch: m,
                target: Some(t),
            },
            Action::Fetch {
                drafter: d,
                microbatch: m,
                target: None,
            },
            Action::Train {
                drafter: d,
                microbatch: m,
                step: s,
            },
            Action::Apply {
                step: s,
                group: Group::All,
            },
            Action::Discard { microbatch: m },
            Action::Wake {
                at: Time::from_ns(9),
            },
            Action::StopTarget { target: t },
            Action::StopDrafter { drafter: d },
        ];
        let record = |(i, event)| Record {
            at: Time::from_ns(i as u64),
            event,
            actions: if i % 2 == 0 {
                actions.clone()
            } else {
                Vec::new()
            },
        };
        (header, events.into_iter().enumerate().map(record).collect())
    }

    fn encode(header: &Header, records: &[Record]) -> String {
        let mut encoder = Encoder::default();
        let mut text = encoder.header(header);
        for record in records {
            encoder.record(&mut text, record.at, &record.event, &record.actions);
        }
        text + &encoder.end()
    }

    #[test]
    fn a_trace_reads_back_as_it_was_written() {
        let (header, records) = sample();
        let text = encode(&header, &records);
        assert_eq!(parse(&text), Ok(Trace { header, records }));
    }

    #[test]
    fn an_edited_trace_is_refused() {
        let (header, records) = sample();
        let text = encode(&header, &records);
        let edited = text.replace("\n6 wake", "\n7 wake");
        assert!(matches!(parse(&edited), Err(TraceError::Edited { .. })));
        let damaged = text.replace("stage m3 done", "stage m3 dune");
        assert!(matches!(parse(&damaged), Err(TraceError::BadLine { .. })));
        let longer = text + "end 0 0000000000000000\n";
        assert!(matches!(parse(&longer), Err(TraceError::BadLine { .. })));
    }

    #[test]
    fn a_cut_trace_is_refused() {
        let (header, records) = sample();
        let text = encode(&header, &records);
        let cut = &text[..text.rfind("end ").unwrap()];
        assert_eq!(
            parse(cut),
            Err(TraceError::Cut {
                records: records.len()
            })
        );
        assert_eq!(parse("hello"), Err(TraceError::NotATrace));
    }

    #[test]
    fn a_trace_torn_in_the_middle_of_a_line_counts_its_whole_records() {
        let (header, records) = sample();
        let text = encode(&header, &records);
        let last = text.rfind("\nend ").unwrap();
        let begin = text[..last].rfind('\n').unwrap();
        for cut in [begin + 2, last - 1] {
            let records = records.len() - 1;
            assert_eq!(parse(&text[..cut]), Err(TraceError::Cut { records }));
        }
    }
}
