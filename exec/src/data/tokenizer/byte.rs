//! One id a byte, and a few special tokens above.

use crate::data::chat::{Conversation, Role, Tokens};
use crate::data::rules::LossOn;

/// The byte tokenizer: ids 0 to 255 are bytes, then come the special tokens.
///
/// A conversation is, per message: the role's token, the bytes of its content, [`EOS`](Self::EOS).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteTokenizer;

impl ByteTokenizer {
    /// Ends a turn.
    pub const EOS: u32 = 256;
    /// Fills a draft block; never occurs in text.
    pub const MASK: u32 = 257;
    /// Opens a user message.
    pub const USER: u32 = 258;
    /// Opens an assistant message.
    pub const ASSISTANT: u32 = 259;
    /// Opens a system message.
    pub const SYSTEM: u32 = 260;
    /// Opens a tool's answer.
    pub const TOOL: u32 = 261;
    /// Number of ids: a multiple of 16, as kernels like it; ids 262 to 271 are never produced.
    pub const VOCAB_SIZE: u32 = 272;

    pub(in crate::data) fn encode(self, text: &str) -> impl Iterator<Item = u32> {
        text.bytes().map(u32::from)
    }

    /// The tokens of a conversation in the markers of this tokenizer.
    pub(in crate::data) fn encode_chat(
        self,
        conversation: &Conversation,
        loss_on: LossOn,
    ) -> Tokens {
        let mut tokens = Tokens::default();
        let last = conversation.turns_of(Role::Assistant).next_back();
        for (i, turn) in conversation.turns.iter().enumerate() {
            let said = &turn.message;
            let bears_loss = match loss_on {
                LossOn::Assistant => said.role == Role::Assistant,
                LossOn::LastAssistant => Some(i) == last,
                LossOn::All => true,
            };
            tokens.extend([marker(said.role)], loss_on == LossOn::All);
            tokens.extend(self.encode(&said.content), bears_loss);
            tokens.extend([Self::EOS], bears_loss);
        }
        tokens
    }

    /// The tokens that ask for an assistant's turn after `conversation`.
    pub(in crate::data) fn encode_prompt(self, conversation: &Conversation) -> Vec<u32> {
        let mut ids = self.encode_chat(conversation, LossOn::All).ids;
        ids.push(Self::ASSISTANT);
        ids
    }

    pub(super) fn decode(self, ids: &[u32]) -> String {
        let mut text = String::new();
        let mut bytes = Vec::new();
        for &id in ids {
            if let Ok(byte) = u8::try_from(id) {
                bytes.push(byte);
                continue;
            }
            text.push_str(&String::from_utf8_lossy(&bytes));
            bytes.clear();
            text.push_str(special_name(id));
        }
        text.push_str(&String::from_utf8_lossy(&bytes));
        text
    }
}

fn marker(role: Role) -> u32 {
    match role {
        Role::System => ByteTokenizer::SYSTEM,
        Role::User => ByteTokenizer::USER,
        Role::Assistant => ByteTokenizer::ASSISTANT,
        Role::Tool => ByteTokenizer::TOOL,
    }
}

fn special_name(id: u32) -> &'static str {
    match id {
        ByteTokenizer::EOS => "<eos>",
        ByteTokenizer::MASK => "<mask>",
        ByteTokenizer::USER => "<user>",
        ByteTokenizer::ASSISTANT => "<assistant>",
        ByteTokenizer::SYSTEM => "<system>",
        ByteTokenizer::TOOL => "<tool>",
        _ => "<unused>",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Tokenizer;
    use crate::data::testing::talk;

    #[test]
    fn text_is_its_bytes_and_comes_back() {
        let tokenizer = Tokenizer::byte();
        let ids = tokenizer.encode("aé").expect("bytes never fail");
        assert_eq!(ids, [97, 0xC3, 0xA9]);
        assert_eq!(tokenizer.decode(&ids).expect("bytes never fail"), "aé");
    }

    #[test]
    fn only_the_assistant_and_its_end_of_turn_bear_loss() {
        let talk = talk(&[
            (Role::System, "s"),
            (Role::User, "hi"),
            (Role::Assistant, "yo"),
            (Role::Assistant, "y"),
            (Role::User, ""),
        ]);
        let of = |loss_on| ByteTokenizer.encode_chat(&talk, loss_on);
        let tokens = of(LossOn::Assistant);
        assert_eq!(
            tokens.ids,
            [
                260, 115, 256, 258, 104, 105, 256, 259, 121, 111, 256, 259, 121, 256, 258, 256
            ]
        );
        assert_eq!(
            tokens.mask,
            [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 1, 1, 0, 0]
        );
        let last = of(LossOn::LastAssistant).mask;
        assert_eq!(last, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0]);
        assert_eq!(of(LossOn::All).mask, [1; 16]);
    }

    #[test]
    fn special_tokens_are_inside_the_vocabulary_and_apart_from_bytes() {
        let tokenizer = Tokenizer::byte();
        assert_eq!(
            (tokenizer.eos_id(), tokenizer.mask_id()),
            (Some(256), Some(257))
        );
        assert_eq!(tokenizer.vocab_size(), 272);
        let text = tokenizer
            .decode(&[258, 104, 256, 259, 257, 261, 260, 0xC3, 262])
            .expect("bytes never fail");
        assert_eq!(
            text,
            "<user>h<eos><assistant><mask><tool><system>\u{FFFD}<unused>"
        );
    }
}
