//! State of a limit in its current window.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use super::{BudgetLimit, BudgetTimeZone, BudgetWindow};

/// Name of the platform's collection of meters. Nested collections: the company.
pub(in crate::usage) const METERS: &str = "budgetMeters";

/// Limit with its state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LimitStatus {
    /// The limit.
    pub limit: BudgetLimit,
    /// Amount used in the current window.
    pub used: i64,
    /// Amount reserved for work in progress.
    pub reserved: i64,
    /// End of the window, if it has one.
    pub resets_at: Option<Timestamp>,
}

/// Length of half a minute, in milliseconds.
const HALF_MINUTE_MS: i64 = 30_000;

/// Amounts of a limit in one window, as they are stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::usage) struct MeterState {
    /// Start of the window, in milliseconds since 1970-01-01; 0 for one without an end. Of a day or month it is the midnight of its
    /// first day in UTC, whatever the company's zone: it stands for the date.
    pub(super) start_ms: i64,
    /// Amount used in the window.
    pub(super) used: i64,
    /// Amount used in the half minute before, for limits per minute.
    #[serde(default)]
    pub(super) previous: i64,
    /// Amount reserved for work in progress.
    pub(in crate::usage) reserved: i64,
    /// Amount from which the latest warning of the window was logged.
    #[serde(default)]
    pub(super) warned: i64,
}

impl MeterState {
    /// Creates the state of a window that begins with a used amount.
    pub(super) fn beginning(limit: &BudgetLimit, zone: &BudgetTimeZone, now: Timestamp, used: i64) -> Self {
        Self { start_ms: start_ms(limit.window, zone, now), used, ..Self::default() }
    }

    /// Returns the state at a time. Reserved amounts stay reserved in the next window. A clock that was set back and a zone
    /// where it is an earlier day do not begin an earlier window again.
    pub(super) fn at(self, window: Option<BudgetWindow>, zone: &BudgetTimeZone, now: Timestamp) -> Self {
        let start_ms = start_ms(window, zone, now);
        if start_ms <= self.start_ms {
            return self;
        }
        let follows = window == Some(BudgetWindow::Minute) && start_ms - self.start_ms == HALF_MINUTE_MS;
        let previous = if follows { self.used } else { 0 };
        Self { start_ms, used: 0, previous, reserved: self.reserved, warned: 0 }
    }

    /// Returns the time since which calls count, in milliseconds since 1970-01-01: the start of the window. Where that is in
    /// the future, because a clock was set back, another process's is ahead or the zone was changed, every call counts.
    pub(super) fn started_ms(
        &self,
        window: Option<BudgetWindow>,
        zone: &BudgetTimeZone,
        now: Timestamp,
    ) -> i64 {
        let first_day = self.first_day(window).and_then(|day| zone.start_of(day));
        let start_ms = first_day.map_or(self.start_ms, Timestamp::as_millisecond);
        if start_ms > now.as_millisecond() { i64::MIN } else { start_ms }
    }

    /// Returns the first day of a window of days; `None` for other windows.
    fn first_day(&self, window: Option<BudgetWindow>) -> Option<Date> {
        match window? {
            BudgetWindow::Day | BudgetWindow::Month => {
                let midnight = Timestamp::from_millisecond(self.start_ms).ok()?;
                Some(TimeZone::UTC.to_datetime(midnight).date())
            }
            BudgetWindow::Minute | BudgetWindow::Run => None,
        }
    }

    /// Returns the amount that is used.
    pub(super) fn total_used(&self) -> i64 {
        self.used.saturating_add(self.previous)
    }

    /// Returns the amount that is neither used nor reserved.
    pub(super) fn remaining(&self, limit: &BudgetLimit) -> i64 {
        limit.amount.saturating_sub(self.total_used()).saturating_sub(self.reserved)
    }

    /// Returns true if the part of a limit is reached from which it warns, once in a window. `before` is the amount that was
    /// used or reserved before: a limit without a window warns whenever the part is reached again.
    pub(super) fn reaches_warning(&mut self, limit: &BudgetLimit, before: i64) -> bool {
        let Some(warning) = limit.warning_amount() else { return false };
        let has_warned = match limit.window {
            Some(_) => self.warned >= warning,
            None => before >= warning,
        };
        if has_warned || self.total_used().saturating_add(self.reserved) < warning {
            return false;
        }
        self.warned = warning;
        true
    }

    /// Returns the end of the window; `None` if it has none.
    pub(super) fn resets_at(&self, window: Option<BudgetWindow>, zone: &BudgetTimeZone) -> Option<Timestamp> {
        match window? {
            BudgetWindow::Minute => Timestamp::from_millisecond(self.start_ms + 2 * HALF_MINUTE_MS).ok(),
            _ => zone.end_of(window, self.first_day(window)?),
        }
    }
}

fn start_ms(window: Option<BudgetWindow>, zone: &BudgetTimeZone, now: Timestamp) -> i64 {
    match window {
        Some(BudgetWindow::Minute) => {
            now.as_millisecond().div_euclid(HALF_MINUTE_MS).saturating_mul(HALF_MINUTE_MS)
        }
        window => {
            let midnight = zone
                .first_day(window, now)
                .and_then(|day| TimeZone::UTC.to_timestamp(day.at(0, 0, 0, 0)).ok());
            midnight.map_or(0, Timestamp::as_millisecond)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::BudgetUnit;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    fn utc() -> BudgetTimeZone {
        BudgetTimeZone::default()
    }

    fn limit(window: BudgetWindow) -> BudgetLimit {
        BudgetLimit { unit: BudgetUnit::Tokens, amount: 10, window: Some(window), warn_at: None }
    }

    #[test]
    fn windows_begin_at_midnight_and_end_at_the_next() {
        let now = at("2026-12-31T23:59:59.5Z");
        for (window, end) in [
            (BudgetWindow::Minute, Some("2027-01-01T00:00:30Z")),
            (BudgetWindow::Day, Some("2027-01-01T00:00:00Z")),
            (BudgetWindow::Month, Some("2027-01-01T00:00:00Z")),
            (BudgetWindow::Run, None),
        ] {
            let meter = MeterState::beginning(&limit(window), &utc(), now, 4);
            assert_eq!(meter.resets_at(Some(window), &utc()), end.map(at), "{window:?}");
            let meter = MeterState { reserved: 3, ..meter };
            assert_eq!(meter.remaining(&limit(window)), 3);
            let next = meter.at(Some(window), &utc(), at("2027-01-01T00:00:00Z"));
            let remaining = if end.is_none() || window == BudgetWindow::Minute { 3 } else { 7 };
            assert_eq!((next.remaining(&limit(window)), next.reserved), (remaining, 3), "{window:?}");
        }
    }

    #[test]
    fn a_minute_slides_by_its_halves() {
        let (window, limit) = (Some(BudgetWindow::Minute), limit(BudgetWindow::Minute));
        let first = MeterState::beginning(&limit, &utc(), at("2026-01-01T00:00:29Z"), 8);
        assert_eq!(first.at(window, &utc(), at("2026-01-01T00:00:31Z")).remaining(&limit), 2);
        assert_eq!(first.at(window, &utc(), at("2026-01-01T00:01:00Z")).remaining(&limit), 10);
    }

    #[test]
    fn a_window_warns_once_however_the_part_was_reached() {
        let window = Some(BudgetWindow::Day);
        let limit = BudgetLimit { warn_at: Some(0.8), ..limit(BudgetWindow::Day) };
        // The ledger has as much from before, or a call has used more than was reserved.
        let mut meter = MeterState::beginning(&limit, &utc(), at("2026-03-01T12:00:00Z"), 9);
        assert!(meter.reaches_warning(&limit, 9));
        assert!(!meter.reaches_warning(&limit, 7), "a budget warns once per window");
        let mut next = meter.at(window, &utc(), at("2026-03-02T12:00:00Z"));
        next.used = 7;
        assert!(!next.reaches_warning(&limit, 6));
        next.reserved = 1;
        assert!(next.reaches_warning(&limit, 7));
        let raised = BudgetLimit { amount: 20, ..limit };
        next.used = 15;
        assert!(next.reaches_warning(&raised, 8), "the part of the new amount");
        let without_window = BudgetLimit { window: None, ..limit };
        let mut concurrent = MeterState { reserved: 8, ..MeterState::default() };
        for (before, expected) in [(7, true), (8, false), (7, true)] {
            assert_eq!(concurrent.reaches_warning(&without_window, before), expected, "{before}");
        }
    }

    #[test]
    fn a_clock_that_is_set_back_frees_no_budget() {
        let (window, limit) = (Some(BudgetWindow::Day), limit(BudgetWindow::Day));
        let meter = MeterState::beginning(&limit, &utc(), at("2026-03-02T00:00:01Z"), 8);
        assert_eq!(meter.at(window, &utc(), at("2026-03-01T23:59:59Z")), meter);
    }
}
