//! Colors of text and of its background.

/// Maximum difference per channel of two colors that a reader cannot distinguish.
const MAX_COLOR_DIFFERENCE: u8 = 8;

/// A color as red, green and blue.
pub(super) type Color = [u8; 3];

/// Parses a color in six hexadecimal digits.
pub(super) fn parse_color(value: &str) -> Option<Color> {
    let number = u32::from_str_radix(value, 16).ok().filter(|_| value.len() == 6)?;
    let [_, red, green, blue] = number.to_be_bytes();
    Some([red, green, blue])
}

/// Returns true for colors that a reader cannot distinguish.
pub(super) fn are_indistinguishable(text: Color, behind: Color) -> bool {
    text.iter().zip(behind).all(|(&text, behind)| text.abs_diff(behind) <= MAX_COLOR_DIFFERENCE)
}
