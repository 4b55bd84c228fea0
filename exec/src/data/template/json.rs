//! JSON as Python's `json.dumps` writes it.

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// `value` with `", "` and `": "` between its parts, or a part a line under `indent`.
pub(super) fn dumps(
    value: &Value,
    indent: Option<usize>,
    ascii: bool,
    sorted: bool,
) -> Result<String, Error> {
    let mut writer = Writer {
        out: String::new(),
        indent,
        ascii,
        sorted,
        depth: 0,
    };
    writer.value(value)?;
    Ok(writer.out)
}

struct Writer {
    out: String,
    indent: Option<usize>,
    ascii: bool,
    sorted: bool,
    depth: usize,
}

impl Writer {
    fn value(&mut self, value: &Value) -> Result<(), Error> {
        match value.kind() {
            ValueKind::String => self.text(value.as_str().unwrap_or_default()),
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool | ValueKind::Number => self.scalar(value)?,
            ValueKind::Seq | ValueKind::Iterable => {
                let parts: Vec<Value> = value.try_iter()?.collect();
                self.parts('[', ']', &parts, |writer, part| writer.value(part))?;
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sorted {
                    keys.sort();
                }
                self.parts('{', '}', &keys, |writer, key| {
                    writer.text(&key.to_string());
                    writer.out.push_str(": ");
                    writer.value(&value.get_item(key)?)
                })?;
            }
            kind => {
                let message = format!("{kind} has no JSON");
                return Err(Error::new(ErrorKind::BadSerialization, message));
            }
        }
        Ok(())
    }

    fn scalar(&mut self, value: &Value) -> Result<(), Error> {
        let text = serde_json::to_string(value)
            .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?;
        self.out.push_str(&text);
        Ok(())
    }

    fn text(&mut self, text: &str) {
        let quoted = serde_json::Value::from(text).to_string();
        if !self.ascii {
            self.out.push_str(&quoted);
            return;
        }
        for c in quoted.chars() {
            if c.is_ascii() {
                self.out.push(c);
                continue;
            }
            for unit in c.encode_utf16(&mut [0; 2]) {
                self.out.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }

    fn parts(
        &mut self,
        open: char,
        close: char,
        parts: &[Value],
        mut each: impl FnMut(&mut Self, &Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(open);
        self.depth += 1;
        for (i, part) in parts.iter().enumerate() {
            if i > 0 {
                self.out
                    .push_str(if self.indent.is_some() { "," } else { ", " });
            }
            self.new_line();
            each(self, part)?;
        }
        self.depth -= 1;
        if !parts.is_empty() {
            self.new_line();
        }
        self.out.push(close);
        Ok(())
    }

    fn new_line(&mut self) {
        if let Some(indent) = self.indent {
            self.out.push('\n');
            self.out.push_str(&" ".repeat(indent * self.depth));
        }
    }
}
