//! Who said what, and which of it the drafter learns from.

use std::collections::BTreeMap;

use minijinja::value::Value;

/// Speaker of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Instructions that precede the conversation.
    System,
    /// The person asking.
    User,
    /// The model; the only role whose tokens bear loss.
    Assistant,
    /// The answer of a called tool.
    Tool,
}

impl Role {
    /// Reads a role as the common data sets write it, ShareGPT's names included.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "system" | "developer" => Some(Self::System),
            "user" | "human" => Some(Self::User),
            "assistant" | "gpt" => Some(Self::Assistant),
            "tool" | "function" | "observation" => Some(Self::Tool),
            _ => None,
        }
    }

    /// The name chat templates print.
    pub fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// One turn of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub content: String,
}

/// A turn with whatever else the record says about it, such as `reasoning_content` or `tool_calls`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// Who says what.
    pub message: Message,
    /// Further fields, which a chat template sees as it sees `role` and `content`.
    pub fields: BTreeMap<String, Value>,
}

/// A record's turns, and the tools they may call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Conversation {
    /// The turns in order.
    pub turns: Vec<Turn>,
    /// What a template finds as `tools`; none where the record names no tools.
    pub tools: Value,
}

impl Conversation {
    /// A conversation of plain messages.
    pub fn of(messages: &[Message]) -> Self {
        let turn = |message: &Message| Turn {
            message: message.clone(),
            fields: BTreeMap::new(),
        };
        Self {
            turns: messages.iter().map(turn).collect(),
            tools: Value::from(()),
        }
    }

    /// The turns as a template sees them.
    pub(super) fn values(&self) -> Vec<Value> {
        let value = |turn: &Turn| {
            let own = [
                ("role".to_owned(), Value::from(turn.message.role.name())),
                (
                    "content".to_owned(),
                    Value::from(turn.message.content.as_str()),
                ),
            ];
            let further = turn
                .fields
                .iter()
                .map(|(key, value)| (key.clone(), value.clone()));
            own.into_iter().chain(further).collect()
        };
        self.turns.iter().map(value).collect()
    }

    /// What is said, turn by turn.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        self.turns.iter().map(|turn| turn.message.content.as_str())
    }

    /// Indices of the turns of `role`.
    pub(super) fn turns_of(&self, role: Role) -> impl DoubleEndedIterator<Item = usize> {
        let turns = self.turns.iter().enumerate();
        turns
            .filter(move |(_, turn)| turn.message.role == role)
            .map(|(i, _)| i)
    }
}

/// Token ids of one record with one loss flag (0 or 1) for each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Token ids.
    pub ids: Vec<u32>,
    /// 1 where the token bears loss, else 0; as long as `ids`.
    pub mask: Vec<u8>,
}

impl Tokens {
    /// Number of loss-bearing tokens.
    pub(super) fn loss_tokens(&self) -> u64 {
        self.mask.iter().map(|&flag| u64::from(flag)).sum()
    }

    /// Appends tokens that all bear loss, or all do not.
    pub(super) fn extend(&mut self, ids: impl IntoIterator<Item = u32>, bears_loss: bool) {
        self.ids.extend(ids);
        self.mask.resize(self.ids.len(), u8::from(bears_loss));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sharegpt_names_become_the_common_ones() {
        let roles = [
            "human",
            "gpt",
            "system",
            "developer",
            "function",
            "observation",
            "tool",
        ];
        let names: Vec<_> = roles
            .iter()
            .map(|name| Role::parse(name).map(Role::name))
            .collect();
        let expected = [
            "user",
            "assistant",
            "system",
            "system",
            "tool",
            "tool",
            "tool",
        ];
        assert_eq!(names, expected.map(Some));
        assert_eq!(Role::parse("narrator"), None);
    }

    #[test]
    fn the_mask_follows_the_ids() {
        let mut tokens = Tokens::default();
        tokens.extend([1, 2], false);
        tokens.extend([3], true);
        assert_eq!(
            tokens,
            Tokens {
                ids: vec![1, 2, 3],
                mask: vec![0, 0, 1]
            }
        );
    }
}
