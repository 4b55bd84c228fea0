//! Chat templates: conversations to text, in the Jinja dialect that Hugging Face tokenizers ship.
//!
//! The environment is that of `apply_chat_template`: blocks trimmed, methods of Python strings and
//! dictionaries, `raise_exception`, `strftime_now`, `tojson` as Python writes it, `break` and
//! `continue`, `{% generation %}`, and `bos_token` and `eos_token` of the tokenizer. `tools` is none
//! unless the record brings some.

mod environment;
mod generation;
mod json;
mod source;
mod spans;
mod strftime;
#[cfg(test)]
mod tests;

use minijinja::value::Value;
use minijinja::{Environment, context};

pub use source::{TemplateSource, is_inline};
pub(super) use source::{chatml, of_tokenizer};

use super::error::{DataError, Result};

/// A compiled chat template.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: TemplateSource,
    marks_generation: bool,
}

impl ChatTemplate {
    /// Compiles a template.
    ///
    /// # Errors
    /// It is no Jinja template; the message names where it came from and the line.
    pub fn compile(source: TemplateSource) -> Result<Self> {
        let refuse = |reason: String| DataError::ChatTemplate {
            origin: source.origin.clone(),
            reason,
        };
        let rewritten = generation::rewritten(&source.text).map_err(refuse)?;
        let marks_generation = rewritten != source.text;
        let mut environment = environment::new(&source);
        environment
            .add_template_owned(NAME, rewritten)
            .map_err(|error| refuse(fault(&error).to_string()))?;
        Ok(Self {
            environment,
            source,
            marks_generation,
        })
    }

    /// Where the template came from, for messages.
    pub fn origin(&self) -> &str {
        &self.source.origin
    }

    /// The text as it was given.
    pub fn text(&self) -> &str {
        &self.source.text
    }

    /// Everything that decides a rendering beside the conversation.
    pub(super) fn deciding(&self) -> Vec<String> {
        let of = |token: &Option<String>| token.clone().unwrap_or_default();
        let mut all = vec![
            self.source.text.clone(),
            of(&self.source.bos),
            of(&self.source.eos),
        ];
        let arguments = self.source.arguments.iter();
        all.extend(arguments.map(|(key, value)| format!("{key}={value:?}")));
        all
    }

    /// The text of `messages`, with the head of an assistant's turn behind it if asked for.
    ///
    /// # Errors
    /// The template raises an exception or fails.
    fn render(
        &self,
        messages: &[Value],
        tools: &Value,
        add_generation_prompt: bool,
    ) -> std::result::Result<String, TemplateFault> {
        let template = self
            .environment
            .get_template(NAME)
            .map_err(|error| fault(&error))?;
        let context = context! {
            messages => messages,
            tools => tools,
            documents => Value::from(()),
            add_generation_prompt => add_generation_prompt,
        };
        template.render(context).map_err(|error| fault(&error))
    }
}

/// The one template of an environment.
const NAME: &str = "chat template";

/// Why a template gave no text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateFault {
    /// The template called `raise_exception`.
    #[error("the chat template refuses the conversation: {0:?}")]
    Raised(String),
    /// The template is broken, or meets something it does not expect.
    #[error("the chat template fails{}: {reason}", line.map_or_else(String::new, |l| format!(" in its line {l}")))]
    Failed {
        /// What the engine says.
        reason: String,
        /// The template's line, from 1, where known.
        line: Option<usize>,
    },
    /// The conversation holds the characters that mark what `{% generation %}` encloses.
    #[error("the conversation holds the noncharacter U+FDD0 or U+FDD1; remove it")]
    Sentinel,
}

fn fault(error: &minijinja::Error) -> TemplateFault {
    // The innermost error knows most: a failure inside a macro or an included block is wrapped.
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(inner) = cause {
        if let Some(environment::Raised(message)) = inner.downcast_ref() {
            return TemplateFault::Raised(message.clone());
        }
        cause = inner.source();
    }
    let what = error.kind().to_string();
    TemplateFault::Failed {
        reason: error
            .detail()
            .map_or_else(|| what.clone(), |detail| format!("{what}: {detail}")),
        line: error.line(),
    }
}
