//! How conversations become tokens: by a chat template, or in the byte tokenizer's own markers.

use std::ops::Range;

use super::bad_record::BadRecord;
use super::chat::{Conversation, Tokens};
use super::error::Result;
use super::rules::{LossOn, Rules};
use super::template::{ChatTemplate, TemplateFault, chatml, of_tokenizer};
use super::tokenizer::{ByteTokenizer, EncodeError, Tokenizer};

/// A tokenizer with the chat format that goes with it.
#[derive(Debug)]
pub struct ChatFormat<'a> {
    tokenizer: &'a Tokenizer,
    form: Form,
}

#[derive(Debug)]
enum Form {
    /// Given, or the tokenizer's own.
    Template(Box<ChatTemplate>),
    /// ChatML for a tokenizer without a template.
    ChatMl(Box<ChatTemplate>),
    /// One token a role.
    Markers(ByteTokenizer),
}

/// Why a conversation has no tokens.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChatFault {
    /// The conversation is at fault.
    #[error(transparent)]
    Record(#[from] BadRecord),
    /// The tokenizer is.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

impl<'a> ChatFormat<'a> {
    /// The format for `tokenizer`: the template that `rules` give, else the tokenizer's own, else
    /// ChatML; for the byte tokenizer its markers.
    ///
    /// # Errors
    /// The template is broken, or a file beside the tokenizer cannot be read.
    pub fn new(tokenizer: &'a Tokenizer, rules: &Rules) -> Result<Self> {
        let compiled = |source| ChatTemplate::compile(source).map(Box::new);
        let given = rules.chat_template.as_ref();
        let source = of_tokenizer(tokenizer, given, &rules.template_values)?;
        let form = match (source, tokenizer) {
            (Some(source), _) => Form::Template(compiled(source)?),
            (None, Tokenizer::Byte(byte)) => Form::Markers(*byte),
            (None, _) => Form::ChatMl(compiled(chatml())?),
        };
        Ok(Self { tokenizer, form })
    }

    /// The template, unless a built-in format is used.
    pub fn template(&self) -> Option<&ChatTemplate> {
        match &self.form {
            Form::Template(template) => Some(template),
            Form::ChatMl(_) | Form::Markers(_) => None,
        }
    }

    /// Tokens of a conversation with their loss mask, and the number of answers that should bear
    /// loss and do not.
    ///
    /// The ids are those of the whole text. A token bears loss where all its bytes do: one that
    /// reaches across the border of an answer is none that the model was asked for alone.
    ///
    /// # Errors
    /// The template refuses the conversation, or the tokenizer fails.
    pub fn encode(
        &self,
        conversation: &Conversation,
        loss_on: LossOn,
    ) -> std::result::Result<(Tokens, u64), ChatFault> {
        let template = match self.checked(conversation)? {
            Checked::Template(template) => template,
            Checked::Markers(byte) => return Ok((byte.encode_chat(conversation, loss_on), 0)),
        };
        let rendered = template.rendered(conversation, loss_on).map_err(record)?;
        let mut tokens = Tokens::default();
        let mut spans = rendered.spans.iter().peekable();
        for (id, range) in self.tokenizer.encode_with_ranges(&rendered.text)? {
            while spans.next_if(|span| span.end <= range.start).is_some() {}
            let bears_loss = spans.peek().is_some_and(|span| lies_in(&range, span));
            tokens.extend([id], bears_loss);
        }
        Ok((tokens, rendered.unlearned_turns))
    }

    /// Tokens that ask for an assistant's turn after `conversation`.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn prompt(&self, conversation: &Conversation) -> std::result::Result<Vec<u32>, ChatFault> {
        match self.checked(conversation)? {
            Checked::Template(template) => {
                let text = template.prompt(conversation).map_err(record)?;
                Ok(self.tokenizer.encode(&text)?)
            }
            Checked::Markers(byte) => Ok(byte.encode_prompt(conversation)),
        }
    }

    /// The form to use, once it is clear that it can show the conversation.
    fn checked(&self, conversation: &Conversation) -> std::result::Result<Checked<'_>, ChatFault> {
        let checked = match &self.form {
            Form::Template(template) => return Ok(Checked::Template(template)),
            Form::ChatMl(template) => {
                for token in ["<|im_start|>", "<|im_end|>"] {
                    if !self.tokenizer.has_token(token) {
                        return Err(EncodeError::NoChatToken { token }.into());
                    }
                }
                Checked::Template(template)
            }
            Form::Markers(byte) => Checked::Markers(*byte),
        };
        for (i, turn) in conversation.turns.iter().enumerate() {
            let worded = |field: &&&str| turn.fields.contains_key(**field);
            if let Some(field) = WORDED.iter().find(worded) {
                let message = i + 1;
                return Err(BadRecord::NeedsTemplate { message, field }.into());
            }
        }
        Ok(checked)
    }
}

/// A form that can show the conversation at hand.
enum Checked<'a> {
    Template(&'a ChatTemplate),
    Markers(ByteTokenizer),
}

/// Fields that carry words of the model, which must not vanish.
const WORDED: [&str; 2] = ["reasoning_content", "tool_calls"];

fn record(fault: TemplateFault) -> ChatFault {
    BadRecord::Template(fault).into()
}

fn lies_in(token: &Range<usize>, span: &Range<usize>) -> bool {
    span.start <= token.start && token.end <= span.end
}
