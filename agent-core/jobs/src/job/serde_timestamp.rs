//! Serde representation of times in a stored job, for `#[serde(with)]`: a number, which costs a tenth of text, since
//! a job is read and written at each of its steps.
//!
//! The number is nanoseconds since the Unix epoch. Times that do not fit in 64 bits, before 1677 and after 2262, are
//! RFC 3339 text. Text is accepted for every time when reading.

use std::fmt;

use jiff::Timestamp;
use serde::de::{Deserializer, Error, Visitor};
use serde::ser::Serializer;

/// Serializes a time.
///
/// # Errors
/// Errors of the serializer.
pub fn serialize<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    match i64::try_from(time.as_nanosecond()) {
        Ok(nanos) => serializer.serialize_i64(nanos),
        Err(_) => serializer.collect_str(time),
    }
}

/// Deserializes a time from a number or from text.
///
/// # Errors
/// Errors of the deserializer, and values that are not a time.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
    deserializer.deserialize_any(TimestampVisitor)
}

struct TimestampVisitor;

impl Visitor<'_> for TimestampVisitor {
    type Value = Timestamp;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nanoseconds since 1970, or a time of RFC 3339")
    }

    fn visit_i64<E: Error>(self, nanos: i64) -> Result<Timestamp, E> {
        Timestamp::from_nanosecond(nanos.into()).map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, nanos: u64) -> Result<Timestamp, E> {
        Timestamp::from_nanosecond(nanos.into()).map_err(E::custom)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Timestamp, E> {
        text.parse().map_err(E::custom)
    }
}

/// Serde representation of optional times, for `#[serde(with)]`.
pub mod option {
    use jiff::Timestamp;
    use serde::de::{Deserialize, Deserializer};
    use serde::ser::{Serialize, Serializer};

    struct OptionalTimestamp(Timestamp);

    impl Serialize for OptionalTimestamp {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            super::serialize(&self.0, serializer)
        }
    }

    impl<'de> Deserialize<'de> for OptionalTimestamp {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            super::deserialize(deserializer).map(Self)
        }
    }

    /// Serializes an optional time.
    ///
    /// # Errors
    /// Errors of the serializer.
    pub fn serialize<S: Serializer>(time: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
        time.map(OptionalTimestamp).serialize(serializer)
    }

    /// Deserializes an optional time.
    ///
    /// # Errors
    /// Errors of the deserializer, and values that are not a time.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
        Ok(Option::<OptionalTimestamp>::deserialize(deserializer)?.map(|timestamp| timestamp.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    struct Stored {
        #[serde(with = "super")]
        at: Timestamp,
        #[serde(default, skip_serializing_if = "Option::is_none", with = "super::option")]
        next: Option<Timestamp>,
    }

    fn stored(at: &str, next: Option<&str>) -> Stored {
        Stored { at: at.parse().unwrap(), next: next.map(|next| next.parse().unwrap()) }
    }

    #[test]
    fn a_time_is_a_number_if_it_is_in_range() {
        let cases = [
            (stored("2026-03-01T12:00:00.000000001Z", None), r#"{"at":1772366400000000001}"#),
            (stored("1969-12-31T23:59:59Z", Some("1970-01-01T00:00:00Z")), r#"{"at":-1000000000,"next":0}"#),
            (
                stored("9999-12-30T22:00:00.9Z", Some("-009999-01-02T02:00:00Z")),
                r#"{"at":"9999-12-30T22:00:00.9Z","next":"-009999-01-02T02:00:00Z"}"#,
            ),
        ];
        for (times, json) in cases {
            assert_eq!(serde_json::to_string(&times).unwrap(), json);
            assert_eq!(serde_json::from_str::<Stored>(json).unwrap(), times);
        }
    }

    #[test]
    fn times_as_text_are_accepted_and_other_values_are_not() {
        let old = r#"{"at":"2026-03-01T12:00:00Z","next":"2026-03-01T12:00:01Z"}"#;
        let times = stored("2026-03-01T12:00:00Z", Some("2026-03-01T12:00:01Z"));
        assert_eq!(serde_json::from_str::<Stored>(old).unwrap(), times);
        for bad in [r#"{"at":"noon"}"#, r#"{"at":1.5}"#, r#"{"at":null}"#, r#"{"at":[]}"#] {
            serde_json::from_str::<Stored>(bad).expect_err(bad);
        }
    }
}
