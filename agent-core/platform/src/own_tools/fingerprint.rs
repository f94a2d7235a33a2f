//! Fingerprints of tool definitions: SHA-256 over their canonical JSON (RFC 8785).

use serde_json::{Number, Value};
use sha2::{Digest, Sha256};

/// Largest integer up to which every integer is a double, 2^53.
const MAX_SAFE_INTEGER: u64 = 1 << 53;

/// Returns the SHA-256 of a value's canonical JSON, in lower-case hexadecimal.
pub(super) fn fingerprint(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    hex::encode(Sha256::digest(text))
}

/// Writes canonical JSON: members sorted by the UTF-16 code units of their names, no white space, numbers as ECMAScript
/// writes them. Integers beyond 2^53 keep all their digits, in contrast to RFC 8785, so that two of them always differ.
fn write(value: &Value, out: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by(|(one, _), (other, _)| one.encode_utf16().cmp(other.encode_utf16()));
            out.push('{');
            for (i, (name, value)) in fields.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(name.as_str()).to_string());
                out.push(':');
                write(value, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        Value::Number(number) => write_number(number, out),
        Value::Null | Value::Bool(_) | Value::String(_) => out.push_str(&value.to_string()),
    }
}

fn write_number(number: &Number, out: &mut String) {
    let is_exact = number.as_i64().is_some_and(|integer| integer.unsigned_abs() > MAX_SAFE_INTEGER)
        || number.as_u64().is_some_and(|integer| integer > MAX_SAFE_INTEGER);
    match number.as_f64().filter(|_| !is_exact) {
        Some(double) => write_double(double, out),
        None => out.push_str(&number.to_string()),
    }
}

/// Writes a double by `Number::toString` of ECMAScript: its shortest digits, with an exponent below 1e-6 and from 1e21.
fn write_double(double: f64, out: &mut String) {
    if double == 0.0 {
        return out.push('0');
    }
    let shortest = format!("{:e}", double.abs());
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    // Number of digits before the decimal point.
    let point = exponent.parse::<i32>().unwrap_or_default() + 1;
    let zeros = |count: i32| "0".repeat(usize::try_from(count).unwrap_or_default());
    if double < 0.0 {
        out.push('-');
    }
    let text = match point {
        point if (count..=21).contains(&point) => format!("{digits}{}", zeros(point - count)),
        1..=21 => {
            let (whole, fraction) = digits.split_at(usize::try_from(point).unwrap_or_default());
            format!("{whole}.{fraction}")
        }
        -5..=0 => format!("0.{}{digits}", zeros(-point)),
        _ => {
            let (first, rest) = digits.split_at(1);
            let fraction = if rest.is_empty() { String::new() } else { format!(".{rest}") };
            let sign = if point > 0 { "+" } else { "-" };
            format!("{first}{fraction}e{sign}{}", (point - 1).abs())
        }
    };
    out.push_str(&text);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn canonical(value: &Value) -> String {
        let mut text = String::new();
        write(value, &mut text);
        text
    }

    #[test]
    fn numbers_are_written_as_in_rfc_8785() {
        // Appendix B of the RFC.
        for (bits, expected) in [
            (0x0000_0000_0000_0000, "0"),
            (0x8000_0000_0000_0000, "0"),
            (0x0000_0000_0000_0001, "5e-324"),
            (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
            (0x4340_0000_0000_0000, "9007199254740992"),
            (0x4430_0000_0000_0000, "295147905179352830000"),
            (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
            (0x44b5_2d02_c7e1_4af6, "1e+23"),
            (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
            (0x444b_1ae4_d6e2_ef50, "1e+21"),
            (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
            (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
            (0x41b3_de43_5555_5553, "333333333.3333332"),
            (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
        ] {
            let mut text = String::new();
            write_double(f64::from_bits(bits), &mut text);
            assert_eq!(text, expected);
        }
        assert_eq!(canonical(&json!([1, 1.0, -5, u64::MAX, 4.50])), "[1,1,-5,18446744073709551615,4.5]");
    }

    #[test]
    fn members_are_sorted_and_texts_are_escaped_as_little_as_possible() {
        let value = json!({"\u{20ac}": "Euro", "\r": "CR", "\u{fb33}": "Hebrew", "1": "One", "\u{1f600}": "Emoji",
            "\u{80}": "Control", "\u{f6}": "\u{1}/\"\\\n"});
        let expected = "{\"\\r\":\"CR\",\"1\":\"One\",\"\u{80}\":\"Control\",\"\u{f6}\":\"\\u0001/\\\"\\\\\\n\",\
                        \"\u{20ac}\":\"Euro\",\"\u{1f600}\":\"Emoji\",\"\u{fb33}\":\"Hebrew\"}";
        assert_eq!(canonical(&value), expected);
        assert_eq!(fingerprint(&json!({"b": 1, "a": 2})), fingerprint(&json!({"a": 2, "b": 1.0})));
        assert_eq!(
            fingerprint(&json!({})),
            "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
        );
    }
}
