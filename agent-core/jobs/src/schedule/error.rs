//! Validation errors of schedules.

use std::fmt;

/// Reason why a schedule is invalid. The text may be shown to the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// None of the four kinds of schedule is given.
    #[error("one of executeAt, delayMs, cron and everyMs must be given")]
    NoKind,
    /// More than one of the four is given.
    #[error("{first} and {second} are both given; give one of executeAt, delayMs, cron and everyMs")]
    ConflictingKinds {
        /// Name of the first field.
        first: &'static str,
        /// Name of the second field, which is too many.
        second: &'static str,
    },
    /// A number or time is too small or too large.
    #[error("{field} must be {bounds}")]
    OutOfRange {
        /// Name of the field in JSON.
        field: &'static str,
        /// Permitted range, such as `from 1000 to 315360000000`.
        bounds: String,
    },
    /// `executeAt` cannot be parsed, or has neither an offset nor a zone.
    #[error("executeAt {reason}")]
    Time {
        /// Description of the fault.
        reason: &'static str,
    },
    /// The time zone is not in the IANA time zone database.
    #[error("timezone {zone:?} is not a name in the IANA time zone database")]
    UnknownZone {
        /// Name of the zone, truncated if long.
        zone: String,
    },
    /// The cron expression does not have five or six fields, or the nickname is unknown.
    #[error("cron {reason}")]
    CronShape {
        /// Description of the fault.
        reason: String,
    },
    /// A field of the cron expression cannot be parsed.
    #[error("cron: {field} (field {position}): {item:?} {reason}")]
    CronField {
        /// Kind of the field.
        field: CronField,
        /// Position in the expression, from 1.
        position: usize,
        /// Invalid item of the field's list.
        item: String,
        /// Description of the fault.
        reason: String,
    },
    /// The cron expression is valid but never fires, such as `0 0 30 2 *`.
    #[error("cron {expression:?} has no occurrence in the next fifty years")]
    NeverFires {
        /// Cron expression.
        expression: String,
    },
}

impl ScheduleError {
    /// Returns the name of the invalid field in JSON; `executeAt` if no field is given.
    pub fn field(&self) -> &'static str {
        match self {
            Self::NoKind | Self::Time { .. } => "executeAt",
            Self::ConflictingKinds { second, .. } => second,
            Self::OutOfRange { field, .. } => field,
            Self::UnknownZone { .. } => "timezone",
            Self::CronShape { .. } | Self::CronField { .. } | Self::NeverFires { .. } => "cron",
        }
    }
}

/// Field of a cron expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CronField {
    /// Seconds, 0 to 59; the first of six fields.
    Second,
    /// Minutes, 0 to 59.
    Minute,
    /// Hours, 0 to 23.
    Hour,
    /// Days of the month, 1 to 31.
    DayOfMonth,
    /// Months, 1 to 12 or `JAN` to `DEC`.
    Month,
    /// Weekdays, 0 to 7, where both 0 and 7 are Sunday, or `SUN` to `SAT`.
    DayOfWeek,
}

impl fmt::Display for CronField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::DayOfMonth => "day of month",
            Self::Month => "month",
            Self::DayOfWeek => "day of week",
        })
    }
}

/// Truncates text from the client for an error message.
pub(super) fn excerpt(text: &str) -> String {
    const MAX_EXCERPT_CHARS: usize = 64;
    match text.char_indices().nth(MAX_EXCERPT_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
