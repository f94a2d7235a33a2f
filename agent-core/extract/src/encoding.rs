//! Decoding of text files.

use std::borrow::Cow;

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};

/// Maximum number of bytes that are read to guess an encoding without a byte order mark.
const MAX_GUESS_BYTES: usize = 1024 * 1024;
/// Maximum number of bytes at the beginning of an HTML document that are searched for its encoding.
const MAX_PRESCAN_BYTES: usize = 1024;
/// Minimum number of valid multi-byte characters for each invalid sequence in a damaged text that still counts as UTF-8.
const MIN_CHARACTERS_PER_ERROR: usize = 10;
/// Number of bytes at the beginning of a text that are examined for UTF-16 without a byte order mark.
const UTF_16_SAMPLE_BYTES: usize = 4 * 1024;

/// Decodes a text. A byte order mark decides; else the text is UTF-16 if it has the zeros of it, or UTF-8 if it is valid; else
/// its encoding is guessed, which is Windows-1252 for Western languages. Invalid sequences become U+FFFD.
pub(crate) fn decode(bytes: &[u8]) -> Cow<'_, str> {
    if let Some((encoding, length)) = Encoding::for_bom(bytes) {
        return encoding.decode_without_bom_handling(&bytes[length..]).0;
    }
    if let Some(encoding) = unmarked_utf_16(bytes) {
        return encoding.decode_without_bom_handling(bytes).0;
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let encoding = if is_damaged_utf8(bytes) { UTF_8 } else { guess(bytes) };
    encoding.decode_without_bom_handling(bytes).0
}

/// Returns the encoding of a text in UTF-16 without a byte order mark, as programs for Windows export it. At least a quarter of its
/// characters at the beginning are ASCII, of which one byte is zero, and no byte in the other places is.
pub(crate) fn unmarked_utf_16(bytes: &[u8]) -> Option<&'static Encoding> {
    let sample = &bytes[..bytes.len().min(UTF_16_SAMPLE_BYTES) & !1];
    let zeros = |offset: usize| sample.iter().skip(offset).step_by(2).filter(|&&byte| byte == 0).count();
    let encoding = match [zeros(0), zeros(1)] {
        [0, zeros] if zeros * 8 >= sample.len().max(1) => UTF_16LE,
        [zeros, 0] if zeros * 8 >= sample.len().max(1) => UTF_16BE,
        _ => return None,
    };
    let (text, _, _) = encoding.decode(sample);
    let is_text = |character: char| character.is_whitespace() || !character.is_control();
    // The sample may end within a surrogate pair.
    let text = text.trim_end_matches('\u{fffd}');
    text.chars().all(|character| is_text(character) && character != '\u{fffd}').then_some(encoding)
}

/// Decodes an HTML document, whose `meta` element may declare the encoding.
pub(crate) fn decode_html(bytes: &[u8]) -> Cow<'_, str> {
    if Encoding::for_bom(bytes).is_some() || std::str::from_utf8(bytes).is_ok() {
        return decode(bytes);
    }
    match declared_encoding(&bytes[..bytes.len().min(MAX_PRESCAN_BYTES)]) {
        Some(encoding) => encoding.decode_without_bom_handling(bytes).0,
        None => decode(bytes),
    }
}

/// Returns the encoding after the first `charset=`.
fn declared_encoding(head: &[u8]) -> Option<&'static Encoding> {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let value = head[head.find("charset=")? + "charset=".len()..].trim_start_matches(['"', '\'', ' ']);
    let end = value.find(|character: char| !character.is_ascii_alphanumeric() && !"-_:.".contains(character));
    Encoding::for_label(&value.as_bytes()[..end.unwrap_or(value.len())])
}

/// Returns true for UTF-8 with a few invalid sequences, such as a text that is cut within a character.
fn is_damaged_utf8(bytes: &[u8]) -> bool {
    let (mut characters, mut errors) = (0, 0);
    for chunk in bytes.utf8_chunks() {
        characters += chunk.valid().chars().filter(|character| !character.is_ascii()).count();
        errors += usize::from(!chunk.invalid().is_empty());
    }
    characters >= errors * MIN_CHARACTERS_PER_ERROR
}

fn guess(bytes: &[u8]) -> &'static Encoding {
    let sample = &bytes[..bytes.len().min(MAX_GUESS_BYTES)];
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(sample, true);
    detector.guess(None, Utf8Detection::Deny)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_are_recognized() {
        let german = "Grüße aus München: 20 € für die Straßenbahn";
        let (windows, ..) = encoding_rs::WINDOWS_1252.encode(german);
        let russian = "Договор хранится десять лет, после чего документы уничтожаются.";
        let (cyrillic, ..) = encoding_rs::WINDOWS_1251.encode(russian);
        let japanese = "領収書は十年間保管されます。その後、破棄されます。";
        let (shift_jis, ..) = encoding_rs::SHIFT_JIS.encode(japanese);
        let utf16_le: Vec<u8> = "\u{feff}Grüße".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let utf16_be: Vec<u8> = "\u{feff}Grüße".encode_utf16().flat_map(u16::to_be_bytes).collect();
        for (bytes, expected) in [
            (german.as_bytes(), german),
            ("\u{feff}Grüße".as_bytes(), "Grüße"),
            (&utf16_le, "Grüße"),
            (&utf16_be, "Grüße"),
            (&utf16_le[2..], "Grüße"),
            (&utf16_be[2..], "Grüße"),
            (b"a\0", "a"),
            (b"a\0\0b", "a\0\0b"),
            (b"a\0\x01\0", "a\0\x01\0"),
            (&windows, german),
            (&cyrillic, russian),
            (&shift_jis, japanese),
            (b"caf\xe9", "café"),
            (b"", ""),
        ] {
            assert_eq!(decode(bytes), expected);
        }
    }

    #[test]
    fn damage_does_not_change_the_encoding_of_the_rest() {
        let text = "Договор хранится десять лет.".as_bytes();
        let decoded = decode(&text[..text.len() - 2]);
        assert!(decoded.starts_with("Договор") && decoded.ends_with('\u{fffd}'), "{decoded}");
    }

    #[test]
    fn html_declares_its_encoding() {
        let (bytes, ..) = encoding_rs::KOI8_R.encode("<meta charset='koi8-r'><p>Договор");
        assert!(decode_html(&bytes).ends_with("Договор"));
        let (bytes, ..) =
            encoding_rs::WINDOWS_1252.encode("<meta content=\"text/html; charset=iso-8859-1\"><p>café");
        assert!(decode_html(&bytes).ends_with("café"));
        assert!(decode_html(b"<meta charset=nonsense><p>caf\xe9").ends_with("café"));
    }
}
