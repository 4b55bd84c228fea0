//! The font of the figures, compiled in so that no machine needs one installed: Noto Sans (SIL Open Font License).
//!
//! It also measures text, and breaks or cuts it to a width.

use std::sync::OnceLock;

use ab_glyph::{Font, FontRef, PxScale, ScaleFont, point};

/// In SVG, the families that a viewer tries in turn.
pub(super) const FAMILY: &str = "Noto Sans, Helvetica, Arial, sans-serif";

/// Width of `text` in logical pixels at `size` pixels an em.
pub(super) fn width_of(text: &str, size: f64, bold: bool) -> f64 {
    let mut end = 0.0;
    for_each_glyph(text, size, bold, |_, _, advanced| end = advanced);
    f64::from(end)
}

/// Splits `text` at spaces into at most `lines_max` lines no wider than `width`; what is too long ends in `…`.
pub(crate) fn wrap(text: &str, size: f64, bold: bool, width: f64, lines_max: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        if let Some(line) = lines.last_mut() {
            let longer = format!("{line} {word}");
            let is_full = width_of(&longer, size, bold) > width;
            if !is_full || lines.len() == lines_max {
                let last = lines.len() - 1;
                lines[last] = cut(&longer, size, bold, width);
                if is_full {
                    break;
                }
                continue;
            }
        }
        lines.push(cut(word, size, bold, width));
    }
    lines
}

/// `text`, or as much of its beginning as fits into `width` followed by `…`.
pub(crate) fn cut(text: &str, size: f64, bold: bool, width: f64) -> String {
    if width_of(text, size, bold) <= width {
        return text.to_owned();
    }
    let mut kept: Vec<char> = text.chars().collect();
    while kept.pop().is_some() {
        let shorter = format!("{}…", kept.iter().collect::<String>().trim_end());
        if width_of(&shorter, size, bold) <= width {
            return shorter;
        }
    }
    String::new()
}

/// Calls `paint` with each pixel that `text` covers, relative to the start of its baseline, and the share covered.
pub(super) fn rasterise(text: &str, size: f64, bold: bool, mut paint: impl FnMut(i32, i32, f32)) {
    let font = font(bold);
    for_each_glyph(text, size, bold, |character, start, _| {
        let glyph = font
            .glyph_id(character)
            .with_scale_and_position(scale(font, size), point(start, 0.0));
        if let Some(outline) = font.outline_glyph(glyph) {
            let (left, top) = (
                outline.px_bounds().min.x as i32,
                outline.px_bounds().min.y as i32,
            );
            outline.draw(|x, y, covered| paint(left + x as i32, top + y as i32, covered));
        }
    });
}

/// Calls `visit` with each character, where it starts and where the next one does.
fn for_each_glyph(text: &str, size: f64, bold: bool, mut visit: impl FnMut(char, f32, f32)) {
    let font = font(bold);
    let scaled = font.as_scaled(scale(font, size));
    let mut start = 0.0;
    let mut before = None;
    for character in text.chars() {
        let glyph = font.glyph_id(character);
        start += before.map_or(0.0, |before| scaled.kern(before, glyph));
        let next = start + scaled.h_advance(glyph);
        visit(character, start, next);
        start = next;
        before = Some(glyph);
    }
}

/// The font library scales by the height of a line; this scale makes an em `size` pixels.
fn scale(font: &FontRef<'_>, size: f64) -> PxScale {
    let per_em = font.height_unscaled() / font.units_per_em().unwrap_or(1000.0);
    PxScale::from(size as f32 * per_em)
}

fn font(bold: bool) -> &'static FontRef<'static> {
    static FONTS: OnceLock<[FontRef<'static>; 2]> = OnceLock::new();
    let fonts = FONTS.get_or_init(|| {
        [notosans::REGULAR_TTF, notosans::BOLD_TTF]
            .map(|bytes| FontRef::try_from_slice(bytes).expect("the compiled-in font is readable"))
    });
    &fonts[usize::from(bold)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn width_grows_with_text_size_and_weight() {
        let plain = width_of("composed", 20.0, false);
        assert!(plain > 80.0 && plain < 110.0, "{plain}");
        assert!((width_of("composed", 40.0, false) - 2.0 * plain).abs() < 0.01);
        assert!(width_of("composed", 20.0, true) > plain);
        assert_eq!(width_of("", 20.0, false), 0.0);
    }

    #[test]
    fn capitals_stand_on_the_baseline() {
        let (mut top, mut bottom) = (0, i32::MIN);
        rasterise("H", 100.0, false, |_, y, covered| {
            if covered > 0.5 {
                (top, bottom) = (top.min(y), bottom.max(y));
            }
        });
        assert_eq!((top, bottom), (-71, -1));
    }

    #[test]
    fn every_sign_in_use_has_a_glyph() {
        for sign in "≤≥·…−±µ→×–’°".chars() {
            assert_ne!(font(false).glyph_id(sign).0, 0, "{sign}");
        }
    }

    #[test]
    fn wrapping_keeps_to_width_and_lines() {
        let lines = wrap("one two three extraordinarily", 20.0, false, 90.0, 9);
        assert_eq!(lines[..2], ["one two", "three"]);
        assert!(lines[2].ends_with('…'), "{lines:?}");
        let lines = wrap("one two three four", 20.0, false, 90.0, 2);
        assert!(lines.len() == 2 && lines[1].ends_with('…'), "{lines:?}");
        for line in lines {
            assert!(width_of(&line, 20.0, false) <= 90.0, "{line}");
        }
        assert_eq!(wrap("two words", 20.0, false, 500.0, 1), ["two words"]);
        assert_eq!(cut("abc", 20.0, false, 0.0), "");
    }
}
