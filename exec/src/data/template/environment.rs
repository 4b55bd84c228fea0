//! What a template finds around it.

use minijinja::value::{Kwargs, Value};
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior};

use super::source::TemplateSource;
use super::{generation, json, strftime};

/// The environment of `apply_chat_template`, without the template.
pub(super) fn new(source: &TemplateSource) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    // As Jinja: what is undefined prints nothing and is false, and its attributes are errors.
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    // Nothing is HTML here, whatever the template is called.
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", |format: &str| strftime::fixed(format));
    environment.add_filter("tojson", tojson);
    environment.add_filter(generation::FILTER, |text: &str| generation::marked(text));
    if let Some(bos) = &source.bos {
        environment.add_global("bos_token", bos.as_str());
    }
    if let Some(eos) = &source.eos {
        environment.add_global("eos_token", eos.as_str());
    }
    for (key, value) in &source.arguments {
        environment.add_global(key.clone(), value.clone());
    }
    environment
}

/// Instructions of one rendering, at most: thousands of turns fit, an endless loop does not.
const FUEL: u64 = 20_000_000;

/// What `raise_exception` was given.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Raised(pub(super) String);

fn raise_exception(message: String) -> Result<Value, Error> {
    let error = Error::new(ErrorKind::InvalidOperation, message.clone());
    Err(error.with_source(Raised(message)))
}

/// `json.dumps` with `ensure_ascii=False`, instead of Jinja's filter that escapes HTML.
fn tojson(value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let ascii: Option<bool> = options.get("ensure_ascii")?;
    let sorted: Option<bool> = options.get("sort_keys")?;
    options.assert_all_used()?;
    json::dumps(
        value,
        indent,
        ascii.unwrap_or(false),
        sorted.unwrap_or(false),
    )
}
