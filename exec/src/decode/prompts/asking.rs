//! The one place where turns become a prompt.

use crate::data::{Message, Role, Tokenizer};

/// A tokenizer with the chat format that goes with it.
#[derive(Debug)]
pub struct Asking<'a> {
    tokenizer: &'a Tokenizer,
}

impl<'a> Asking<'a> {
    /// The chat format of `tokenizer`.
    pub fn new(tokenizer: &'a Tokenizer) -> Self {
        Self { tokenizer }
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &'a Tokenizer {
        self.tokenizer
    }

    /// Tokens of turns and of the opening of the assistant's answer.
    ///
    /// Errors: the tokenizer lacks chat markers, or fails on the text.
    pub fn prompt(&self, messages: &[Message]) -> Result<Vec<u32>, String> {
        let mut talk = messages.to_vec();
        talk.push(Message {
            role: Role::Assistant,
            content: String::new(),
        });
        let tokens = self
            .tokenizer
            .encode_chat(&talk)
            .map_err(|e| e.to_string())?;
        // An empty answer bears loss on its end alone, which follows the opening.
        let last = tokens.mask.iter().rposition(|&loss| loss != 0);
        let mut cut = last.unwrap_or(tokens.ids.len());
        while cut > 0 && tokens.mask[cut - 1] != 0 {
            cut -= 1;
        }
        Ok(tokens.ids[..cut].to_vec())
    }

    /// Tokens that open a user's turn, whatever is said in it.
    ///
    /// Errors: the tokenizer lacks chat markers.
    pub fn user_opening(&self) -> Result<Vec<u32>, String> {
        let said = |content: &str| {
            let message = Message {
                role: Role::User,
                content: content.to_owned(),
            };
            self.prompt(&[message])
        };
        let (one, other) = (said("Why?")?, said("7 + 5")?);
        let same = one.iter().zip(&other).take_while(|(a, b)| a == b).count();
        Ok(one[..same].to_vec())
    }
}
