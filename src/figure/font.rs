//! The font of the figures, compiled in so that no machine needs one installed: Noto Sans (SIL Open Font License).

use std::sync::OnceLock;

use plotters::style::{FontStyle, IntoFont, register_font};

/// Name under which the font is registered and, in SVG, the list of families that a viewer tries in turn.
pub(super) const FAMILY: &str = "Noto Sans, Helvetica, Arial, sans-serif";

/// Height of Noto Sans from descent to ascent, in em: what the bitmap renderer takes for the font size.
pub(super) const BITMAP_SIZE_PER_EM: f64 = 1.362;
/// The SVG renderer divides the font size by this number to get the em.
pub(super) const SVG_SIZE_PER_EM: f64 = 1.24;

/// Makes the font known to the renderers; later calls do nothing.
pub(super) fn register() {
    static DONE: OnceLock<()> = OnceLock::new();
    DONE.get_or_init(|| {
        for (style, bytes) in [
            (FontStyle::Normal, notosans::REGULAR_TTF),
            (FontStyle::Bold, notosans::BOLD_TTF),
        ] {
            // The bytes are compiled in, so a refusal would be a bug that every test sees as missing text.
            assert!(
                register_font(FAMILY, style, bytes).is_ok(),
                "the compiled-in font is readable"
            );
        }
    });
}

/// Width of `text` in logical pixels at `size` pixels an em.
pub(super) fn width_of(text: &str, size: f64, bold: bool) -> f64 {
    register();
    // Measured large, because the renderer counts whole pixels.
    const MEASURED_EM: f64 = 100.0;
    let style = if bold {
        FontStyle::Bold
    } else {
        FontStyle::Normal
    };
    let font = (FAMILY, MEASURED_EM * BITMAP_SIZE_PER_EM)
        .into_font()
        .style(style);
    let pixels = font.box_size(text).map_or(0, |(width, _)| width);
    f64::from(pixels) * size / MEASURED_EM
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn width_grows_with_text_size_and_weight() {
        let plain = width_of("composed", 20.0, false);
        assert!(plain > 60.0 && plain < 120.0, "{plain}");
        assert!((width_of("composed", 40.0, false) - 2.0 * plain).abs() < 1e-9);
        assert!(width_of("composed", 20.0, true) > plain);
        assert_eq!(width_of("", 20.0, false), 0.0);
    }
}
