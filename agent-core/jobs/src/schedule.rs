//! Schedules: the times at which a job runs, as plain data with pure functions.
//!
//! [`ScheduleSpec`] is the schedule of a request; [`ScheduleSpec::resolve`] validates it and returns the [`Schedule`]
//! that is stored. [`Schedule::next_after`] returns the next occurrence. [`MisfirePolicy`] decides on missed
//! occurrences, and [`OverlapPolicy`] on those that became due during a run.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use agent_jobs::schedule::ScheduleSpec;
//! use jiff::Timestamp;
//!
//! let spec: ScheduleSpec = serde_json::from_str(r#"{"cron": "30 2 * * *", "timezone": "Europe/Berlin"}"#)?;
//! let now: Timestamp = "2026-03-28T12:00:00Z".parse()?;
//! let schedule = spec.resolve(now)?;
//!
//! // On 29 March Berlin's clocks go from 02:00 to 03:00; the job runs as soon as they have.
//! let next = schedule.next_after(now).ok_or("it fires every day")?;
//! assert_eq!(next.to_string(), "2026-03-29T01:00:00Z");
//! # Ok(())
//! # }
//! ```
//!
//! All times are whole milliseconds. No allocation depends on the number of occurrences, and each search is bounded:
//! a cron expression is searched for fifty years ahead, while the longest gap of an expression that fires is forty.

mod cron;
mod error;
mod field;
mod misfire;
mod pattern;
mod spec;
#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::Timestamp;
#[cfg(feature = "schemars")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use cron::{CronSchedule, DstPolicy, FoldPolicy, GapPolicy, find_time_zone};
pub use error::{CronField, ScheduleError};
pub(crate) use misfire::{CatchUp, catch_up};
pub use misfire::{MisfirePolicy, OverlapPolicy};
pub use spec::ScheduleSpec;

/// Times at which a job runs.
///
/// Serialized, in responses and in stores, like a [`ScheduleSpec`] with times in UTC: `{"executeAt"}`, `{"everyMs",
/// "anchor"}` or `{"cron", "timezone", "dst"?}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "DeserializedSchedule", into = "SerializedSchedule")]
pub enum Schedule {
    /// One-off: once at this time, or immediately if it has passed.
    At(Timestamp),
    /// Fixed rate: at `anchor + every`, `anchor + 2 * every` and so on, so that delays do not accumulate. In whole
    /// milliseconds.
    Every {
        /// Interval between two occurrences; a zero interval has no occurrence.
        every: Duration,
        /// Start of the first interval; not an occurrence itself.
        anchor: Timestamp,
    },
    /// Cron expression in a time zone.
    Cron(CronSchedule),
}

impl Schedule {
    /// Returns a one-off schedule `delay` after `now`, rounded up to whole milliseconds so that it is never early. A
    /// time beyond the calendar's end is clamped to it.
    pub fn after(now: Timestamp, delay: Duration) -> Self {
        Self::At(ceil_to_millis(now.saturating_add(delay).unwrap_or(Timestamp::MAX)))
    }

    /// Returns true if there may be more than one occurrence.
    pub(crate) fn is_periodic(&self) -> bool {
        !matches!(self, Self::At(_))
    }

    /// Returns the first occurrence of a job created at `now`. For [`At`](Self::At) this is its time, even if it has
    /// passed.
    pub fn first(&self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::At(time) => Some(*time),
            Self::Every { .. } | Self::Cron(_) => self.next_after(now),
        }
    }

    /// Returns the earliest occurrence later than `after`. `None` after the only occurrence, beyond the calendar's
    /// end and, for cron, if there is none within fifty years after `after`.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let next = match self {
            Self::At(time) => Some(*time).filter(|time| *time > after),
            Self::Every { every, anchor } => next_multiple(*every, *anchor, after),
            Self::Cron(cron) => cron.next_after(after),
        };
        debug_assert!(next.is_none_or(|next| next > after), "{self:?} goes back from {after} to {next:?}");
        next
    }
}

fn next_multiple(every: Duration, anchor: Timestamp, after: Timestamp) -> Option<Timestamp> {
    let every = i64::try_from(every.as_millis()).ok().filter(|every| *every > 0)?;
    let anchor = floor_millis(anchor);
    let elapsed_intervals = floor_millis(after).checked_sub(anchor)?.div_euclid(every);
    let count = elapsed_intervals.max(0) + 1;
    Timestamp::from_millisecond(anchor.checked_add(every.checked_mul(count)?)?).ok()
}

/// Returns the milliseconds since the Unix epoch, rounded down also before the epoch.
fn floor_millis(time: Timestamp) -> i64 {
    let millis = time.as_nanosecond().div_euclid(1_000_000);
    i64::try_from(millis).expect("the calendar has fewer than 2^63 milliseconds")
}

/// Rounds up to whole milliseconds.
fn ceil_to_millis(time: Timestamp) -> Timestamp {
    let floor = floor_millis(time);
    let up = i64::from(time.as_nanosecond().rem_euclid(1_000_000) != 0);
    Timestamp::from_millisecond(floor + up).unwrap_or(time)
}

// JSON form of [`Schedule`] for serialization, and its JSON Schema.
/// Times at which a job runs.
#[derive(Serialize)]
#[cfg_attr(feature = "schemars", derive(JsonSchema), schemars(rename = "Schedule"))]
#[serde(untagged)]
pub(crate) enum SerializedSchedule {
    /// One-off.
    At {
        /// Time of the only occurrence: RFC 3339 in UTC with milliseconds.
        #[serde(rename = "executeAt", serialize_with = "write_time")]
        #[cfg_attr(feature = "schemars", schemars(with = "String"))]
        execute_at: Timestamp,
    },
    /// Fixed rate.
    Every {
        /// Interval in milliseconds.
        #[serde(rename = "everyMs")]
        every_ms: u64,
        /// Start of the first interval: RFC 3339 in UTC with milliseconds.
        #[serde(serialize_with = "write_time")]
        #[cfg_attr(feature = "schemars", schemars(with = "String"))]
        anchor: Timestamp,
    },
    /// Cron expression in a time zone.
    Cron {
        /// The expression, as it was given.
        cron: String,
        /// IANA name of the time zone.
        timezone: String,
        /// Policy for the changes to and from daylight saving time; absent if it is the default.
        #[serde(skip_serializing_if = "DstPolicy::is_default")]
        #[cfg_attr(feature = "schemars", schemars(default))]
        dst: DstPolicy,
    },
}

/// JSON form of [`Schedule`] for deserialization: the fields of all variants, since an untagged enum would buffer the
/// input.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeserializedSchedule {
    execute_at: Option<Timestamp>,
    every_ms: Option<u64>,
    anchor: Option<Timestamp>,
    cron: Option<String>,
    timezone: Option<String>,
    #[serde(default)]
    dst: DstPolicy,
}

/// Serializes a time as RFC 3339 in UTC with milliseconds, the format of all times on the wire.
pub fn write_time<S: serde::Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{time:.3}"))
}

impl From<Schedule> for SerializedSchedule {
    fn from(schedule: Schedule) -> Self {
        match schedule {
            Schedule::At(execute_at) => Self::At { execute_at },
            Schedule::Every { every, anchor } => {
                Self::Every { every_ms: u64::try_from(every.as_millis()).unwrap_or(u64::MAX), anchor }
            }
            Schedule::Cron(cron) => Self::Cron {
                cron: cron.expression().to_owned(),
                timezone: cron.zone().to_owned(),
                dst: cron.dst(),
            },
        }
    }
}

impl TryFrom<DeserializedSchedule> for Schedule {
    type Error = ScheduleError;

    fn try_from(fields: DeserializedSchedule) -> Result<Self, ScheduleError> {
        Ok(match fields {
            DeserializedSchedule { execute_at: Some(execute_at), .. } => Self::At(execute_at),
            DeserializedSchedule { every_ms: Some(every_ms), anchor: Some(anchor), .. } => {
                Self::Every { every: Duration::from_millis(every_ms), anchor }
            }
            DeserializedSchedule { cron: Some(cron), timezone: Some(timezone), dst, .. } => {
                Self::Cron(CronSchedule::new(&cron, &timezone, dst)?)
            }
            _ => return Err(ScheduleError::NoKind),
        })
    }
}
