//! Schedule specification of a request.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
#[cfg(feature = "schemars")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cron::{CronSchedule, DstPolicy, find_time_zone};
use super::error::ScheduleError;
use super::{Schedule, ceil_to_millis};

/// Maximum distance of a time from now, and maximum interval: ten years. Larger values are usually mistaken units.
pub(crate) const MAX_SCHEDULE_AHEAD: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// Minimum interval: one second, as for cron. Each occurrence is stored, claimed and called back; shorter intervals
/// belong in a timer of the calling program.
pub(crate) const MIN_INTERVAL: Duration = Duration::from_secs(1);

const DEFAULT_ZONE: &str = "UTC";

/// Schedule of a request: exactly one of `executeAt`, `delayMs`, `cron` and `everyMs`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ScheduleSpec {
    /// Runs once at an RFC 3339 time; without an offset, it is local to `timezone`. A time in the past is due at
    /// once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execute_at: Option<String>,
    /// Runs once after this many milliseconds, at most ten years.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// Runs repeatedly by a cron expression of five fields (minute, hour, day of month, month, day of week), of six
    /// with the second first, or a nickname such as `@daily`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// Runs repeatedly at this interval in milliseconds, first one interval from now: from a second to ten years.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_ms: Option<u64>,
    /// IANA name of the time zone for `cron` and for an `executeAt` without an offset; UTC by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    /// Daylight-saving policy for `cron`; ignored otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst: Option<DstPolicy>,
}

impl ScheduleSpec {
    /// Validates the specification and returns the schedule, relative to `now`.
    ///
    /// # Errors
    ///
    /// [`ScheduleError`] unless exactly one of the four is given, and if a value cannot be parsed, is out of bounds
    /// or never fires. An unknown zone is an error even if the schedule does not use it.
    pub fn resolve(&self, now: Timestamp) -> Result<Schedule, ScheduleError> {
        self.check_exactly_one_kind()?;
        let zone_name = self.timezone.as_deref();
        let named_zone = zone_name.map(find_time_zone).transpose()?;
        if let Some(text) = &self.execute_at {
            let time = ceil_to_millis(read_time(text, named_zone)?);
            return check_in_range(time, now).map(Schedule::At);
        }
        if let Some(delay) = self.delay_ms {
            let delay = check_millis("delayMs", delay, Duration::ZERO)?;
            return Ok(Schedule::after(now, delay));
        }
        if let Some(every) = self.every_ms {
            let every = check_millis("everyMs", every, MIN_INTERVAL)?;
            return Ok(Schedule::Every { every, anchor: ceil_to_millis(now) });
        }
        let expression = self.cron.as_deref().ok_or(ScheduleError::NoKind)?;
        let cron =
            CronSchedule::new(expression, zone_name.unwrap_or(DEFAULT_ZONE), self.dst.unwrap_or_default())?;
        match cron.next_after(now) {
            Some(_) => Ok(Schedule::Cron(cron)),
            None => Err(ScheduleError::NeverFires { expression: cron.expression().to_owned() }),
        }
    }

    fn check_exactly_one_kind(&self) -> Result<(), ScheduleError> {
        let kinds = [
            ("executeAt", self.execute_at.is_some()),
            ("delayMs", self.delay_ms.is_some()),
            ("cron", self.cron.is_some()),
            ("everyMs", self.every_ms.is_some()),
        ];
        let mut names = kinds.into_iter().filter(|(_, is_given)| *is_given).map(|(name, _)| name);
        match (names.next(), names.next()) {
            (Some(_), None) => Ok(()),
            (Some(first), Some(second)) => Err(ScheduleError::ConflictingKinds { first, second }),
            (None, _) => Err(ScheduleError::NoKind),
        }
    }
}

fn check_millis(field: &'static str, millis: u64, min: Duration) -> Result<Duration, ScheduleError> {
    let duration = Duration::from_millis(millis);
    if (min..=MAX_SCHEDULE_AHEAD).contains(&duration) {
        return Ok(duration);
    }
    let bounds = format!("from {} to {} milliseconds", min.as_millis(), MAX_SCHEDULE_AHEAD.as_millis());
    Err(ScheduleError::OutOfRange { field, bounds })
}

fn check_in_range(time: Timestamp, now: Timestamp) -> Result<Timestamp, ScheduleError> {
    let latest = now.saturating_add(MAX_SCHEDULE_AHEAD).unwrap_or(Timestamp::MAX);
    if (Timestamp::UNIX_EPOCH..=latest).contains(&time) {
        return Ok(time);
    }
    let bounds = "a time from 1970 to ten years from now".to_owned();
    Err(ScheduleError::OutOfRange { field: "executeAt", bounds })
}

/// Parses an RFC 3339 time, or a local time in the zone. A local time in a gap is interpreted with the offset before
/// the gap, one in a fold is the first of the two, as in RFC 5545.
fn read_time(text: &str, zone: Option<TimeZone>) -> Result<Timestamp, ScheduleError> {
    let text = text.trim();
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    let reason = match (text.parse::<DateTime>(), zone) {
        // Of RFC 9557, which the parser ignores.
        (Ok(_), _) if text.contains('[') => {
            "has a zone in brackets, and no UTC offset; name the zone in timezone"
        }
        (Ok(local), Some(zone)) => match local.to_zoned(zone) {
            Ok(time) => return Ok(time.timestamp()),
            Err(_) => "is outside the supported range of years",
        },
        (Ok(_), None) => "has neither a UTC offset nor a timezone",
        (Err(_), _) => "is not an RFC 3339 time such as \"2026-11-21T14:30:00Z\"",
    };
    Err(ScheduleError::Time { reason })
}
