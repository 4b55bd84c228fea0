//! User turns that the target writes itself: a data set without a download.

use std::collections::HashSet;

use super::generate::Ended;
use super::prompts::Asking;
use crate::data::Tokenizer;

/// Which written turns become prompts: each only once, none empty, cut or looping.
#[derive(Debug)]
pub struct UserTurns {
    opening: Vec<u32>,
    known: HashSet<String>,
}

/// Why a written turn is no prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refused {
    /// It says nothing, or less than [`CHARS_MIN`] letters and digits.
    Empty,
    /// It did not end within its limit.
    Cut,
    /// It fell into a loop, or consists of a few tokens over and over.
    Loop,
    /// It holds markers of the chat, or bytes that are no text.
    Broken,
    /// It was written before.
    Repeated,
}

impl Refused {
    /// The name in counts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Cut => "cut",
            Self::Loop => "looping",
            Self::Broken => "broken",
            Self::Repeated => "repeated",
        }
    }
}

/// Letters and digits in a turn, at least.
pub const CHARS_MIN: usize = 4;

impl UserTurns {
    /// Turns of the chat that `asking` knows.
    ///
    /// Errors: its tokenizer lacks the chat markers.
    pub fn new(asking: &Asking<'_>) -> Result<Self, String> {
        Ok(Self {
            opening: asking.user_opening()?,
            known: HashSet::new(),
        })
    }

    /// What stands before a user's words: the prompt under which the target writes them.
    pub fn opening(&self) -> &[u32] {
        &self.opening
    }

    /// Remembers a turn that is there already.
    pub fn remember(&mut self, text: &str) {
        self.known.insert(folded(text));
    }

    /// The turn's text if it is fit to be a prompt.
    ///
    /// Errors: why it is not.
    pub fn admit(
        &mut self,
        tokens: &[u32],
        ended: Ended,
        tokenizer: &Tokenizer,
    ) -> Result<String, Refused> {
        match ended {
            Ended::Limit => return Err(Refused::Cut),
            Ended::Loop => return Err(Refused::Loop),
            Ended::Itself => {}
        }
        let text = tokenizer.decode(tokens).map_err(|_| Refused::Broken)?;
        let text = text.trim();
        if text.chars().filter(|c| c.is_alphanumeric()).count() < CHARS_MIN {
            return Err(Refused::Empty);
        }
        // Markers are written out by name, and text that names one would become one.
        if text.contains('\u{FFFD}') || MARKERS.iter().any(|marker| text.contains(marker)) {
            return Err(Refused::Broken);
        }
        let distinct: HashSet<&u32> = tokens.iter().collect();
        if tokens.len() >= 4 * distinct.len() {
            return Err(Refused::Loop);
        }
        match self.known.insert(folded(text)) {
            true => Ok(text.to_owned()),
            false => Err(Refused::Repeated),
        }
    }
}

/// The text without case and spacing: what counts as the same turn.
fn folded(text: &str) -> String {
    let words = text.split_whitespace().map(str::to_lowercase);
    words.collect::<Vec<_>>().join(" ")
}

/// How markers of a chat look.
const MARKERS: [&str; 7] = [
    "<|",
    "<eos>",
    "<mask>",
    "<user>",
    "<assistant>",
    "<system>",
    "<tool>",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Rules;

    fn turns() -> UserTurns {
        let tokenizer = Tokenizer::byte();
        UserTurns::new(&Asking::new(&tokenizer, &Rules::new(1)).unwrap()).unwrap()
    }

    fn admit(turns: &mut UserTurns, text: &str, ended: Ended) -> Result<String, Refused> {
        let tokenizer = Tokenizer::byte();
        let tokens = tokenizer.encode(text).unwrap();
        turns.admit(&tokens, ended, &tokenizer)
    }

    #[test]
    fn each_flaw_is_refused_by_its_name() {
        let mut turns = turns();
        let mut refused = |text: &str, ended| admit(&mut turns, text, ended).unwrap_err();
        assert_eq!(refused(" \n", Ended::Itself), Refused::Empty);
        assert_eq!(refused("a, b!", Ended::Itself), Refused::Empty);
        assert_eq!(refused("What is a", Ended::Limit), Refused::Cut);
        assert_eq!(refused("What is what", Ended::Loop), Refused::Loop);
        assert_eq!(refused(&"ab ".repeat(9), Ended::Itself), Refused::Loop);
        assert_eq!(
            refused("What <|im_start|> is", Ended::Itself),
            Refused::Broken
        );
    }

    #[test]
    fn a_turn_is_taken_once_whatever_its_case_and_spacing() {
        let mut turns = turns();
        let taken = admit(&mut turns, "  Why is the sky blue?\n", Ended::Itself);
        assert_eq!(taken.as_deref(), Ok("Why is the sky blue?"));
        let again = admit(&mut turns, "why is  the sky BLUE?", Ended::Itself);
        assert_eq!(again, Err(Refused::Repeated));
        turns.remember("What now, then?");
        let known = admit(&mut turns, "what now, then?", Ended::Itself);
        assert_eq!(known, Err(Refused::Repeated));
    }
}
