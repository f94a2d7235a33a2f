//! Masking of a tool's secrets in the responses of its server.

use agent_core::secret::Secret;
use serde_json::Value;

/// Minimum length of a secret that is masked, in bytes: shorter ones occur in other words.
const MIN_SECRET_BYTES: usize = 6;
/// Limits on the steps in which a text is compared with a secret: for each text, and more for each of its bytes. Only texts that
/// repeat the beginning of a secret over and over take as many.
const MIN_STEPS: usize = 4096;
const MAX_STEPS_PER_BYTE: usize = 16;
/// Maximum number of backslashes in front of a character: the escapes of JSON in a text of JSON in a text of JSON.
const MAX_BACKSLASHES: usize = 7;
/// Maximum number of times that a percent sign is encoded again.
const MAX_REPEATED_ENCODINGS: usize = 3;
/// Maximum length of the number of a character reference, in digits.
const MAX_REFERENCE_DIGITS: usize = 7;
/// Characters that JSON and JavaScript escape by a backslash and a letter.
const LETTER_ESCAPES: [(char, char); 5] =
    [('\n', 'n'), ('\r', 'r'), ('\t', 't'), ('\u{8}', 'b'), ('\u{c}', 'f')];
/// Named character references of HTML and XML.
const NAMED_REFERENCES: [(char, &str); 5] =
    [('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;"), ('"', "&quot;"), ('\'', "&apos;")];

/// Secrets of one call. Each is masked in plain form and in the encodings of URLs, forms, JSON and HTML, whichever of its characters
/// they encode: a server may repeat it in any of them.
#[derive(Default)]
pub(super) struct Redactor(Vec<Secret>);

impl Redactor {
    /// Adds a secret.
    pub(super) fn add(&mut self, secret: Secret) {
        if secret.expose().len() >= MIN_SECRET_BYTES {
            self.0.push(secret);
        }
    }

    /// Returns the text with each secret replaced by its mask.
    pub(super) fn text(&self, text: String) -> String {
        self.0.iter().fold(text, |text, secret| mask(text, secret.expose()))
    }

    /// Masks the secrets in the texts and keys of a JSON value.
    pub(super) fn value(&self, value: Value) -> Value {
        if self.0.is_empty() {
            return value;
        }
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(items) => items.into_iter().map(|item| self.value(item)).collect(),
            Value::Object(fields) => {
                fields.into_iter().map(|(name, value)| (self.text(name), self.value(value))).collect()
            }
            value => value,
        }
    }
}

/// Returns the text with its occurrences of a secret replaced by the mask. A text whose comparison with the secret takes too
/// many steps is replaced as a whole.
fn mask(text: String, secret: &str) -> String {
    let first = secret.chars().next();
    let may_begin =
        |c: char| Some(c) == first || matches!(c, '%' | '\\' | '&') || (c == '+' && first == Some(' '));
    let mut remaining_steps = MIN_STEPS + MAX_STEPS_PER_BYTE * text.len();
    let (mut masked, mut end) = (String::new(), 0);
    for (start, c) in text.char_indices() {
        if start < end || !may_begin(c) {
            continue;
        }
        let length = written_length(&text[start..], secret, &mut remaining_steps);
        if remaining_steps == 0 {
            return Secret::MASK.to_owned();
        }
        if let Some(length) = length {
            masked.push_str(&text[end..start]);
            masked.push_str(Secret::MASK);
            end = start + length;
        }
    }
    if end == 0 {
        return text;
    }
    masked.push_str(&text[end..]);
    masked
}

/// Returns the length of the secret at the beginning of a text; `None` if it does not begin with the secret in any form, or if
/// no steps remain. A step compares one character of the secret at one place.
fn written_length(text: &str, secret: &str, remaining_steps: &mut usize) -> Option<usize> {
    let (mut ends, mut next_ends) = (vec![0_usize], Vec::new());
    for c in secret.chars() {
        *remaining_steps = remaining_steps.saturating_sub(ends.len());
        if ends.is_empty() || *remaining_steps == 0 {
            return None;
        }
        for end in ends.drain(..) {
            next_ends.extend(written_lengths(&text[end..], c).map(|length| end + length));
        }
        next_ends.sort_unstable();
        next_ends.dedup();
        std::mem::swap(&mut ends, &mut next_ends);
    }
    ends.last().copied()
}

/// Returns the lengths of a character at the beginning of a text, in each form that it has there.
fn written_lengths(text: &str, c: char) -> impl Iterator<Item = usize> {
    let plain = text.starts_with(c).then_some(c.len_utf8());
    let space = (c == ' ' && text.starts_with('+')).then_some(1);
    let forms = [plain, space, percent_length(text, c), escape_length(text, c), reference_length(text, c)];
    forms.into_iter().flatten().chain(percent_sign_lengths(text, c)).chain(backslash_lengths(text, c))
}

/// Returns the lengths of a backslash that is escaped by backslashes, once and more than once.
fn backslash_lengths(text: &str, c: char) -> impl Iterator<Item = usize> {
    let backslashes = if c == '\\' { leading_backslashes(text) } else { 0 };
    [2, 4, 8].into_iter().filter(move |length| *length <= backslashes)
}

/// Returns the lengths of a percent sign that is encoded, once and more than once: `%25`, `%2525`.
fn percent_sign_lengths(text: &str, c: char) -> impl Iterator<Item = usize> {
    let rest = text.strip_prefix('%').filter(|_| c == '%').unwrap_or_default();
    let digits = rest.bytes().zip("25".bytes().cycle()).take_while(|(byte, digit)| byte == digit);
    let encodings = digits.take(2 * (MAX_REPEATED_ENCODINGS + 1)).count() / 2;
    (1..=encodings).map(|encodings| 1 + 2 * encodings)
}

/// Returns the length of a percent-encoded character (RFC 3986, section 2.1), which may be encoded more than once.
fn percent_length(text: &str, c: char) -> Option<usize> {
    let mut buffer = [0; 4];
    let mut rest = text;
    for byte in c.encode_utf8(&mut buffer).bytes() {
        rest = rest.strip_prefix('%')?;
        for _ in 0..MAX_REPEATED_ENCODINGS {
            if hex_number(rest, 2) == Some(byte.into()) {
                break;
            }
            rest = rest.strip_prefix("25")?;
        }
        rest = rest.get(2..).filter(|_| hex_number(rest, 2) == Some(byte.into()))?;
    }
    Some(text.len() - rest.len())
}

/// Returns the length of a character that is escaped by backslashes, as in JSON.
fn escape_length(text: &str, c: char) -> Option<usize> {
    let backslashes = leading_backslashes(text);
    let escape = &text[backslashes..];
    if !(1..=MAX_BACKSLASHES).contains(&backslashes) {
        return None;
    }
    let letter = LETTER_ESCAPES.iter().find(|(escaped, _)| *escaped == c).map(|(_, letter)| *letter);
    if escape.starts_with(letter.unwrap_or(c)) && (letter.is_some() || c.is_ascii_punctuation()) {
        return Some(backslashes + 1);
    }
    let mut buffer = [0; 2];
    let mut rest = text;
    for unit in c.encode_utf16(&mut buffer) {
        rest = rest[leading_backslashes(rest)..].strip_prefix('u')?;
        rest = rest.get(4..).filter(|_| hex_number(rest, 4) == Some(u32::from(*unit)))?;
    }
    Some(text.len() - rest.len())
}

/// Returns the number of backslashes at the beginning of a text, up to one more than the maximum.
fn leading_backslashes(text: &str) -> usize {
    text.bytes().take(MAX_BACKSLASHES + 1).take_while(|byte| *byte == b'\\').count()
}

/// Returns the length of a character reference of HTML.
fn reference_length(text: &str, c: char) -> Option<usize> {
    let mut references = NAMED_REFERENCES.iter().filter(|(named, _)| *named == c).map(|(_, name)| *name);
    if let Some(name) = references.find(|name| text.starts_with(name)) {
        return Some(name.len());
    }
    let number = text.strip_prefix("&#")?;
    let (digits, radix) = match number.strip_prefix(['x', 'X']) {
        Some(digits) => (digits, 16),
        None => (number, 10),
    };
    let length =
        digits.find(|digit: char| !digit.is_digit(radix)).filter(|length| *length <= MAX_REFERENCE_DIGITS)?;
    let is_same = u32::from_str_radix(&digits[..length], radix) == Ok(c.into());
    let rest = digits[length..].strip_prefix(';').filter(|_| is_same)?;
    Some(text.len() - rest.len())
}

/// Returns the hexadecimal number of `digits` digits at the beginning of a text.
fn hex_number(text: &str, digits: usize) -> Option<u32> {
    let digits = text.get(..digits).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    u32::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
    use serde_json::json;
    use url::form_urlencoded;

    use super::*;

    /// Characters that `encodeURIComponent` of JavaScript encodes.
    const COMPONENT: &AsciiSet = &NON_ALPHANUMERIC
        .remove(b'-')
        .remove(b'_')
        .remove(b'.')
        .remove(b'!')
        .remove(b'~')
        .remove(b'*')
        .remove(b'\'')
        .remove(b'(')
        .remove(b')');

    /// Returns a text as it is within a text of JSON.
    fn escaped(text: &str) -> String {
        let json = Value::from(text).to_string();
        json[1..json.len() - 1].to_owned()
    }

    fn redactor(secrets: &[&str]) -> Redactor {
        let mut redactor = Redactor::default();
        secrets.iter().for_each(|secret| redactor.add(Secret::new((*secret).to_owned())));
        redactor
    }

    #[test]
    fn a_secret_is_masked_in_json_that_a_text_quotes() {
        let redactor = redactor(&["pass\"word/1", "short"]);
        for text in [
            "pass\"word/1",
            r#"{"key": "pass\"word/1"}"#,
            r#"{"key": "pass\"word\/1"}"#,
            r#"{"key": "pass\u0022word\u002F1"}"#,
            r#""{\"key\": \"pass\\\"word/1\"}""#,
            r#"<a title="pass&quot;word/1">"#,
            "<a title='pass&#34;word&#x2f;1'>",
        ] {
            let masked = redactor.text(format!("seen: {text}, short"));
            assert!(masked.contains(Secret::MASK) && !masked.contains("word"), "{masked}");
            assert!(masked.ends_with(", short"), "{masked}");
        }
        assert_eq!(redactor.value(json!({"pass\"word/1": [1]})), json!({"***": [1]}));
    }

    #[test]
    fn a_secret_is_masked_as_addresses_and_forms_have_it() {
        for secret in ["it's (a) *secret*!~", "a+b/c==d%2fe&f", "k\u{e9}y\u{1f511}-\\value"] {
            let redactor = redactor(&[secret]);
            let form: String = form_urlencoded::byte_serialize(secret.as_bytes()).collect();
            let component = utf8_percent_encode(secret, COMPONENT).to_string();
            let all = utf8_percent_encode(secret, NON_ALPHANUMERIC).to_string();
            for form in [
                secret.to_owned(),
                form.replace('+', "%20"),
                component.replace("%2F", "/").replace("%26", "&amp;"),
                all.to_ascii_lowercase(),
                utf8_percent_encode(&all, NON_ALPHANUMERIC).to_string(),
                escaped(secret),
                escaped(&escaped(secret)),
                escaped(&escaped(&escaped(secret))),
                secret.replace('\\', "\\u005c"),
                secret.replace('&', "&amp;"),
                form,
                component,
                all,
            ] {
                let masked = redactor.text(format!("GET /x?key={form}&y=1 {form}"));
                assert_eq!(masked, "GET /x?key=***&y=1 ***", "{form}");
            }
            let other = secret.replace('e', "f");
            assert_eq!(redactor.text(other.clone()), other);
        }
    }

    #[test]
    fn a_text_that_repeats_the_beginning_of_a_secret_is_masked_as_a_whole() {
        for (first, text) in [("a", "a"), ("\\", "\\"), ("%", "%25")] {
            let redactor = redactor(&[format!("{}b", first.repeat(2_000)).as_str()]);
            assert_eq!(redactor.text(text.repeat(50_000)), Secret::MASK, "{first}");
            let short = text.repeat(20);
            assert_eq!(redactor.text(short.clone()), short);
        }
        let redactor = redactor(&["-----BEGIN KEY-----"]);
        let lines = "-----\n%25\\\\&amp;".repeat(20_000);
        assert_eq!(redactor.text(lines.clone()), lines);
    }

    #[test]
    fn texts_that_end_within_a_secret_are_kept() {
        let redactor = redactor(&["a/b c\u{e9}&"]);
        for text in [
            "a",
            "a%",
            "a%2",
            "a%25",
            "a%2525252F",
            "a\\",
            "a\\u00",
            "a/b+c%C3",
            "a/b c\u{e9}",
            "a/b c&#",
            "\u{e9}%\u{e9}\u{e9}",
        ] {
            assert_eq!(redactor.text(text.to_owned()), text);
        }
    }
}
