//! Figures on a dark page: the same drawing with every colour turned over in lightness.
//!
//! Lightness is that of OKLab, which is even to the eye, so what stood out on white paper stands out on dark paper as much; hues stay.
//! Reference: B. Ottosson, "A perceptual color space for image processing", 2020.

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Lightness of white paper on a dark page: that of its ground.
const PAPER: f64 = 0.21;

/// Lightness of black ink there.
const INK: f64 = 1.133;

/// Chroma up to which a colour is a tint of the paper.
const TINT: f64 = 0.04;

/// Colours that would become darker than this are lifted towards it by that share, so that their order stays.
const MIDDLE: f64 = 0.5;
const LIFT: f64 = 0.7;

/// Rules that show figures dark: one for each colour that fills or strokes a shape in these SVG documents.
pub(super) fn rules<'a>(documents: impl Iterator<Item = &'a str>) -> String {
    let mut used = BTreeSet::new();
    for document in documents {
        for attribute in ["fill", "stroke"] {
            let start = format!("{attribute}=\"#");
            let found = document.split(start.as_str()).skip(1);
            let colors = found.filter_map(|rest| rest.get(..6));
            let colors = colors.filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
            used.extend(colors.map(|hex| (attribute, hex.to_owned())));
        }
    }
    let mut css = String::new();
    for (attribute, hex) in used {
        let [r, g, b] = turned(channels(&hex));
        // Writing to a string cannot fail.
        let _ = writeln!(
            css,
            "  figure [{attribute}=\"#{hex}\"] {{ {attribute}: #{r:02x}{g:02x}{b:02x}; }}"
        );
    }
    css
}

fn channels(hex: &str) -> [u8; 3] {
    let channel = |i: usize| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap_or(0);
    [channel(0), channel(1), channel(2)]
}

/// The colour of the same hue whose lightness is the other way round; duller where the screen has none as strong.
fn turned(color: [u8; 3]) -> [u8; 3] {
    let [l, a, b] = oklab(color.map(linear));
    let turned = INK - (INK - PAPER) * l;
    // Light colours would vanish on a dark page; greys and tints of the paper should.
    let colorful = ((a.hypot(b) - TINT) / TINT).clamp(0.0, 1.0);
    let l = (turned + LIFT * colorful * (MIDDLE - turned).max(0.0)).clamp(0.0, 1.0);
    let mut strength = 1.0;
    while strength > 0.0 {
        let rgb = linear_rgb([l, a * strength, b * strength]);
        if rgb
            .iter()
            .all(|channel| (-1e-4..=1.0 + 1e-4).contains(channel))
        {
            return rgb.map(encoded);
        }
        strength -= 0.05;
    }
    linear_rgb([l, 0.0, 0.0]).map(encoded)
}

fn linear(channel: u8) -> f64 {
    let value = f64::from(channel) / 255.0;
    if value <= 0.04045 {
        value / 12.92
    } else {
        ((value + 0.055) / 1.055).powf(2.4)
    }
}

fn encoded(value: f64) -> u8 {
    let value = value.clamp(0.0, 1.0);
    let value = if value <= 0.003_130_8 {
        value * 12.92
    } else {
        1.055 * value.powf(1.0 / 2.4) - 0.055
    };
    (value * 255.0).round() as u8
}

fn oklab([r, g, b]: [f64; 3]) -> [f64; 3] {
    let l = (0.412_221_470_8 * r + 0.536_332_536_3 * g + 0.051_445_992_9 * b).cbrt();
    let m = (0.211_903_498_2 * r + 0.680_699_545_1 * g + 0.107_396_956_6 * b).cbrt();
    let s = (0.088_302_461_9 * r + 0.281_718_837_6 * g + 0.629_978_700_5 * b).cbrt();
    [
        0.210_454_255_3 * l + 0.793_617_785_0 * m - 0.004_072_046_8 * s,
        1.977_998_495_1 * l - 2.428_592_205_0 * m + 0.450_593_709_9 * s,
        0.025_904_037_1 * l + 0.782_771_766_2 * m - 0.808_675_766_0 * s,
    ]
}

fn linear_rgb([lightness, a, b]: [f64; 3]) -> [f64; 3] {
    let l = (lightness + 0.396_337_777_4 * a + 0.215_803_757_3 * b).powi(3);
    let m = (lightness - 0.105_561_345_8 * a - 0.063_854_172_8 * b).powi(3);
    let s = (lightness - 0.089_484_177_5 * a - 1.291_485_548_0 * b).powi(3);
    [
        4.076_741_662_1 * l - 3.307_711_591_3 * m + 0.230_969_929_2 * s,
        -1.268_438_004_6 * l + 2.609_757_401_1 * m - 0.341_319_396_5 * s,
        -0.004_196_086_3 * l - 0.703_418_614_7 * m + 1.707_614_701_0 * s,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Contrast as the accessibility guidelines define it.
    fn contrast(a: [u8; 3], b: [u8; 3]) -> f64 {
        let luminance = |color: [u8; 3]| {
            let [r, g, b] = color.map(linear);
            0.2126 * r + 0.7152 * g + 0.0722 * b
        };
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn text_reads_as_well_on_a_dark_page() {
        let paper = turned([255; 3]);
        assert!(paper.iter().all(|&channel| channel < 40), "{paper:?}");
        for (text, least) in [("1C1C1C", 12.0), ("5C5C5C", 4.5)] {
            let found = contrast(turned(channels(text)), paper);
            assert!(found > least, "{text}: {found}");
        }
        // White on the darkest bar turns into dark on a light bar.
        assert!(contrast(paper, turned(channels("0C1E60"))) > 4.5);
    }

    #[test]
    fn lines_stand_out_from_the_dark_page() {
        let paper = turned([255; 3]);
        for hex in ["0072B2", "009E73", "D55E00", "CC79A7", "E69F00", "F0E442"] {
            let found = contrast(turned(channels(hex)), paper);
            assert!(found > 2.0, "{hex}: {found}");
        }
    }

    #[test]
    fn ranks_keep_their_order() {
        let ranks = ["E2F2B2", "91D4B9", "41B6C4", "1D83BC", "2254A3", "0C1E60"];
        let lightness = ranks.map(|hex| oklab(turned(channels(hex)).map(linear))[0]);
        assert!(lightness.is_sorted(), "{lightness:?}");
    }

    #[test]
    fn hues_stay() {
        for hex in ["0072B2", "D55E00", "009E73"] {
            let before = oklab(channels(hex).map(linear));
            let after = oklab(turned(channels(hex)).map(linear));
            let hue = |[_, a, b]: [f64; 3]| b.atan2(a);
            assert!((hue(before) - hue(after)).abs() < 0.06, "{hex}");
        }
    }

    #[test]
    fn each_colour_has_one_rule() {
        let svg = "<rect fill=\"#FFFFFF\" stroke=\"none\"/><path fill=\"none\" stroke=\"#1C1C1C\"/><rect fill=\"#FFFFFF\"/>";
        let css = rules([svg, svg].into_iter());
        assert_eq!(css.lines().count(), 2, "{css}");
        assert!(
            css.contains("figure [stroke=\"#1C1C1C\"] { stroke: #"),
            "{css}"
        );
    }
}
