//! Serde representation of times: RFC 3339 in UTC, to the millisecond.

use std::time::SystemTime;

use jiff::Timestamp;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serializer};

/// Returns true if the time can be represented in RFC 3339.
pub(super) fn is_representable(time: SystemTime) -> bool {
    Timestamp::try_from(time).is_ok()
}

pub(super) fn serialize<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    let time = Timestamp::try_from(*time).map_err(S::Error::custom)?;
    serializer.collect_str(&format_args!("{time:.3}"))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SystemTime, D::Error> {
    let text = String::deserialize(deserializer)?;
    let time: Timestamp = text.parse().map_err(D::Error::custom)?;
    Ok(time.into())
}

pub(super) fn schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time"})
}

/// Serde module for optional times in the same representation.
pub(super) mod option {
    use super::*;

    pub(in super::super) fn serialize<S: Serializer>(
        time: &Option<SystemTime>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => super::serialize(time, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<SystemTime>, D::Error> {
        super::deserialize(deserializer).map(Some)
    }
}
