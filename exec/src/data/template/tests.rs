//! Templates beside recorded outputs of transformers: see `exec/tests/data/chat/generate.py`.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::*;
use crate::data::chat::{Conversation, Message, Role, Tokens};
use crate::data::record::Record;
use crate::data::rules::{LossOn, Rules};
use crate::data::testing::{CHATML_TOKENIZER, talk, write};
use crate::data::{ChatFault, ChatFormat, Tokenizer};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/chat");

/// What transformers made of a conversation.
#[derive(Deserialize)]
struct Case {
    template: String,
    name: String,
    /// A line of JSONL.
    record: String,
    values: BTreeMap<String, Value>,
    #[serde(default)]
    text: String,
    #[serde(default)]
    prompt: String,
    error: Option<String>,
    #[serde(default)]
    ids: Vec<u32>,
    mask: Option<Vec<u8>>,
}

impl Case {
    fn source(&self) -> TemplateSource {
        TemplateSource {
            bos: Some("<|begin_of_text|>".into()),
            eos: Some("<|eot_id|>".into()),
            arguments: self.values.clone(),
            ..template(&self.template)
        }
    }

    fn conversation(&self) -> Conversation {
        match Record::parse(&self.record).expect("a record") {
            Record::Chat(conversation) => conversation,
            other => panic!("{other:?} is no conversation"),
        }
    }

    fn shown(&self) -> String {
        format!("{}, {}, {:?}", self.template, self.name, self.values)
    }

    fn rules(&self) -> Rules {
        Rules {
            chat_template: Some(self.source()),
            template_values: self.values.clone(),
            ..Rules::new(4096)
        }
    }

    fn rendered(&self, loss_on: LossOn) -> spans::Rendered {
        let template = ChatTemplate::compile(self.source()).expect("a template");
        template
            .rendered(&self.conversation(), loss_on)
            .expect("a text")
    }

    /// What bears loss, as text, and the answers that do not.
    fn learned(&self, loss_on: LossOn) -> (Vec<String>, u64) {
        let rendered = self.rendered(loss_on);
        let spans = rendered.spans.iter();
        let texts = spans.map(|span| rendered.text[span.clone()].to_owned());
        (texts.collect(), rendered.unlearned_turns)
    }
}

fn template(name: &str) -> TemplateSource {
    TemplateSource::read(&format!("{FOLDER}/{name}.jinja")).expect("a template of the tests")
}

fn cases() -> Vec<Case> {
    let text = std::fs::read_to_string(format!("{FOLDER}/cases.json")).expect("recorded cases");
    serde_json::from_str(&text).expect("recorded cases")
}

#[track_caller]
fn case(template: &str, name: &str) -> Case {
    let found = cases()
        .into_iter()
        .find(|case| case.template == template && case.name == name);
    found.expect("a recorded case")
}

fn recorded_tokenizer() -> Tokenizer {
    Tokenizer::from_file(Path::new(FOLDER)).expect("the tokenizer of the tests")
}

#[test]
fn texts_and_prompts_are_those_of_transformers() {
    let (mut texts, mut errors) = (0, 0);
    for case in cases() {
        let template = ChatTemplate::compile(case.source()).expect("a template");
        let talk = case.conversation();
        let text = template
            .rendered(&talk, LossOn::All)
            .map(|rendered| rendered.text);
        match case.error.clone() {
            Some(message) => {
                assert_eq!(
                    text,
                    Err(TemplateFault::Raised(message)),
                    "{}",
                    case.shown()
                );
                errors += 1;
            }
            None => {
                assert_eq!(text.as_deref(), Ok(case.text.as_str()), "{}", case.shown());
                let prompt = template.prompt(&talk);
                assert_eq!(
                    prompt.as_deref(),
                    Ok(case.prompt.as_str()),
                    "{}",
                    case.shown()
                );
                texts += 1;
            }
        }
    }
    assert_eq!((texts, errors), (48, 6));
}

#[test]
fn ids_are_those_of_transformers_and_so_are_the_masks_of_marked_templates() {
    let tokenizer = recorded_tokenizer();
    let mut masks = 0;
    for case in cases().into_iter().filter(|case| case.error.is_none()) {
        let rules = case.rules();
        let format = ChatFormat::new(&tokenizer, &rules).expect("a format");
        let (tokens, _) = format
            .encode(&case.conversation(), LossOn::Assistant)
            .expect("tokens");
        assert_eq!(tokens.ids, case.ids, "{}", case.shown());
        let Some(mask) = &case.mask else { continue };
        assert_eq!(&tokens.mask, mask, "{}", case.shown());
        masks += 1;
    }
    assert_eq!(masks, 9);
}

#[test]
fn answers_bear_loss_with_the_token_that_ends_their_turn() {
    let learned = |template, name| case(template, name).learned(LossOn::Assistant);
    let both = |end: &str| {
        let thought = "<think>\nThe user asks.\n</think>\n\nI am fine.";
        (
            vec![format!("Ich heiße Ada.{end}"), format!("{thought}{end}")],
            0,
        )
    };
    assert_eq!(learned("smollm2", "two turns"), both("<|im_end|>"));
    assert_eq!(learned("llama3", "two turns"), both("<|eot_id|>"));
    assert_eq!(learned("strict", "two turns"), both("<end_of_turn>"));
    assert_eq!(learned("generation", "two turns"), both("<|im_end|>"));
    // An open end is no answer.
    let one = (vec!["Ich heiße Ada.<|im_end|>".to_owned()], 0);
    assert_eq!(learned("smollm2", "open end"), one);
}

#[test]
fn answers_that_the_template_rewrites_bear_none_and_are_counted() {
    let learned = |name| case("qwen3", name).learned(LossOn::Assistant);
    let thought = "<think>\nThe user asks.\n</think>\n\nI am fine.<|im_end|>";
    assert_eq!(learned("two turns"), (vec![thought.into()], 1));
    let last = "<think>\n\n</think>\n\nIch heiße Ada.<|im_end|>";
    assert_eq!(learned("thinking first"), (vec![last.into()], 1));
    assert_eq!(learned("one turn"), (vec![last.into()], 0));
    // The only answer would have begun with a thought, had the user said nothing more.
    assert_eq!(learned("open end"), (vec![], 1));
    let (calls, unlearned) = learned("reasoned tool");
    assert_eq!((calls.len(), unlearned), (2, 0));
    assert!(
        calls[0].starts_with("<think>\nAdd.\n</think>\n\n<tool_call>"),
        "{calls:?}"
    );
    // A head that thinking is switched off in is not what the model says.
    let off = cases()
        .into_iter()
        .find(|case| !case.values.is_empty() && case.name == "one turn");
    let off = off.expect("recorded").learned(LossOn::Assistant);
    assert_eq!(off, (vec!["Ich heiße Ada.<|im_end|>".into()], 0));
}

#[test]
fn a_conversation_that_begins_with_an_answer_keeps_the_others() {
    let (learned, unlearned) = case("smollm2", "answer first").learned(LossOn::Assistant);
    assert_eq!((learned.len(), unlearned), (1, 1));
    assert!(learned[0].ends_with("I am fine.<|im_end|>"));
}

#[test]
fn loss_may_be_on_the_last_answer_or_on_everything() {
    for template in ["smollm2", "generation"] {
        let case = case(template, "two turns");
        let (last, unlearned) = case.learned(LossOn::LastAssistant);
        assert_eq!((last.len(), unlearned), (1, 0));
        assert!(last[0].contains("I am fine."), "{last:?}");
        assert_eq!(case.learned(LossOn::All), (vec![case.text.clone()], 0));
    }
}

#[test]
fn a_token_across_the_border_of_an_answer_bears_no_loss() {
    let tokenizer = recorded_tokenizer();
    let rules = case("smollm2", "one turn").rules();
    let format = ChatFormat::new(&tokenizer, &rules).expect("a format");
    let masked = |answer: &str| {
        let talk = talk(&[(Role::User, "q"), (Role::Assistant, answer)]);
        let Tokens { ids, mask } = format.encode(&talk, LossOn::Assistant).expect("tokens").0;
        let learned: Vec<u32> = ids
            .iter()
            .zip(&mask)
            .filter(|(_, m)| **m == 1)
            .map(|(id, _)| *id)
            .collect();
        tokenizer.decode(&learned).expect("text")
    };
    assert_eq!(masked("hi"), "hi<|im_end|>");
    // The tokenizer joins the newline of the head and the first of the answer.
    assert_eq!(masked("\n\nhi"), "\nhi<|im_end|>");
}

#[test]
fn templates_that_are_none_name_origin_and_line() {
    let refused = |text: &str| {
        let source = TemplateSource::inline(text, "t.jinja");
        ChatTemplate::compile(source)
            .expect_err("no template")
            .to_string()
    };
    assert_eq!(
        refused("a\n{% for %}"),
        "t.jinja: cannot be used as a chat template: the chat template fails in its line 2: \
         syntax error: unexpected end of block, expected in"
    );
    assert!(refused("{% generation %}").ends_with("{% generation %} without {% endgeneration %}"));
    let missing = TemplateSource::read("gone.jinja")
        .expect_err("no file")
        .to_string();
    assert_eq!(
        missing,
        "gone.jinja: no such file or folder: check the path"
    );
}

#[test]
fn templates_that_fail_say_where_and_never_hang() {
    let fault = |text: &str| {
        let template =
            ChatTemplate::compile(TemplateSource::inline(text, "t")).expect("a template");
        template
            .rendered(&talk(&[(Role::User, "q")]), LossOn::All)
            .expect_err("it fails")
            .to_string()
    };
    assert_eq!(
        fault("\n{{ messages[7].content.x }}"),
        "the chat template fails in its line 2: undefined value"
    );
    assert_eq!(
        fault("{{ raise_exception('no \"q\"') }}"),
        "the chat template refuses the conversation: \"no \\\"q\\\"\""
    );
    let endless =
        "{% for a in range(99999) %}{% for b in range(99999) %}{{ b }}{% endfor %}{% endfor %}";
    assert!(fault(endless).contains("ran out of fuel"));
    assert!(fault("{{ messages | no_such_filter }}").contains("no_such_filter"));
    let marked = "{% generation %}{{ messages[0].content }}{% endgeneration %}";
    let template = ChatTemplate::compile(TemplateSource::inline(marked, "t")).expect("a template");
    let sly = talk(&[(Role::User, "a\u{FDD0}b")]);
    assert_eq!(
        template.rendered(&sly, LossOn::All),
        Err(TemplateFault::Sentinel)
    );
}

/// What a folder with `CHATML_TOKENIZER` and further files makes of a user's "a".
fn prompt_in(files: &[(&str, &str)]) -> Result<String> {
    let folder = tempfile::tempdir().expect("temporary folder");
    write(folder.path(), "tokenizer.json", CHATML_TOKENIZER);
    for (name, text) in files {
        write(folder.path(), name, text);
    }
    let tokenizer = Tokenizer::from_file(folder.path())?;
    let rules = Rules::new(64);
    let format = ChatFormat::new(&tokenizer, &rules)?;
    let message = Message {
        role: Role::User,
        content: "a".into(),
    };
    let ids = format
        .prompt(&Conversation::of(&[message]))
        .expect("tokens");
    Ok(tokenizer.decode(&ids).expect("text"))
}

#[test]
fn a_tokenizer_brings_its_template_in_any_of_the_usual_forms() {
    let built_in = "<|im_start|> user a <|im_end|> <|im_start|> assistant";
    assert_eq!(prompt_in(&[]).expect("ChatML"), built_in);
    let own = ("chat_template.jinja", "b {{ messages[0].content }} z");
    let string =
        r#"{"chat_template": "z {{ messages[0].content }}", "eos_token": {"content": "b"}}"#;
    assert_eq!(prompt_in(&[own]).expect("a file"), "b a z");
    assert_eq!(
        prompt_in(&[("tokenizer_config.json", string)]).expect("a string"),
        "z a"
    );
    assert_eq!(
        prompt_in(&[own, ("tokenizer_config.json", string)]).expect("both"),
        "b a z"
    );
    let tokens = ("chat_template.jinja", "{{ eos_token }} z {{ bos_token }}");
    assert_eq!(
        prompt_in(&[tokens, ("tokenizer_config.json", string)]).expect("tokens"),
        "b z"
    );
    let named = r#"{"chat_template": [{"name": "tool_use", "template": "a"}, {"name": "default", "template": "z"}]}"#;
    assert_eq!(
        prompt_in(&[("tokenizer_config.json", named)]).expect("a list"),
        "z"
    );
    let no_default = named.replace("\"default\"", "\"rag\"");
    let error = prompt_in(&[("tokenizer_config.json", &no_default)]).expect_err("no default");
    assert!(
        error
            .to_string()
            .contains("no template named default; set exec.data.chat_template"),
        "{error}"
    );
    let error = prompt_in(&[("tokenizer_config.json", "{")]).expect_err("no JSON");
    assert!(
        error
            .to_string()
            .contains("tokenizer_config.json: cannot be used"),
        "{error}"
    );
}

#[test]
fn the_built_in_chatml_learns_the_same_as_its_template() {
    let folder = tempfile::tempdir().expect("temporary folder");
    write(folder.path(), "tokenizer.json", CHATML_TOKENIZER);
    let tokenizer = Tokenizer::from_file(folder.path()).expect("tokenizer");
    let rules = Rules::new(64);
    let format = ChatFormat::new(&tokenizer, &rules).expect("a format");
    assert!(format.template().is_none());
    let said = talk(&[
        (Role::User, "a b"),
        (Role::Assistant, "b a"),
        (Role::User, "a"),
    ]);
    let (tokens, unlearned) = format.encode(&said, LossOn::Assistant).expect("tokens");
    // start=6 end=7 user=2 assistant=3 a=0 b=1; the whitespace splitter drops newlines.
    assert_eq!(tokens.ids, [6, 2, 0, 1, 7, 6, 3, 1, 0, 7, 6, 2, 0, 7]);
    assert_eq!(tokens.mask, [0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0]);
    assert_eq!(unlearned, 0);
    let mut reasoned = said.clone();
    reasoned.turns[1]
        .fields
        .insert("reasoning_content".into(), Value::from("r"));
    let fault = format
        .encode(&reasoned, LossOn::Assistant)
        .expect_err("words would vanish");
    assert!(matches!(fault, ChatFault::Record(_)));
    assert_eq!(
        fault.to_string(),
        "message 2 has reasoning_content, which the built-in chat format cannot show: \
         set chat_template, or use a tokenizer with a template"
    );
}
