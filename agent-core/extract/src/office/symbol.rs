//! Characters of symbol fonts in Word documents, whose codes are not those of Unicode.

/// Characters of the font Symbol from 0x20 to 0x7E, and from 0xA0 to 0xFE. Parts of larger signs are spaces.
const SYMBOL: [&str; 2] = [
    " !∀#∃%&∋()∗+,−./0123456789:;<=>?≅ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_ αβχδεφγηιϕκλµνοπθρστυϖωξψζ{|}∼",
    "€ϒ′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…  ↵ℵℑℜ℘⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇   ∏√⋅¬∧∨⇔⇐⇑⇒⇓◊〈   ∑           〉∫⌠ ⌡         ",
];
/// Codes of the first characters of both.
const FIRST_CODES: [u32; 2] = [0x20, 0xa0];
/// Characters of the font Wingdings that have a meaning: boxes of forms, ticks and arrows.
const WINGDINGS: [(u32, char); 26] = [
    (0x28, '☎'),
    (0x2a, '✉'),
    (0x4a, '☺'),
    (0x4c, '☹'),
    (0x6c, '●'),
    (0x6e, '■'),
    (0x6f, '☐'),
    (0x71, '❑'),
    (0x72, '❒'),
    (0x76, '❖'),
    (0x78, '☒'),
    (0x9f, '•'),
    (0xa7, '▪'),
    (0xa8, '☐'),
    (0xd8, '➢'),
    (0xdf, '←'),
    (0xe0, '→'),
    (0xe1, '↑'),
    (0xe2, '↓'),
    (0xef, '⇦'),
    (0xf0, '⇨'),
    (0xf3, '⇔'),
    (0xfb, '✗'),
    (0xfc, '✓'),
    (0xfd, '☒'),
    (0xfe, '☑'),
];
/// Characters of the font Wingdings 2 that have a meaning.
const WINGDINGS_2: [(u32, char); 7] =
    [(0x4f, '✗'), (0x50, '✓'), (0x51, '☒'), (0x52, '☑'), (0x53, '☒'), (0x54, '☒'), (0xa3, '☐')];

/// Returns the text of a symbol by its font and its code in hexadecimal; `None` for one that is not known.
///
/// The codes of such fonts are private-use characters, or the low bytes of these. Any other code is a character of Unicode.
pub(super) fn symbol_text(font: Option<String>, code: Option<String>) -> Option<String> {
    let code = u32::from_str_radix(&code?, 16).ok()?;
    let low = match code {
        0xf000..=0xf0ff => code - 0xf000,
        0..=0xff => code,
        _ => return char::from_u32(code).map(String::from),
    };
    let listed = |list: &[(u32, char)]| {
        list.iter().find(|(listed_code, _)| *listed_code == low).map(|&(_, character)| character)
    };
    let character = match font.unwrap_or_default().to_ascii_lowercase().as_str() {
        "symbol" => SYMBOL.iter().zip(FIRST_CODES).find_map(|(characters, first)| {
            let offset = usize::try_from(low.checked_sub(first)?).ok()?;
            characters.chars().nth(offset)
        }),
        "wingdings" => listed(&WINGDINGS),
        "wingdings 2" => listed(&WINGDINGS_2),
        _ if code <= 0xff => char::from_u32(code),
        _ => None,
    };
    character.filter(|character| !character.is_control()).map(String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_characters_of_unicode() {
        for (font, code, expected) in [
            ("Symbol", "F06D", Some("\u{b5}")),
            ("Symbol", "61", Some("α")),
            ("Symbol", "F0B3", Some("≥")),
            ("Symbol", "F020", Some(" ")),
            ("Symbol", "F0FE", Some(" ")),
            ("Symbol", "F000", None),
            ("Wingdings", "F0FE", Some("☑")),
            ("Wingdings", "F021", None),
            ("Wingdings 2", "F052", Some("☑")),
            ("Arial", "2713", Some("✓")),
            ("Arial", "41", Some("A")),
            ("Other", "F041", None),
            ("Symbol", "x", None),
        ] {
            let text = symbol_text(Some(font.to_owned()), Some(code.to_owned()));
            assert_eq!(text.as_deref(), expected, "{font} {code}");
        }
        assert_eq!(symbol_text(None, None), None);
    }
}
