//! Times in JSON: RFC 3339 in UTC with milliseconds.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serializer, de};

use crate::workspace::utc_time;

/// Returns the time cut to whole milliseconds, as stores keep it.
pub(super) fn whole_millis(time: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(time.as_millisecond()).unwrap_or(time)
}

pub(super) fn serialize<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&utc_time(*time))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
    let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
    text.parse().map_err(de::Error::custom)
}

/// Optional times.
pub(super) mod option {
    use super::{Deserialize, Deserializer, Serializer, Timestamp};

    #[derive(Deserialize)]
    struct Wrapped(#[serde(with = "super")] Timestamp);

    pub(in super::super) fn serialize<S: Serializer>(
        time: &Option<Timestamp>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => super::serialize(time, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Timestamp>, D::Error> {
        Ok(Option::<Wrapped>::deserialize(deserializer)?.map(|wrapped| wrapped.0))
    }
}
