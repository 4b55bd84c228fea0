//! `strftime_now` of a fixed moment.
//!
//! Templates that print today's date would give another data set every day. Here today is always
//! Friday, 26 July 2024, 00:00:00: the date that Llama 3's template falls back to.

use minijinja::{Error, ErrorKind};

/// The fixed moment under Python's `format`, English names.
///
/// # Errors
/// A code that is none of the usual ones.
pub(super) fn fixed(format: &str) -> Result<String, Error> {
    let mut out = String::new();
    let mut rest = format.chars();
    while let Some(c) = rest.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut code = rest.next();
        let bare = code == Some('-');
        if bare {
            code = rest.next();
        }
        let text = match code {
            Some('Y') => "2024",
            Some('y') => "24",
            Some('m') => "07",
            Some('d' | 'e') => "26",
            Some('B') => "July",
            Some('b' | 'h') => "Jul",
            Some('A') => "Friday",
            Some('a') => "Fri",
            Some('w' | 'u') => "5",
            Some('j') => "208",
            Some('H' | 'M' | 'S') => "00",
            Some('I') => "12",
            Some('p') => "AM",
            Some('F') => "2024-07-26",
            Some('D') => "07/26/24",
            Some('T') => "00:00:00",
            Some('%') => "%",
            code => {
                let code = code.map_or_else(String::new, String::from);
                let message = format!("strftime_now does not know %{code}");
                return Err(Error::new(ErrorKind::InvalidOperation, message));
            }
        };
        let without_zero = text.strip_prefix('0').filter(|rest| !rest.is_empty());
        out.push_str(without_zero.filter(|_| bare).unwrap_or(text));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_moment_is_the_same_every_day() {
        let of = |format| fixed(format).expect("known codes");
        assert_eq!(of("%d %b %Y"), "26 Jul 2024");
        assert_eq!(
            of("%A, %B %-d; %-m/%y %H:%M 100%%"),
            "Friday, July 26; 7/24 00:00 100%"
        );
        assert_eq!(of("%-H"), "0");
    }

    #[test]
    fn unknown_codes_are_named() {
        let error = fixed("%Q").expect_err("no such code");
        assert!(
            error.to_string().contains("strftime_now does not know %Q"),
            "{error}"
        );
        assert!(fixed("%").is_err());
    }
}
