//! Numbers of JSON texts that a reader with integers of 64 bits and floats of double precision would change.

use std::borrow::Cow;

/// Number of digits up to which integers are read as they are.
const MAX_INTEGER_DIGITS: usize = 18;

/// Puts numbers that would be read as others, such as `1.50` and those of many digits, in quotation marks, with `mark` in front
/// of each. A valid text stays valid; `mark` must not need an escape.
///
/// ```
/// use agent_retrieval::json_numbers::quote_inexact;
///
/// let json = r#"{"id": 123456789012345678901, "n": 7, "s": "1.50"}"#;
/// assert_eq!(quote_inexact(json, "#"), r##"{"id": "#123456789012345678901", "n": 7, "s": "1.50"}"##);
/// ```
#[must_use]
pub fn quote_inexact<'j>(json: &'j str, mark: &str) -> Cow<'j, str> {
    let mut exact = String::new();
    let (mut copied, mut offset) = (0, 0);
    let bytes = json.as_bytes();
    while let Some(&byte) = bytes.get(offset) {
        match byte {
            b'"' => offset += string_bytes(&bytes[offset..]),
            b'-' | b'0'..=b'9' => {
                let is_part = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
                let end = offset + bytes[offset..].iter().take_while(is_part).count();
                let number = &json[offset..end];
                if !is_exact(number) {
                    exact.push_str(&json[copied..offset]);
                    exact.extend(["\"", mark, number, "\""]);
                    copied = end;
                }
                offset = end;
            }
            _ => offset += 1,
        }
    }
    if copied == 0 {
        return Cow::Borrowed(json);
    }
    exact.push_str(&json[copied..]);
    Cow::Owned(exact)
}

/// Returns true if every writer would write the parsed number in this form. Writers differ about exponents.
fn is_exact(number: &str) -> bool {
    if !number.contains(['.', 'e', 'E']) {
        let is_short = number.len() <= MAX_INTEGER_DIGITS;
        return is_short || number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok();
    }
    !number.contains(['e', 'E']) && number.parse::<f64>().is_ok_and(|read| format!("{read:?}") == number)
}

/// Returns the length of the leading string of a text, with its quotation marks.
fn string_bytes(json: &[u8]) -> usize {
    let mut offset = 1;
    while let Some(&byte) = json.get(offset) {
        match byte {
            b'"' => return offset + 1,
            b'\\' => offset += 2,
            _ => offset += 1,
        }
    }
    json.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_a_reader_keeps_are_not_quoted() {
        for number in [
            "0",
            "-7",
            "1.5",
            "1.0",
            "-0.0",
            "-0.25",
            "1234567890123456.0",
            "123456789012345678",
            "18446744073709551615",
            "-9223372036854775808",
        ] {
            assert_eq!(quote_inexact(number, "#"), number);
        }
        for number in [
            "1.50",
            "1e5",
            "1E-7",
            "5e-5",
            "1e16",
            "0.00001",
            "12345678901234567.0",
            "18446744073709551616",
            "-9223372036854775809",
            "0.12345678901234567890",
            "1e400",
        ] {
            assert_eq!(quote_inexact(number, "#"), format!("\"#{number}\""));
        }
        let texts = r#"{"1.50": "a \" 2.50 \\", "n": [1.50,-1.50]}"#;
        assert_eq!(quote_inexact(texts, ""), r#"{"1.50": "a \" 2.50 \\", "n": ["1.50","-1.50"]}"#);
        assert_eq!(quote_inexact("\"1.50", ""), "\"1.50", "a text that does not end");
    }
}
