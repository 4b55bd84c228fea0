//! Which part of a rendered conversation the assistant says.
//!
//! A template with `{% generation %}` says so itself. For any other, the text up to turn i with an
//! assistant's head behind it, P(i), and the text up to and with turn i, E(i), are rendered: where
//! P(i) begins E(i) and E(i) begins the whole text, the assistant's words with the token that ends
//! its turn are what E(i) has beyond P(i).
//!
//! Some templates rewrite earlier turns when later ones come, such as Qwen3's, which takes the
//! thinking out of them: E(i) does not begin the whole text. What stands there is not what the model
//! would have said when it was asked, so such turns bear no loss; with Qwen3 that leaves the last
//! answer. The turns without loss and their records are counted.

use std::ops::Range;

use minijinja::value::Value;

use super::{ChatTemplate, TemplateFault, generation};
use crate::data::chat::{Conversation, Role};
use crate::data::rules::LossOn;

/// A conversation as text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::data) struct Rendered {
    /// The whole text.
    pub(in crate::data) text: String,
    /// What bears loss, in bytes of `text`, in order and apart.
    pub(in crate::data) spans: Vec<Range<usize>>,
    /// Assistant turns that should bear loss and do not, because the template rewrites them.
    pub(in crate::data) unlearned_turns: u64,
}

impl ChatTemplate {
    /// The text of a conversation and what bears loss in it.
    ///
    /// # Errors
    /// The template refuses the conversation or fails on it.
    pub(in crate::data) fn rendered(
        &self,
        conversation: &Conversation,
        loss_on: LossOn,
    ) -> Result<Rendered, TemplateFault> {
        let messages = conversation.values();
        if self.marks_generation && conversation.texts().any(generation::holds_mark) {
            return Err(TemplateFault::Sentinel);
        }
        let whole = self.render(&messages, &conversation.tools, false)?;
        let (text, mut marked) = generation::unmarked_if(self.marks_generation, whole);
        if loss_on == LossOn::All {
            let all = 0..text.len();
            let spans = Some(all).filter(|all| !all.is_empty());
            let spans = spans.into_iter().collect();
            return Ok(Rendered {
                text,
                spans,
                unlearned_turns: 0,
            });
        }
        if self.marks_generation {
            if loss_on == LossOn::LastAssistant {
                marked.drain(..marked.len().saturating_sub(1));
            }
            return Ok(Rendered {
                text,
                spans: marked,
                unlearned_turns: 0,
            });
        }
        let mut turns: Vec<usize> = conversation.turns_of(Role::Assistant).collect();
        if loss_on == LossOn::LastAssistant {
            turns.drain(..turns.len().saturating_sub(1));
        }
        let span = |&turn: &usize| self.span(conversation, &messages, turn, &text);
        let spans: Vec<_> = turns.iter().filter_map(span).collect();
        Ok(Rendered {
            text,
            unlearned_turns: (turns.len() - spans.len()) as u64,
            spans,
        })
    }

    /// The text that asks for an assistant's turn after `conversation`.
    ///
    /// # Errors
    /// The template refuses the conversation or fails on it.
    pub(in crate::data) fn prompt(
        &self,
        conversation: &Conversation,
    ) -> Result<String, TemplateFault> {
        let text = self.render(&conversation.values(), &conversation.tools, true)?;
        Ok(generation::unmarked_if(self.marks_generation, text).0)
    }

    /// Where turn `turn` stands in `whole`; none where the template does not tell.
    fn span(
        &self,
        conversation: &Conversation,
        messages: &[Value],
        turn: usize,
        whole: &str,
    ) -> Option<Range<usize>> {
        let tools = &conversation.tools;
        // A template may refuse what a conversation begins with; then it does not tell.
        let before = self.render(&messages[..turn], tools, true).ok()?;
        let with = if turn + 1 == messages.len() {
            whole.to_owned()
        } else {
            self.render(&messages[..=turn], tools, false).ok()?
        };
        let said = with.strip_prefix(before.as_str())?;
        if !whole.starts_with(with.as_str()) {
            return None;
        }
        let content = &conversation.turns[turn].message.content;
        let length = said.len() - unsaid(said, content);
        Some(before.len()..before.len() + length)
    }
}

/// Bytes at the end of `said` that the model is not asked for: white space after the token that ends
/// the turn. Where nothing but white space follows the words, that ends the turn itself.
fn unsaid(said: &str, content: &str) -> usize {
    let words = content.trim();
    let behind = match said.rfind(words) {
        Some(at) if !words.is_empty() => &said[at + words.len()..],
        _ => said,
    };
    if behind.trim().is_empty() {
        0
    } else {
        said.len() - said.trim_end().len()
    }
}

#[cfg(test)]
mod tests {
    use super::unsaid;

    #[test]
    fn white_space_after_the_end_of_turn_is_not_asked_for() {
        assert_eq!(unsaid("hi<|im_end|>\n", "hi"), 1);
        assert_eq!(unsaid("hi<|im_end|>", "hi"), 0);
        assert_eq!(unsaid("hi<|im_end|>\n", " hi\n"), 1);
        // Here the newline is the end of the turn.
        assert_eq!(unsaid("hi\n", "hi"), 0);
        assert_eq!(unsaid("<|im_end|>\n", ""), 1);
        // The template changed the words.
        assert_eq!(unsaid("rewritten<|eot|>\n\n", "other"), 2);
    }
}
