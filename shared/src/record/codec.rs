//! One record as one line of text, and back.
//!
//! ```text
//! 11304 forward t0 m3 done | Admit m3; Stage t0 m3 host; Forward t0 m8
//! ```
//! Facts are in lower case, orders capitalised; identities carry their letter.

use crate::core::{Action, Event, Group, Outcome};
use crate::id::{DrafterId, MicrobatchId, StepId, TargetId};
use crate::time::Time;
use std::fmt::Write;

pub(super) fn write_record(line: &mut String, at: Time, event: &Event, actions: &[Action]) {
    let ok = "writing to a string cannot fail";
    write!(line, "{} ", at.as_ns()).expect(ok);
    write_event(line, event).expect(ok);
    for (i, action) in actions.iter().enumerate() {
        line.push_str(if i == 0 { " | " } else { "; " });
        write_action(line, action).expect(ok);
    }
    line.push('\n');
}

fn write_event(line: &mut String, event: &Event) -> std::fmt::Result {
    let word = |outcome: &Outcome| match outcome {
        Outcome::Done => "done",
        Outcome::Failed => "failed",
    };
    match event {
        Event::Started => write!(line, "started"),
        Event::ForwardEnded {
            target,
            microbatch,
            outcome,
        } => {
            write!(line, "forward {target} {microbatch} {}", word(outcome))
        }
        Event::StageEnded {
            microbatch,
            outcome,
        } => {
            write!(line, "stage {microbatch} {}", word(outcome))
        }
        Event::FetchEnded {
            drafter,
            microbatch,
            outcome,
        } => {
            write!(line, "fetch {drafter} {microbatch} {}", word(outcome))
        }
        Event::TrainEnded {
            drafter,
            microbatch,
            outcome,
        } => {
            write!(line, "train {drafter} {microbatch} {}", word(outcome))
        }
        Event::StepApplied { step, group } => {
            write!(line, "applied {step} ")?;
            write_group(line, group)
        }
        Event::WakeDue => write!(line, "wake"),
        Event::TargetJoined(target) => write!(line, "joined {target}"),
        Event::TargetLost(target) => write!(line, "lost {target}"),
        Event::DrafterJoined(drafter) => write!(line, "joined {drafter}"),
        Event::DrafterLost(drafter) => write!(line, "lost {drafter}"),
        Event::StopAsked => write!(line, "stop"),
    }
}

fn write_action(line: &mut String, action: &Action) -> std::fmt::Result {
    match action {
        Action::Forward { target, microbatch } => write!(line, "Forward {target} {microbatch}"),
        Action::Admit { microbatch } => write!(line, "Admit {microbatch}"),
        Action::Stage {
            target,
            microbatch,
            drafter,
        } => {
            write!(line, "Stage {target} {microbatch} ")?;
            match drafter {
                Some(drafter) => write!(line, "{drafter}"),
                None => write!(line, "host"),
            }
        }
        Action::Fetch {
            drafter,
            microbatch,
            target,
        } => {
            write!(line, "Fetch {drafter} {microbatch} ")?;
            match target {
                Some(target) => write!(line, "{target}"),
                None => write!(line, "host"),
            }
        }
        Action::Train {
            drafter,
            microbatch,
            step,
        } => {
            write!(line, "Train {drafter} {microbatch} {step}")
        }
        Action::Apply { step, group } => {
            write!(line, "Apply {step} ")?;
            write_group(line, group)
        }
        Action::Discard { microbatch } => write!(line, "Discard {microbatch}"),
        Action::Wake { at } => write!(line, "Wake {}", at.as_ns()),
        Action::StopTarget { target } => write!(line, "Stop {target}"),
        Action::StopDrafter { drafter } => write!(line, "Stop {drafter}"),
    }
}

fn write_group(line: &mut String, group: &Group) -> std::fmt::Result {
    match group {
        Group::All => write!(line, "all"),
        Group::One(drafter) => write!(line, "{drafter}"),
    }
}

pub(super) fn read_record(line: &str) -> Option<super::Record> {
    let (fact, orders) = line.split_once(" | ").unwrap_or((line, ""));
    let (at, event) = fact.split_once(' ')?;
    let actions = orders
        .split("; ")
        .filter(|order| !order.is_empty())
        .map(read_action);
    Some(super::Record {
        at: Time::from_ns(number(at)?),
        event: read_event(event)?,
        actions: actions.collect::<Option<_>>()?,
    })
}

fn read_event(text: &str) -> Option<Event> {
    let words: Vec<_> = text.split(' ').collect();
    Some(match words[..] {
        ["started"] => Event::Started,
        ["forward", target, microbatch, outcome] => Event::ForwardEnded {
            target: TargetId(id(target, 't')?),
            microbatch: MicrobatchId(id(microbatch, 'm')?),
            outcome: read_outcome(outcome)?,
        },
        ["stage", microbatch, outcome] => Event::StageEnded {
            microbatch: MicrobatchId(id(microbatch, 'm')?),
            outcome: read_outcome(outcome)?,
        },
        ["fetch", drafter, microbatch, outcome] => Event::FetchEnded {
            drafter: DrafterId(id(drafter, 'd')?),
            microbatch: MicrobatchId(id(microbatch, 'm')?),
            outcome: read_outcome(outcome)?,
        },
        ["train", drafter, microbatch, outcome] => Event::TrainEnded {
            drafter: DrafterId(id(drafter, 'd')?),
            microbatch: MicrobatchId(id(microbatch, 'm')?),
            outcome: read_outcome(outcome)?,
        },
        ["applied", step, group] => Event::StepApplied {
            step: StepId(id(step, 's')?),
            group: read_group(group)?,
        },
        ["wake"] => Event::WakeDue,
        ["joined", who] if who.starts_with('t') => Event::TargetJoined(TargetId(id(who, 't')?)),
        ["joined", who] => Event::DrafterJoined(DrafterId(id(who, 'd')?)),
        ["lost", who] if who.starts_with('t') => Event::TargetLost(TargetId(id(who, 't')?)),
        ["lost", who] => Event::DrafterLost(DrafterId(id(who, 'd')?)),
        ["stop"] => Event::StopAsked,
        _ => return None,
    })
}

fn read_action(text: &str) -> Option<Action> {
    let words: Vec<_> = text.split(' ').collect();
    Some(match words[..] {
        ["Forward", target, microbatch] => Action::Forward {
            target: TargetId(id(target, 't')?),
            microbatch: MicrobatchId(id(microbatch, 'm')?),
        },
        ["Admit", microbatch] => Action::Admit {
            microbatch: MicrobatchId(id(microbatch, 'm')?),
        },
        ["Stage", target, microbatch, to] => Action::Stage {
            target: TargetId(id(target, 't')?),
            microbatch: MicrobatchId(id(microbatch, 'm')?),
            drafter: if to == "host" {
                None
            } else {
                Some(DrafterId(id(to, 'd')?))
            },
        },
        ["Fetch", drafter, microbatch, from] => Action::Fetch {
            drafter: DrafterId(id(drafter, 'd')?),
            microbatch: MicrobatchId(id(microbatch, 'm')?),
            target: if from == "host" {
                None
            } else {
                Some(TargetId(id(from, 't')?))
            },
        },
        ["Train", drafter, microbatch, step] => Action::Train {
            drafter: DrafterId(id(drafter, 'd')?),
            microbatch: MicrobatchId(id(microbatch, 'm')?),
            step: StepId(id(step, 's')?),
        },
        ["Apply", step, group] => Action::Apply {
            step: StepId(id(step, 's')?),
            group: read_group(group)?,
        },
        ["Discard", microbatch] => Action::Discard {
            microbatch: MicrobatchId(id(microbatch, 'm')?),
        },
        ["Wake", at] => Action::Wake {
            at: Time::from_ns(number(at)?),
        },
        ["Stop", who] if who.starts_with('t') => Action::StopTarget {
            target: TargetId(id(who, 't')?),
        },
        ["Stop", who] => Action::StopDrafter {
            drafter: DrafterId(id(who, 'd')?),
        },
        _ => return None,
    })
}

fn read_outcome(word: &str) -> Option<Outcome> {
    match word {
        "done" => Some(Outcome::Done),
        "failed" => Some(Outcome::Failed),
        _ => None,
    }
}

fn read_group(word: &str) -> Option<Group> {
    if word == "all" {
        Some(Group::All)
    } else {
        Some(Group::One(DrafterId(id(word, 'd')?)))
    }
}

fn id<T: std::str::FromStr>(word: &str, letter: char) -> Option<T> {
    word.strip_prefix(letter)?.parse().ok()
}

fn number(word: &str) -> Option<u64> {
    word.parse().ok()
}
