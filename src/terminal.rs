//! What appears on the terminal: answers on standard output, progress and complaints on standard error.

use crate::failure::Failure;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, Write};

/// Prints a line of the answer. A closed pipe is not an error: whoever read had enough.
pub(crate) fn say(line: impl std::fmt::Display) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Prints a note beside the answer.
pub(crate) fn note(line: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Prints why the process fails, one line an error. Control characters are escaped: names come from files.
pub(crate) fn complain(failure: &Failure) {
    for line in failure.message.lines() {
        let line: String = line
            .chars()
            .flat_map(|c| {
                let escaped = c.is_control().then(|| c.escape_default());
                let plain = (!c.is_control()).then_some(c);
                escaped.into_iter().flatten().chain(plain)
            })
            .collect();
        let indented = line.starts_with(' ');
        note(if indented {
            line
        } else {
            format!("dflash: {line}")
        });
    }
}

/// A progress bar over `total` things; silent where standard error is no terminal.
pub(crate) fn bar(total: u64, what: &str) -> ProgressBar {
    bar_of(
        total,
        what,
        "{msg} [{bar:32}] {human_pos}/{human_len} {eta}",
    )
}

/// A progress bar over bytes, whose number is told later.
pub(crate) fn byte_bar(what: &str) -> ProgressBar {
    bar_of(
        0,
        what,
        "{msg} [{bar:32}] {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}",
    )
}

fn bar_of(total: u64, what: &str, template: &str) -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let style = ProgressStyle::with_template(template)
        .expect("the template is well-formed")
        .progress_chars("=> ");
    let bar = ProgressBar::with_draw_target(Some(total), target).with_style(style);
    bar.set_message(what.to_owned());
    bar
}

/// The one line that tells how a run is doing: rewritten in place on a terminal, a plain line now and then elsewhere.
pub(crate) struct Live {
    line: Option<ProgressBar>,
    shown: std::time::Instant,
}

impl Live {
    pub(crate) fn new() -> Self {
        let on_terminal = std::io::stderr().is_terminal();
        let line = on_terminal.then(|| {
            let style = ProgressStyle::with_template("{msg}").expect("the template is well-formed");
            ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()).with_style(style)
        });
        Self {
            line,
            shown: std::time::Instant::now(),
        }
    }

    /// Whether the line is old enough to be shown again.
    pub(crate) fn is_due(&self) -> bool {
        let every = if self.line.is_some() { 200 } else { 5_000 };
        self.shown.elapsed() >= std::time::Duration::from_millis(every)
    }

    pub(crate) fn show(&mut self, text: &str) {
        self.shown = std::time::Instant::now();
        match &self.line {
            Some(line) => line.set_message(text.to_owned()),
            None => note(text),
        }
    }

    pub(crate) fn clear(&self) {
        if let Some(line) = &self.line {
            line.finish_and_clear();
        }
    }
}
