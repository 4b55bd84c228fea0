//! One line of a file of prompts.

use serde_json::{Map, Value};

use super::{Asking, Prompt, name_of};
use crate::data::{Message, Role};

/// What a line asks.
pub(super) struct Line {
    id: String,
    asked: Asked,
}

enum Asked {
    Turns(Vec<Message>),
    Text(String),
    Tokens { ids: Vec<u32>, mask: Vec<u8> },
}

impl Line {
    /// Parses a line; says what is wrong otherwise.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let fields: Map<String, Value> = serde_json::from_str(text).map_err(|error| {
            let said = error.to_string();
            let what = said.split(" at line ").next().unwrap_or(&said);
            format!("not valid JSON: {what} at column {}", error.column())
        })?;
        let id = match fields.get("id") {
            Some(Value::String(id)) => id.clone(),
            Some(Value::Number(id)) => id.to_string(),
            _ => name_of(text),
        };
        let asked = asked(&fields)?;
        Ok(Self { id, asked })
    }

    /// The prompt in tokens.
    pub(super) fn prompt(self, asking: &Asking<'_>) -> Result<Prompt, String> {
        let Self { id, asked } = self;
        let short = || "is too short to be cut into a prompt and an answer".to_owned();
        match asked {
            Asked::Turns(turns) => Prompt::of_messages(id, turns, asking),
            Asked::Text(text) => {
                let ids = asking
                    .tokenizer()
                    .encode(&text)
                    .map_err(|e| e.to_string())?;
                let mask = vec![1; ids.len()];
                Prompt::of_sample(id, &ids, &mask).ok_or_else(short)
            }
            Asked::Tokens { ids, mask } => Prompt::of_sample(id, &ids, &mask).ok_or_else(short),
        }
    }
}

/// The keys decide the shape; a key whose value is null is absent.
fn asked(fields: &Map<String, Value>) -> Result<Asked, String> {
    let field = |key: &str| fields.get(key).filter(|value| !value.is_null());
    if let Some(turns) = field("messages").or_else(|| field("conversations")) {
        return turns_of(turns);
    }
    if let Some(prompt) = field("prompt") {
        return match prompt {
            Value::String(text) => Ok(Asked::Turns(vec![said(Role::User, text.clone())])),
            turns => turns_of(turns),
        };
    }
    if let Some(text) = field("text").and_then(Value::as_str) {
        return Ok(Asked::Text(text.to_owned()));
    }
    if let Some(ids) = field("input_ids") {
        return tokens_of(ids, field("loss_mask"));
    }
    let keys: Vec<&str> = fields.keys().map(String::as_str).collect();
    Err(format!(
        "has the keys {}; a prompt needs messages, conversations, prompt, text or input_ids",
        keys.join(", ")
    ))
}

fn turns_of(turns: &Value) -> Result<Asked, String> {
    let turns = turns
        .as_array()
        .ok_or("its turns are no list; write [{\"role\": …, \"content\": …}]")?;
    let mut messages = Vec::with_capacity(turns.len());
    for (number, turn) in (1..).zip(turns) {
        messages.push(message(turn).map_err(|problem| format!("turn {number}: {problem}"))?);
    }
    // What the assistant said last is what will be said anew.
    if messages
        .last()
        .is_some_and(|last| last.role == Role::Assistant)
    {
        messages.pop();
    }
    match messages.is_empty() {
        true => Err("has no turn to answer".to_owned()),
        false => Ok(Asked::Turns(messages)),
    }
}

fn message(turn: &Value) -> Result<Message, String> {
    let name = turn.get("role").or_else(|| turn.get("from"));
    let name = name.and_then(Value::as_str).ok_or("has no role")?;
    let role = Role::parse(name)
        .ok_or_else(|| format!("{name:?} is no role; write system, user, assistant or tool"))?;
    let content = turn.get("content").or_else(|| turn.get("value"));
    match content {
        Some(Value::String(text)) => Ok(said(role, text.clone())),
        Some(Value::Array(parts)) => {
            let texts = parts.iter().map(|part| part.get("text")?.as_str());
            let text: Option<String> = texts.collect();
            Ok(said(role, text.ok_or("has a part that is no text")?))
        }
        _ => Err("has no content".to_owned()),
    }
}

fn tokens_of(ids: &Value, mask: Option<&Value>) -> Result<Asked, String> {
    let list = |value: &Value| -> Option<Vec<u32>> {
        let one = |value: &Value| match value {
            Value::Bool(flag) => Some(u32::from(*flag)),
            value => value.as_u64()?.try_into().ok(),
        };
        value.as_array()?.iter().map(one).collect()
    };
    let ids = list(ids).ok_or("input_ids is no list of token ids")?;
    let mask = match mask {
        Some(mask) => list(mask).ok_or("loss_mask is no list of flags")?,
        None => vec![1; ids.len()],
    };
    if mask.len() != ids.len() {
        return Err(format!(
            "loss_mask has {} entries for {} input_ids",
            mask.len(),
            ids.len()
        ));
    }
    let mask = mask.into_iter().map(|flag| u8::from(flag != 0)).collect();
    Ok(Asked::Tokens { ids, mask })
}

fn said(role: Role, content: String) -> Message {
    Message { role, content }
}
