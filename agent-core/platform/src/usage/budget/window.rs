//! Windows of limits: minutes, and the days and months of the time zone of a company. Pure.
//!
//! A window is a calendar day or month, and a meter is of the date on which it begins regardless of the zone. So each day and
//! month has its amount once: an earlier window does not begin again when the clock is set back or the time zone changes.

use std::str::FromStr;

use agent_jobs::schedule::{ScheduleError, find_time_zone};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use serde::{Deserialize, Serialize};

/// Period for which a limit holds, after which its meter begins again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BudgetWindow {
    /// The last half to whole minute, by two halves.
    Minute,
    /// A day of the company's time zone.
    Day,
    /// A month of the company's time zone.
    Month,
    /// A run.
    Run,
}

impl BudgetWindow {
    /// Returns the name in keys and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Day => "day",
            Self::Month => "month",
            Self::Run => "run",
        }
    }
}

/// IANA time zone whose days and months are the windows of a company's budgets; UTC by default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BudgetTimeZone(TimeZone);

impl Default for BudgetTimeZone {
    fn default() -> Self {
        Self(TimeZone::UTC)
    }
}

impl FromStr for BudgetTimeZone {
    type Err = UnknownTimeZoneError;

    fn from_str(name: &str) -> Result<Self, UnknownTimeZoneError> {
        Ok(Self(find_time_zone(name)?))
    }
}

impl TryFrom<String> for BudgetTimeZone {
    type Error = UnknownTimeZoneError;

    fn try_from(name: String) -> Result<Self, UnknownTimeZoneError> {
        name.parse()
    }
}

impl From<BudgetTimeZone> for String {
    fn from(zone: BudgetTimeZone) -> Self {
        zone.name().to_owned()
    }
}

/// Error of a name that is not in the IANA time zone database.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("is not a name in the IANA time zone database")]
pub struct UnknownTimeZoneError {
    #[source]
    source: ScheduleError,
}

impl From<ScheduleError> for UnknownTimeZoneError {
    fn from(source: ScheduleError) -> Self {
        Self { source }
    }
}

impl BudgetTimeZone {
    /// Returns the IANA name.
    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    /// Returns the first day of a window of days at a time; `None` for other windows.
    pub(super) fn first_day(&self, window: Option<BudgetWindow>, now: Timestamp) -> Option<Date> {
        let today = self.0.to_datetime(now).date();
        match window? {
            BudgetWindow::Day => Some(today),
            BudgetWindow::Month => Some(today.first_of_month()),
            BudgetWindow::Minute | BudgetWindow::Run => None,
        }
    }

    /// Returns the beginning of a day; if the clock skips midnight, the first time after the gap.
    pub(super) fn start_of(&self, day: Date) -> Option<Timestamp> {
        self.0.to_timestamp(day.at(0, 0, 0, 0)).ok()
    }

    /// Returns the end of a window of days that begins on a day; `None` for other windows.
    pub(super) fn end_of(&self, window: Option<BudgetWindow>, first_day: Date) -> Option<Timestamp> {
        match window? {
            BudgetWindow::Day => self.start_of(first_day.saturating_add(1.day())),
            BudgetWindow::Month => self.start_of(first_day.first_of_month().saturating_add(1.month())),
            BudgetWindow::Minute | BudgetWindow::Run => None,
        }
    }

    /// Returns the first and the last day of UTC that a window of days has touched; `None` for other windows.
    pub(super) fn utc_days(&self, window: Option<BudgetWindow>, now: Timestamp) -> Option<(Date, Date)> {
        let start = self.start_of(self.first_day(window, now)?)?;
        let utc_day = |time: Timestamp| TimeZone::UTC.to_datetime(time).date();
        Some((utc_day(start), utc_day(now)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::BudgetLimit;
    use super::super::meter::MeterState;
    use super::*;
    use crate::usage::BudgetUnit;

    const DAY: Option<BudgetWindow> = Some(BudgetWindow::Day);
    const MONTH: Option<BudgetWindow> = Some(BudgetWindow::Month);

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    fn named(name: &str) -> BudgetTimeZone {
        name.parse().expect("a zone")
    }

    /// A meter that begins at a time with 8 used.
    fn meter(window: Option<BudgetWindow>, zone: &BudgetTimeZone, now: &str) -> MeterState {
        let limit = BudgetLimit { unit: BudgetUnit::Tokens, amount: 10, window, warn_at: None };
        MeterState::beginning(&limit, zone, at(now), 8)
    }

    /// Asserts that a window ends at a time: not a millisecond before it, and the next one begins with nothing used.
    #[track_caller]
    fn assert_ends(window: Option<BudgetWindow>, zone: &str, now: &str, end: &str) {
        let zone = named(zone);
        let meter = meter(window, &zone, now);
        assert_eq!(meter.resets_at(window, &zone), Some(at(end)), "{zone:?} at {now}");
        let before = at(end).checked_sub(jiff::SignedDuration::from_millis(1)).expect("a time");
        assert_eq!(meter.at(window, &zone, before), meter, "{zone:?} at {now}");
        let next = meter.at(window, &zone, at(end));
        assert_eq!(
            (next.total_used(), next.started_ms(window, &zone, at(end))),
            (0, at(end).as_millisecond())
        );
    }

    #[test]
    fn days_have_23_and_25_hours_where_the_clocks_change() {
        for (zone, now, end) in [
            // 23 hours, and the day after it.
            ("Europe/Berlin", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"),
            ("Europe/Berlin", "2026-03-29T22:00:00Z", "2026-03-30T22:00:00Z"),
            // 25 hours, in both passes of the hour that comes twice.
            ("Europe/Berlin", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"),
            ("Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-25T23:00:00Z"),
            ("Europe/Berlin", "2026-10-25T01:30:00Z", "2026-10-25T23:00:00Z"),
            // Midnight is skipped: the day begins at one.
            ("America/Sao_Paulo", "2018-11-03T12:00:00Z", "2018-11-04T03:00:00Z"),
            ("America/Sao_Paulo", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"),
            // Midnight comes twice: the day begins at the first.
            ("America/Havana", "2026-10-31T12:00:00Z", "2026-11-01T04:00:00Z"),
            ("America/Havana", "2026-11-01T05:30:00Z", "2026-11-02T05:00:00Z"),
            // A day that the zone has skipped.
            ("Pacific/Apia", "2011-12-30T09:00:00Z", "2011-12-30T10:00:00Z"),
        ] {
            assert_ends(DAY, zone, now, end);
        }
    }

    #[test]
    fn windows_of_zones_with_parts_of_hours_begin_at_their_midnight() {
        assert_ends(DAY, "Asia/Kolkata", "2026-05-01T18:29:59Z", "2026-05-01T18:30:00Z");
        assert_ends(DAY, "Asia/Kathmandu", "2026-05-01T18:15:00Z", "2026-05-02T18:15:00Z");
        assert_ends(MONTH, "Asia/Kolkata", "2026-05-31T18:29:59Z", "2026-05-31T18:30:00Z");
        // The clocks of Lord Howe go by half an hour.
        assert_ends(DAY, "Australia/Lord_Howe", "2026-04-04T13:00:00Z", "2026-04-05T13:30:00Z");
    }

    #[test]
    fn months_end_with_their_last_day() {
        for (zone, now, end) in [
            ("Europe/Berlin", "2026-01-31T22:59:59.999Z", "2026-01-31T23:00:00Z"),
            ("Europe/Berlin", "2026-01-31T23:00:00Z", "2026-02-28T23:00:00Z"),
            ("Europe/Berlin", "2028-02-10T00:00:00Z", "2028-02-29T23:00:00Z"),
            // March begins in winter and ends in summer.
            ("Europe/Berlin", "2026-03-15T00:00:00Z", "2026-03-31T22:00:00Z"),
            ("America/Los_Angeles", "2027-01-01T07:59:59Z", "2027-01-01T08:00:00Z"),
            ("Pacific/Kiritimati", "2026-12-31T10:00:00Z", "2027-01-31T10:00:00Z"),
        ] {
            assert_ends(MONTH, zone, now, end);
        }
    }

    #[test]
    fn a_changed_zone_ends_a_window_at_once_if_the_next_has_begun_there() {
        // In Tokyo it is five in the morning of 1 February.
        let (utc, tokyo, now) = (BudgetTimeZone::default(), named("Asia/Tokyo"), "2026-01-31T20:00:00Z");
        for (window, end) in [(DAY, "2026-02-01T15:00:00Z"), (MONTH, "2026-02-28T15:00:00Z")] {
            let in_utc = MeterState { reserved: 1, ..meter(window, &utc, now) };
            let in_tokyo = in_utc.at(window, &tokyo, at(now));
            assert_eq!((in_tokyo.total_used(), in_tokyo.reserved), (0, 1));
            assert_eq!(in_tokyo.resets_at(window, &tokyo), Some(at(end)));
        }
    }

    #[test]
    fn a_changed_zone_begins_no_window_again() {
        // It is still January in UTC, while the meter has started with February.
        let (utc, tokyo, now) = (BudgetTimeZone::default(), named("Asia/Tokyo"), "2026-01-31T20:00:00Z");
        for (window, end) in [(DAY, "2026-02-02T00:00:00Z"), (MONTH, "2026-03-01T00:00:00Z")] {
            let in_tokyo = meter(window, &tokyo, now);
            for time in [now, "2026-02-01T00:00:00Z"] {
                assert_eq!(in_tokyo.at(window, &utc, at(time)), in_tokyo, "{time}");
            }
            assert_eq!(in_tokyo.resets_at(window, &utc), Some(at(end)));
            assert_eq!(
                in_tokyo.started_ms(window, &utc, at(now)),
                i64::MIN,
                "usage that is settled now counts in the window"
            );
            assert_eq!(in_tokyo.at(window, &utc, at(end)).total_used(), 0);
        }
        // To and fro in one day gives nothing.
        let berlin = named("Europe/Berlin");
        let noon = at("2026-05-01T12:00:00Z");
        let before = meter(DAY, &utc, "2026-05-01T12:00:00Z");
        assert_eq!(before.at(DAY, &berlin, noon).at(DAY, &utc, noon), before);
    }

    #[test]
    fn a_clock_that_steps_over_midnight_gives_one_window() {
        let berlin = named("Europe/Berlin");
        let before = meter(DAY, &berlin, "2026-05-01T21:59:59Z");
        let after = before.at(DAY, &berlin, at("2026-05-01T22:00:00Z"));
        assert_eq!(after.total_used(), 0);
        let after = MeterState { used: 5, ..after };
        let back = after.at(DAY, &berlin, at("2026-05-01T21:59:58Z"));
        assert_eq!(back.at(DAY, &berlin, at("2026-05-01T22:00:01Z")).total_used(), 5);
    }

    #[test]
    fn the_days_of_the_ledger_cover_the_window() {
        let days = |zone: &str, window, now: &str| {
            let (from, to) = named(zone).utc_days(window, at(now)).expect("days");
            (from.to_string(), to.to_string())
        };
        let pair = |from: &str, to: &str| (from.to_owned(), to.to_owned());
        assert_eq!(days("UTC", DAY, "2026-05-01T12:00:00Z"), pair("2026-05-01", "2026-05-01"));
        assert_eq!(days("Europe/Berlin", DAY, "2026-05-01T12:00:00Z"), pair("2026-04-30", "2026-05-01"));
        assert_eq!(days("Europe/Berlin", DAY, "2026-04-30T22:30:00Z"), pair("2026-04-30", "2026-04-30"));
        assert_eq!(
            days("America/Los_Angeles", MONTH, "2026-06-01T03:00:00Z"),
            pair("2026-05-01", "2026-06-01")
        );
        assert_eq!(named("UTC").utc_days(Some(BudgetWindow::Minute), at("2026-05-01T12:00:00Z")), None);
    }

    #[test]
    fn zones_have_names_of_the_database() {
        let zone: BudgetTimeZone = serde_json::from_str("\"europe/berlin\"").expect("a zone");
        assert_eq!(
            (zone.name(), serde_json::json!(zone)),
            ("Europe/Berlin", serde_json::json!("Europe/Berlin"))
        );
        assert_eq!(BudgetTimeZone::default().name(), "UTC");
        let long = "x".repeat(100_000);
        for name in [
            "",
            "Mars/Olympus",
            "localtime",
            "+02:00",
            "CET-1CEST,M3.5.0,M10.5.0/3",
            "../etc/passwd",
            long.as_str(),
        ] {
            let error = name.parse::<BudgetTimeZone>().expect_err("no zone");
            assert_eq!(error.to_string(), "is not a name in the IANA time zone database", "{name:.40}");
        }
    }
}
