//! Superscripts as characters: `10⁶` is another number than `106`.

/// Returns a text of digits and signs as superscripts; `None` for one with other characters, and for an empty one.
pub(crate) fn raised(text: &str) -> Option<String> {
    let raised: Option<String> = text.trim().chars().map(superscript).collect();
    raised.filter(|raised| !raised.is_empty())
}

/// Returns the superscript of a digit or sign; `None` for another character.
fn superscript(character: char) -> Option<char> {
    Some(match character {
        '0' => '⁰',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        '4'..='9' => char::from_u32(u32::from('⁴') + u32::from(character) - u32::from('4'))?,
        '+' => '⁺',
        '-' | '\u{2212}' => '⁻',
        '(' => '⁽',
        ')' => '⁾',
        'n' => 'ⁿ',
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_and_signs_are_raised() {
        for (text, expected) in [
            ("0123456789", Some("⁰¹²³⁴⁵⁶⁷⁸⁹")),
            ("-2", Some("⁻²")),
            ("(n+1)", Some("⁽ⁿ⁺¹⁾")),
            ("st", None),
            (" ", None),
        ] {
            assert_eq!(raised(text).as_deref(), expected, "{text}");
        }
    }
}
