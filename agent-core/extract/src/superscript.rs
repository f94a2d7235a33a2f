//! Superscripts as Unicode characters, so that `10⁶` does not become `106`.

/// Returns a text of digits and signs as superscripts, with the white space around it; `None` for one with other characters, and
/// for a blank one.
pub(crate) fn raised(text: &str) -> Option<String> {
    let (indent, rest) = text.split_at(text.len() - text.trim_start().len());
    let (characters, end) = rest.split_at(rest.trim_end().len());
    if characters.is_empty() {
        return None;
    }
    let raised = characters.chars().map(superscript).collect::<Option<String>>()?;
    Some(format!("{indent}{raised}{end}"))
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
    fn digits_and_signs_become_superscripts() {
        for (text, expected) in [
            ("0123456789", Some("⁰¹²³⁴⁵⁶⁷⁸⁹")),
            ("-2", Some("⁻²")),
            ("(n+1)", Some("⁽ⁿ⁺¹⁾")),
            ("2 ", Some("² ")),
            (" -2\n", Some(" ⁻²\n")),
            ("st", None),
            (" ", None),
        ] {
            assert_eq!(raised(text).as_deref(), expected, "{text}");
        }
    }
}
