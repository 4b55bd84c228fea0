//! Who said what, and which of it the drafter learns from.

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

/// Token ids of one record with one loss flag (0 or 1) for each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Token ids.
    pub ids: Vec<u32>,
    /// 1 where the token bears loss, else 0; as long as `ids`.
    pub mask: Vec<u8>,
}

impl Tokens {
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
