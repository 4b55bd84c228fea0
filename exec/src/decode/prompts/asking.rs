//! The one place where turns become a prompt.

use crate::data::{ChatFormat, Conversation, DataError, Message, Role, Rules, Tokenizer};

/// A tokenizer with the chat format that training uses.
#[derive(Debug)]
pub struct Asking<'a> {
    tokenizer: &'a Tokenizer,
    format: ChatFormat<'a>,
}

impl<'a> Asking<'a> {
    /// The chat format of `tokenizer` under `rules`.
    ///
    /// Errors: a chat template that is broken or cannot be read.
    pub fn new(tokenizer: &'a Tokenizer, rules: &Rules) -> Result<Self, DataError> {
        let format = ChatFormat::new(tokenizer, rules)?;
        Ok(Self { tokenizer, format })
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &'a Tokenizer {
        self.tokenizer
    }

    /// Tokens of turns and of the opening of the assistant's answer.
    ///
    /// Errors: the template refuses the turns, the tokenizer lacks chat markers or fails on the text.
    pub fn prompt(&self, messages: &[Message]) -> Result<Vec<u32>, String> {
        let turns = Conversation::of(messages);
        self.format.prompt(&turns).map_err(|e| e.to_string())
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
