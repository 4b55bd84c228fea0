//! One line of a JSONL file, in any of the accepted shapes.

use serde::Deserialize;

use super::bad_record::BadRecord;
use super::chat::{Conversation, Message, Role, Tokens};

mod fields;

use fields::{Flag, Keys, WrittenTurn, shortened};
use minijinja::value::Value;

/// What a line holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Record {
    /// `messages`, `conversations`, or a prompt with its response.
    Chat(Conversation),
    /// `text`: every token bears loss.
    Text(String),
    /// `input_ids` with `loss_mask` or `packed_loss_mask`.
    Tokens(Tokens),
}

impl Record {
    /// Parses one line without its line end.
    ///
    /// The keys decide the shape, and only the fields of that shape are looked at: data sets carry
    /// ids, sources and duplicates of the prompt beside them. A key whose value is null is absent.
    pub(super) fn parse(line: &str) -> Result<Self, BadRecord> {
        Self::parse_with_id(line).map(|(record, _)| record)
    }

    /// As [`parse`](Self::parse), with the record's `id` where it is a string or a number.
    pub(super) fn parse_with_id(line: &str) -> Result<(Self, Option<String>), BadRecord> {
        let keys: Keys = from_json(line)?;
        let record = Self::of(&keys, line)?;
        Ok((record, keys.id))
    }

    fn of(keys: &Keys, line: &str) -> Result<Self, BadRecord> {
        let has = |key: &str| keys.names.contains(key);
        if has("input_ids") && has("loss_mask") {
            pretokenised(from_json(line)?)
        } else if has("input_ids") && has("packed_loss_mask") {
            packed(from_json(line)?)
        } else if has("messages") {
            let WithMessages { messages, tools } = from_json(line)?;
            chat(messages, tools)
        } else if has("conversations") {
            let WithConversations {
                conversations,
                tools,
            } = from_json(line)?;
            chat(conversations, tools)
        } else if has("prompt") && has("response") {
            let WithResponse { prompt, response } = from_json(line)?;
            Ok(exchange(prompt, response))
        } else if has("prompt") && has("completion") {
            let WithCompletion { prompt, completion } = from_json(line)?;
            Ok(exchange(prompt, completion))
        } else if has("text") {
            Ok(Self::Text(from_json::<WithText>(line)?.text))
        } else {
            Err(BadRecord::UnknownShape { found: keys.list() })
        }
    }
}

fn pretokenised(record: WithTokens) -> Result<Record, BadRecord> {
    let WithTokens {
        input_ids: ids,
        loss_mask,
    } = record;
    if ids.len() != loss_mask.len() {
        return Err(BadRecord::LengthMismatch {
            ids: ids.len(),
            mask: loss_mask.len(),
        });
    }
    let mask = loss_mask
        .into_iter()
        .map(|Flag(flag)| u8::from(flag))
        .collect();
    Ok(Record::Tokens(Tokens { ids, mask }))
}

/// `packed_loss_mask`: lengths of runs, in turn without and with loss, as in `"5,3,2"`.
fn packed(record: WithPacked) -> Result<Record, BadRecord> {
    let WithPacked {
        input_ids: ids,
        packed_loss_mask: written,
    } = record;
    let refuse = |reason: String| BadRecord::PackedMask { reason };
    let mut mask = Vec::with_capacity(ids.len());
    for (i, run) in written.split(',').enumerate() {
        let run = run.trim();
        let length: usize = run.parse().map_err(|_| {
            refuse(format!(
                "run {} is \"{}\", not a length",
                i + 1,
                shortened(run).escape_debug()
            ))
        })?;
        let sum = mask
            .len()
            .checked_add(length)
            .filter(|&sum| sum <= ids.len());
        let sum = sum.ok_or_else(|| {
            refuse(format!(
                "its runs are longer than the {} values of input_ids",
                ids.len()
            ))
        })?;
        mask.resize(sum, (i % 2) as u8);
    }
    if mask.len() != ids.len() {
        return Err(refuse(format!(
            "its runs add up to {}, but input_ids has {} values",
            mask.len(),
            ids.len()
        )));
    }
    Ok(Record::Tokens(Tokens { ids, mask }))
}

fn chat(turns: Vec<WrittenTurn>, tools: Option<Value>) -> Result<Record, BadRecord> {
    let turns = turns
        .into_iter()
        .enumerate()
        .map(|(index, turn)| turn.read(index + 1));
    Ok(Record::Chat(Conversation {
        turns: turns.collect::<Result<_, _>>()?,
        tools: tools.unwrap_or_else(|| Value::from(())),
    }))
}

fn exchange(prompt: String, response: String) -> Record {
    Record::Chat(Conversation::of(&[
        Message {
            role: Role::User,
            content: prompt,
        },
        Message {
            role: Role::Assistant,
            content: response,
        },
    ]))
}

fn from_json<'a, T: Deserialize<'a>>(line: &'a str) -> Result<T, BadRecord> {
    serde_json::from_str(line).map_err(|error| {
        // A record is one line, so the parser's own "line 1" would only confuse.
        let text = error.to_string();
        let place = format!(" at line {} column {}", error.line(), error.column());
        let reason = shortened(text.strip_suffix(&place).unwrap_or(&text));
        BadRecord::Json {
            reason,
            column: error.column().max(1),
        }
    })
}

#[derive(Deserialize)]
struct WithMessages {
    messages: Vec<WrittenTurn>,
    tools: Option<Value>,
}

#[derive(Deserialize)]
struct WithConversations {
    conversations: Vec<WrittenTurn>,
    tools: Option<Value>,
}

#[derive(Deserialize)]
struct WithResponse {
    prompt: String,
    response: String,
}

#[derive(Deserialize)]
struct WithCompletion {
    prompt: String,
    completion: String,
}

#[derive(Deserialize)]
struct WithText {
    text: String,
}

#[derive(Deserialize)]
struct WithTokens {
    input_ids: Vec<u32>,
    loss_mask: Vec<Flag>,
}

#[derive(Deserialize)]
struct WithPacked {
    input_ids: Vec<u32>,
    packed_loss_mask: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn talk(turns: &[(Role, &str)]) -> Result<Record, BadRecord> {
        let message = |&(role, content): &(Role, &str)| Message {
            role,
            content: content.into(),
        };
        let messages: Vec<_> = turns.iter().map(message).collect();
        Ok(Record::Chat(Conversation::of(&messages)))
    }

    #[track_caller]
    fn refused(line: &str, message: &str, column: Option<usize>) {
        let error = Record::parse(line).expect_err("the line must be refused");
        assert_eq!(
            (error.to_string(), error.column()),
            (message.to_owned(), column)
        );
    }

    #[test]
    fn every_shape_is_read() {
        let expected = talk(&[(Role::User, "q"), (Role::Assistant, "a")]);
        for line in [
            r#"{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}"#,
            r#"{"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}"#,
            r#"{"conversations": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}"#,
            r#"{"prompt": "q", "response": "a"}"#,
            r#"{"prompt": "q", "completion": "a", "source": {"deep": [1, 2]}}"#,
        ] {
            assert_eq!(Record::parse(line), expected, "{line}");
        }
        assert_eq!(
            Record::parse(r#"{"text": "hi", "id": 3}"#),
            Ok(Record::Text("hi".into()))
        );
        let tokens = Tokens {
            ids: vec![5, 6, 7, 8],
            mask: vec![0, 1, 1, 0],
        };
        let line = r#"{"input_ids": [5, 6, 7, 8], "loss_mask": [0, 1, true, false]}"#;
        assert_eq!(Record::parse(line), Ok(Record::Tokens(tokens.clone())));
        let line = r#"{"input_ids": [5, 6, 7, 8], "packed_loss_mask": "1, 2,1"}"#;
        assert_eq!(Record::parse(line), Ok(Record::Tokens(tokens)));
    }

    #[test]
    fn ids_are_kept_where_they_name_something() {
        let id = |line: &str| Record::parse_with_id(line).expect("a record").1;
        assert_eq!(id(r#"{"id": "c-7", "text": "t"}"#), Some("c-7".into()));
        assert_eq!(id(r#"{"text": "t", "id": 12}"#), Some("12".into()));
        assert_eq!(id(r#"{"text": "t", "id": null}"#), None);
        assert_eq!(id(r#"{"text": "t", "id": {"a": [1]}}"#), None);
        assert_eq!(id(r#"{"text": "t"}"#), None);
    }

    #[test]
    fn packed_masks_must_fit() {
        let refuse = |mask: &str, reason: &str| {
            refused(
                &format!(r#"{{"input_ids": [1, 2, 3], "packed_loss_mask": "{mask}"}}"#),
                &format!("packed_loss_mask cannot be used: {reason}"),
                None,
            );
        };
        refuse("1,1", "its runs add up to 2, but input_ids has 3 values");
        refuse("1,3", "its runs are longer than the 3 values of input_ids");
        refuse(
            "0,18446744073709551615,1",
            "its runs are longer than the 3 values of input_ids",
        );
        refuse("1,x", "run 2 is \"x\", not a length");
        refuse("", "run 1 is \"\", not a length");
    }

    #[test]
    fn what_a_turn_says_beside_its_words_is_kept_for_the_template() {
        let line = r#"{"messages": [{"role": "assistant", "content": "a", "reasoning_content": "r", "name": null}]}"#;
        let Ok(Record::Chat(talk)) = Record::parse(line) else {
            panic!("a conversation");
        };
        let fields = &talk.turns[0].fields;
        assert_eq!(fields.len(), 1);
        assert_eq!(fields["reasoning_content"], Value::from("r"));
    }

    #[test]
    fn content_may_be_a_list_of_text_parts() {
        let line = r#"{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b\n"}]}]}"#;
        assert_eq!(Record::parse(line), talk(&[(Role::User, "ab\n")]));
        refused(
            r#"{"messages": [{"role": "user", "content": [{"type": "image", "text": "a"}]}]}"#,
            "not a valid record: unknown variant `image`, expected `text`",
            Some(59),
        );
        refused(
            r#"{"messages": [{"role": "user", "content": 3}]}"#,
            "not a valid record: invalid type: integer `3`, expected a string or a list of text parts",
            Some(43),
        );
    }

    #[test]
    fn other_fields_and_null_keys_do_not_decide() {
        let line = r#"{"prompt": {"odd": 1}, "text": null, "messages": [{"role": "system", "content": "s"}]}"#;
        assert_eq!(Record::parse(line), talk(&[(Role::System, "s")]));
        let line = r#"{"messages": null, "text": "t"}"#;
        assert_eq!(Record::parse(line), Ok(Record::Text("t".into())));
    }

    #[test]
    fn broken_json_says_what_and_where() {
        refused(
            r#"{"text": "a""#,
            "not a valid record: EOF while parsing an object",
            Some(12),
        );
        refused(
            r#"{"text": NaN}"#,
            "not a valid record: expected value",
            Some(10),
        );
        refused(
            r#"{"text": "a"} x"#,
            "not a valid record: trailing characters",
            Some(15),
        );
        refused(
            "[1]",
            "not a valid record: invalid type: sequence, expected a JSON object",
            Some(1),
        );
        refused(
            r#"{"text": "a", "text": "b"}"#,
            "not a valid record: the key \"text\" occurs twice",
            Some(20),
        );
        refused(
            r#"{"text": 5}"#,
            "not a valid record: invalid type: integer `5`, expected a string",
            Some(10),
        );
        let deep = format!("{}{}", r#"{"messages": "#, "[".repeat(200));
        assert!(matches!(Record::parse(&deep), Err(BadRecord::Json { .. })));
    }

    #[test]
    fn unknown_shapes_name_the_keys_found_and_the_accepted() {
        let accepted = "accepted are messages, conversations, input_ids + loss_mask or packed_loss_mask, \
                        prompt + response, prompt + completion, or text";
        let unknown = |found: &str| format!("unknown record with {found}: {accepted}");
        refused(
            r#"{"question": "q", "answer": "a"}"#,
            &unknown(r#"the keys "answer", "question""#),
            None,
        );
        refused(
            r#"{"input_ids": [1]}"#,
            &unknown(r#"the keys "input_ids""#),
            None,
        );
        refused("{}", &unknown("no keys"), None);
        let many: Vec<_> = (10..30).map(|i| format!("\"k{i}\": 1")).collect();
        let text = Record::parse(&format!("{{{}}}", many.join(",")))
            .expect_err("unknown")
            .to_string();
        assert!(text.contains("\"k21\", ...: accepted are"), "{text}");
    }

    #[test]
    fn messages_are_checked() {
        refused(
            r#"{"messages": [{"role": "user", "content": "q"}, {"role": "nar\nrator", "content": "x"}]}"#,
            "message 2 has the unknown role \"nar\\nrator\": accepted are system, user, assistant and tool \
             (and developer, human, gpt, function, observation)",
            None,
        );
        refused(
            r#"{"messages": [{"content": "q"}]}"#,
            "message 1 has no role or from",
            None,
        );
        refused(
            r#"{"messages": [{"role": "assistant", "content": null}]}"#,
            "message 1 has no content or value",
            None,
        );
    }

    #[test]
    fn token_records_are_checked() {
        refused(
            r#"{"input_ids": [1, 2], "loss_mask": [1]}"#,
            "input_ids has 2 values but loss_mask has 1: both need one value a token",
            None,
        );
        refused(
            r#"{"input_ids": [1], "loss_mask": [2]}"#,
            "not a valid record: invalid value: integer `2`, expected a loss flag 0, 1, false or true",
            Some(34),
        );
        refused(
            r#"{"input_ids": [-1], "loss_mask": [1]}"#,
            "not a valid record: invalid value: integer `-1`, expected u32",
            Some(17),
        );
        refused(
            r#"{"input_ids": [1.5], "loss_mask": [1]}"#,
            "not a valid record: invalid type: floating point `1.5`, expected u32",
            Some(18),
        );
    }

    #[test]
    fn long_values_are_cut_in_messages() {
        let line = format!(r#"{{"messages": "{}"}}"#, "x".repeat(10_000));
        let text = Record::parse(&line).expect_err("no list").to_string();
        assert!(text.len() < 250 && text.ends_with("..."), "{text}");
    }
}
