//! Where a chat template comes from.

use std::collections::BTreeMap;
use std::path::Path;

use minijinja::value::Value;

use crate::data::error::{DataError, Result};
use crate::data::tokenizer::Tokenizer;

/// A template's text and the values it finds beside the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateSource {
    /// The text.
    pub text: String,
    /// Where it came from, for messages.
    pub origin: String,
    /// Value of `bos_token`.
    pub bos: Option<String>,
    /// Value of `eos_token`.
    pub eos: Option<String>,
    /// Further values, such as `enable_thinking`.
    pub arguments: BTreeMap<String, Value>,
}

impl TemplateSource {
    /// A template given as `text`, without special tokens.
    pub fn inline(text: &str, origin: &str) -> Self {
        Self {
            text: text.to_owned(),
            origin: origin.to_owned(),
            bos: None,
            eos: None,
            arguments: BTreeMap::new(),
        }
    }

    /// The template that `value` is, or the one in the file that it names: Jinja has braces, paths
    /// have not.
    ///
    /// # Errors
    /// The file is missing, cannot be read or is no UTF-8.
    pub fn read(value: &str) -> Result<Self> {
        if is_inline(value) {
            return Ok(Self::inline(value, "exec.data.chat_template"));
        }
        let path = Path::new(value);
        Ok(Self::inline(&text_of(path)?, &path.display().to_string()))
    }
}

/// Whether a setting is a template itself and not a path to one.
pub fn is_inline(value: &str) -> bool {
    value.contains("{{") || value.contains("{%") || value.contains('\n')
}

/// ChatML, which conversations are written in where nothing says otherwise.
pub(in crate::data) fn chatml() -> TemplateSource {
    TemplateSource::inline(CHATML, "the built-in ChatML")
}

const CHATML: &str = "{% for message in messages %}\
    {{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}\
    {% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/// The template for `tokenizer`: the one given, else the tokenizer's own, with its special tokens
/// and `values`.
///
/// A GGUF's own template is in it. A folder's is `chat_template.jinja`, or `chat_template` in
/// `tokenizer_config.json`: a string, or a list of named ones of which `default` is taken.
///
/// # Errors
/// A file beside the tokenizer cannot be read or is broken.
pub(in crate::data) fn of_tokenizer(
    tokenizer: &Tokenizer,
    given: Option<&TemplateSource>,
    values: &BTreeMap<String, Value>,
) -> Result<Option<TemplateSource>> {
    // A file that carries its own has nothing to do with what lies beside it.
    let carried = tokenizer.carried_template();
    let beside = tokenizer.path().filter(|_| carried.is_none());
    let folder = beside.and_then(Path::parent);
    let settings = match carried {
        Some(carried) => Settings {
            template: Some(carried.text.clone()),
            bos: carried.bos.clone(),
            eos: carried.eos.clone(),
        },
        None => folder
            .map(Settings::beside)
            .transpose()?
            .unwrap_or_default(),
    };
    let own = || -> Result<Option<TemplateSource>> {
        if let (Some(text), Some(path)) = (carried.map(|c| &c.text), tokenizer.path()) {
            let origin = path.display().to_string();
            return Ok(Some(TemplateSource::inline(text, &origin)));
        }
        let Some(folder) = folder else {
            return Ok(None);
        };
        let file = folder.join("chat_template.jinja");
        if file.is_file() {
            let origin = file.display().to_string();
            return Ok(Some(TemplateSource::inline(&text_of(&file)?, &origin)));
        }
        let origin = folder.join(CONFIG).display().to_string();
        Ok(settings
            .template
            .as_deref()
            .map(|text| TemplateSource::inline(text, &origin)))
    };
    let found = match given {
        Some(given) => Some(given.clone()),
        None => own()?,
    };
    Ok(found.map(|source| TemplateSource {
        bos: source.bos.or(settings.bos),
        eos: source.eos.or(settings.eos),
        arguments: values.clone(),
        ..source
    }))
}

/// What `tokenizer_config.json` says about conversations.
#[derive(Default)]
struct Settings {
    template: Option<String>,
    bos: Option<String>,
    eos: Option<String>,
}

const CONFIG: &str = "tokenizer_config.json";

impl Settings {
    fn beside(folder: &Path) -> Result<Self> {
        let path = folder.join(CONFIG);
        if !path.is_file() {
            return Ok(Self::default());
        }
        let refuse = |reason: String| DataError::ChatTemplate {
            origin: path.display().to_string(),
            reason,
        };
        let text = text_of(&path)?;
        let json: serde_json::Value =
            serde_json::from_str(&text).map_err(|error| refuse(error.to_string()))?;
        let template = match &json["chat_template"] {
            serde_json::Value::Null => None,
            serde_json::Value::String(text) => Some(text.clone()),
            serde_json::Value::Array(named) => Some(default_of(named).ok_or_else(|| {
                refuse(
                    "chat_template lists no template named default; set exec.data.chat_template"
                        .into(),
                )
            })?),
            _ => {
                return Err(refuse(
                    "chat_template is neither a string nor a list".into(),
                ));
            }
        };
        Ok(Self {
            template,
            bos: token(&json["bos_token"]),
            eos: token(&json["eos_token"]),
        })
    }
}

/// Among named templates the one called `default`, or the only one.
fn default_of(named: &[serde_json::Value]) -> Option<String> {
    let named_default = named.iter().find(|entry| entry["name"] == "default");
    let chosen = named_default.or_else(|| named.first().filter(|_| named.len() == 1))?;
    chosen["template"].as_str().map(str::to_owned)
}

/// A token written as a string, or as an object with its `content`.
fn token(value: &serde_json::Value) -> Option<String> {
    let text = value.as_str().or_else(|| value["content"].as_str());
    text.map(str::to_owned)
}

fn text_of(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).map_err(|error| DataError::io(path, error))?;
    String::from_utf8(bytes).map_err(|error| DataError::ChatTemplate {
        origin: path.display().to_string(),
        reason: format!("not UTF-8 at byte {}", error.utf8_error().valid_up_to()),
    })
}
