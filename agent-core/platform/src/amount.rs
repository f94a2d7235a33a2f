//! Amounts of money in nano-dollars: [`NanoUsd`].

use std::fmt;

/// Number of nano-dollars in a dollar.
const NANOS_PER_USD: i64 = 1_000_000_000;
/// Number of decimal places of a nano-dollar.
const DECIMALS: usize = 9;

/// Amount of money as a whole number of nano-dollars (10⁻⁹ USD). Arithmetic saturates.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct NanoUsd(i64);

/// Error of a text that is not an amount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be a decimal number of dollars from 0 to 9000000000, with at most 9 decimal places and no exponent"
)]
pub struct AmountError;

impl NanoUsd {
    /// The amount 0.
    pub const ZERO: Self = Self(0);
    /// Largest amount that [`parse`](Self::parse) accepts.
    pub const MAX: Self = Self(9 * NANOS_PER_USD * NANOS_PER_USD);

    /// Creates an amount; a negative number becomes 0.
    pub const fn new(nanos: i64) -> Self {
        Self(if nanos < 0 { 0 } else { nanos })
    }

    /// Returns the number of nano-dollars.
    pub const fn get(self) -> i64 {
        self.0
    }

    /// Parses a decimal number of dollars, such as `0.25`.
    ///
    /// # Errors
    /// The text has a sign, an exponent or more than nine decimal places, or is too large.
    pub fn parse(text: &str) -> Result<Self, AmountError> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(decimals) || whole.len() > 10 || decimals.len() > DECIMALS {
            return Err(AmountError);
        }
        let whole: i64 = whole.parse().map_err(|_| AmountError)?;
        let decimals: i64 = format!("{decimals:0<DECIMALS$}").parse().map_err(|_| AmountError)?;
        let amount = whole.checked_mul(NANOS_PER_USD).and_then(|nanos| nanos.checked_add(decimals));
        amount.map(Self).filter(|amount| *amount <= Self::MAX).ok_or(AmountError)
    }

    /// Adds two amounts.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// Formats dollars with all nine decimal places.
impl fmt::Display for NanoUsd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.0 / NANOS_PER_USD, self.0 % NANOS_PER_USD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_exact() {
        let cases = [
            ("0", Some(0)),
            ("1", Some(1_000_000_000)),
            ("0.05", Some(50_000_000)),
            ("000.000000001", Some(1)),
            ("9000000000", Some(NanoUsd::MAX.0)),
            ("9000000000.000000001", None),
            ("9999999999", None),
            ("99999999999", None),
            ("0.0000000001", None),
            ("", None),
            (".5", None),
            ("5.", None),
            ("-1", None),
            ("+1", None),
            ("1e400", None),
            ("NaN", None),
            ("1,5", None),
            ("１", None),
        ];
        for (text, expected) in cases {
            assert_eq!(NanoUsd::parse(text).ok().map(NanoUsd::get), expected, "{text:?}");
        }
        assert_eq!(NanoUsd(12_345_678).to_string(), "0.012345678");
        assert_eq!(NanoUsd(i64::MAX).plus(NanoUsd(1)), NanoUsd(i64::MAX));
        assert_eq!(NanoUsd::new(-5), NanoUsd::ZERO);
    }
}
