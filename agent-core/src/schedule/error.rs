//! What is wrong with a schedule that was asked for.

use std::fmt;

/// Why a schedule cannot be had. Its text may be shown to who asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// None of the four ways to say a time is there.
    #[error("one of executeAt, delayMs, cron and everyMs must be given")]
    Missing,
    /// More than one of the four is there.
    #[error("{first} and {second} are both given; give one of executeAt, delayMs, cron and everyMs")]
    Several {
        /// The one that stays.
        first: &'static str,
        /// The one that is too many.
        second: &'static str,
    },
    /// A number or time that is too small or too large.
    #[error("{field} must be {bounds}")]
    OutOfRange {
        /// The field's name in JSON.
        field: &'static str,
        /// What it may be, such as `from 1000 to 315360000000`.
        bounds: String,
    },
    /// `executeAt` is not a time, or not one without a zone.
    #[error("executeAt {reason}")]
    Time {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// There is no such zone in the IANA time zone database.
    #[error("timezone {zone:?} is not a name in the IANA time zone database")]
    UnknownZone {
        /// The name, shortened where it is long.
        zone: String,
    },
    /// A cron expression that has not five or six fields, or a nickname that is none.
    #[error("cron {reason}")]
    CronShape {
        /// What is wrong with it.
        reason: String,
    },
    /// A field of a cron expression cannot be read.
    #[error("cron: {field} (field {position}): {item:?} {reason}")]
    CronField {
        /// Which field.
        field: CronField,
        /// Its place in the expression, from 1.
        position: usize,
        /// The part of its list that is wrong.
        item: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A cron expression that can be read and names no moment, such as `0 0 30 2 *`.
    #[error("cron {expression:?} names no time in the next fifty years")]
    NeverFires {
        /// The expression.
        expression: String,
    },
}

impl ScheduleError {
    /// The name in JSON of the field that is wrong; of the first of them where none is given.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Missing | Self::Time { .. } => "executeAt",
            Self::Several { second, .. } => second,
            Self::OutOfRange { field, .. } => field,
            Self::UnknownZone { .. } => "timezone",
            Self::CronShape { .. } | Self::CronField { .. } | Self::NeverFires { .. } => "cron",
        }
    }
}

/// A field of a cron expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CronField {
    /// 0 to 59; the first of six fields.
    Second,
    /// 0 to 59.
    Minute,
    /// 0 to 23.
    Hour,
    /// 1 to 31.
    DayOfMonth,
    /// 1 to 12, or `JAN` to `DEC`.
    Month,
    /// 0 to 7, both of which are Sunday, or `SUN` to `SAT`.
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

/// The beginning of what a caller sent, short enough for a message.
pub(super) fn excerpt(text: &str) -> String {
    const LONGEST: usize = 64;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
