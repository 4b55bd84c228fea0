//! `{% generation %} … {% endgeneration %}`: the template itself says what bears loss.
//!
//! The engine knows no such block, but filters enclose text in the same way: the tags are rewritten
//! as a filter that puts two noncharacters around its text, with whitespace control and line ends
//! left as they are. The marks are taken out again after rendering.

use std::ops::Range;

/// The filter that stands in for the block.
pub(super) const FILTER: &str = "dflash_generation";

const OPEN: char = '\u{FDD0}';
const CLOSE: char = '\u{FDD1}';

/// `text` between the marks.
pub(super) fn marked(text: &str) -> String {
    format!("{OPEN}{text}{CLOSE}")
}

/// Whether `text` holds a mark.
pub(super) fn holds_mark(text: &str) -> bool {
    text.contains([OPEN, CLOSE])
}

/// `text` without its marks, and what they enclosed in bytes of the result; a block inside another
/// counts with the outer one.
fn unmarked(text: &str) -> (String, Vec<Range<usize>>) {
    let mut plain = String::with_capacity(text.len());
    let (mut spans, mut depth, mut start) = (Vec::new(), 0_usize, 0);
    for c in text.chars() {
        match c {
            OPEN => {
                if depth == 0 {
                    start = plain.len();
                }
                depth += 1;
            }
            CLOSE => {
                depth = depth.saturating_sub(1);
                if depth == 0 && start < plain.len() {
                    spans.push(start..plain.len());
                }
            }
            c => plain.push(c),
        }
    }
    (plain, spans)
}

/// As [`unmarked`] where the template makes marks; else `text` as it is.
pub(super) fn unmarked_if(marks: bool, text: String) -> (String, Vec<Range<usize>>) {
    if marks {
        unmarked(&text)
    } else {
        (text, Vec::new())
    }
}

/// `template` with the block's tags rewritten.
///
/// # Errors
/// The tags do not pair up.
pub(super) fn rewritten(template: &str) -> Result<String, String> {
    let mut out = String::with_capacity(template.len());
    let (mut rest, mut open) = (template, 0_usize);
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at);
        out.push_str(before);
        let Some(end) = tag.find("%}") else {
            rest = tag;
            break;
        };
        let (tag, after) = tag.split_at(end + 2);
        rest = after;
        let inner = &tag[2..end];
        let name = inner.trim_matches(['-', '+']).trim();
        let replacement = match name {
            "generation" => {
                open += 1;
                format!("filter {FILTER}")
            }
            "endgeneration" => {
                let Some(left) = open.checked_sub(1) else {
                    return Err("{% endgeneration %} without {% generation %}".into());
                };
                open = left;
                "endfilter".into()
            }
            _ => {
                out.push_str(tag);
                continue;
            }
        };
        out.push_str(&tag.replacen(name, &replacement, 1));
    }
    out.push_str(rest);
    if open > 0 {
        return Err("{% generation %} without {% endgeneration %}".into());
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_keep_their_whitespace_control() {
        let template = "a {%- generation -%} b {%endgeneration%}{% if x %}generation{% endif %}";
        assert_eq!(
            rewritten(template).expect("paired"),
            "a {%- filter dflash_generation -%} b {%endfilter%}{% if x %}generation{% endif %}"
        );
        let none = "{{ '{%' }} {% set a = 'generation' %}";
        assert_eq!(rewritten(none).expect("untouched"), none);
    }

    #[test]
    fn unpaired_tags_are_refused() {
        for template in ["{% generation %}", "{% endgeneration %}"] {
            assert!(rewritten(template).is_err(), "{template}");
        }
    }

    #[test]
    fn marks_come_out_and_leave_their_spans() {
        let text = format!("é{}b{}", marked("cd"), marked(&format!("e{}", marked("f"))));
        assert_eq!(unmarked(&text), ("écdbef".into(), vec![2..4, 5..7]));
        assert!(holds_mark(&text) && !holds_mark("écd"));
    }
}
