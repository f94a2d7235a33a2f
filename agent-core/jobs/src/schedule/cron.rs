//! Cron schedules in a time zone, with the daylight-saving rules of Vixie cron.
//!
//! The time line of a zone is divided into spans of constant offset. Within a span, wall-clock and absolute time
//! advance together, so an occurrence is a matching wall-clock time minus the offset; gaps and folds are handled at
//! the beginning of a span. The search goes from span to span and therefore only forward, whatever transitions a zone
//! has.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use agent_core::clock;
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};
use quick_cache::sync::Cache;
#[cfg(feature = "schemars")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::{ScheduleError, excerpt};
use super::pattern::CronBits;

/// Search limit. The rarest pattern, a given weekday on 29 February, fires every 28 years and once after 40, because
/// 2100 is not a leap year.
const SEARCH_HORIZON: Duration = Duration::from_secs(50 * 366 * 24 * 60 * 60);

/// Largest offset change treated as daylight saving. Larger changes are clock corrections, and the new time applies
/// at once: `man 8 cron`.
const MAX_DST_SHIFT: SignedDuration = SignedDuration::from_hours(3);

/// Maximum number of parsed expressions in the cache: under six megabytes even if all have the maximum length.
const MAX_CACHED_PATTERNS: usize = 4096;

/// Cache of parsed expressions. Jobs are read from their store several times for each delivery, and parsing would
/// dominate the cost. Zones are not cached here, because their rules may change at run time.
static PATTERNS: LazyLock<Cache<Arc<str>, Arc<CronBits>>> = LazyLock::new(|| Cache::new(MAX_CACHED_PATTERNS));

/// Daylight-saving policy of a job at fixed times of day. A job with `*` in its seconds, minutes or hours, including
/// `*/5`, follows elapsed time instead: it does not run in a gap and runs again in a fold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DstPolicy {
    /// Policy for times that the clock skips.
    pub gap: GapPolicy,
    /// Policy for times that the clock repeats.
    pub fold: FoldPolicy,
}

impl DstPolicy {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Policy for wall-clock times skipped when the clock is set forward.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum GapPolicy {
    /// Runs once right after the gap, for all skipped times in it.
    #[default]
    RunAfter,
    /// The occurrence is skipped.
    Skip,
}

/// Policy for wall-clock times repeated when the clock is set back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum FoldPolicy {
    /// Runs the first time only.
    #[default]
    First,
    /// Runs both times.
    Both,
}

/// Parsed cron expression with the time zone of its wall clock.
#[derive(Clone, PartialEq, Eq)]
pub struct CronSchedule {
    expression: Arc<str>,
    pattern: Arc<CronBits>,
    zone: TimeZone,
    dst: DstPolicy,
}

impl CronSchedule {
    /// Parses a cron expression of five fields, of six with the second first, or a nickname, in the zone of the given
    /// IANA name.
    ///
    /// # Errors
    ///
    /// [`ScheduleError`] if the expression cannot be parsed or the zone is unknown. Expressions that never fire are
    /// accepted.
    pub fn new(expression: &str, zone_name: &str, dst: DstPolicy) -> Result<Self, ScheduleError> {
        let zone = find_time_zone(zone_name)?;
        let (expression, pattern) = parse_cached(expression.trim())?;
        Ok(Self { expression, pattern, zone, dst })
    }

    /// Returns the expression as given, without surrounding blanks.
    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// Returns the IANA name of the zone.
    pub fn zone(&self) -> &str {
        self.zone.iana_name().expect("zones come from the database by their names")
    }

    /// Returns the daylight-saving policy.
    pub fn dst(&self) -> DstPolicy {
        self.dst
    }

    /// Implements [`Schedule::next_after`](super::Schedule::next_after).
    pub(super) fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let full_second =
            Timestamp::from_second(after.as_nanosecond().div_euclid(1_000_000_000).try_into().ok()?).ok()?;
        let mut from = full_second.checked_add(SignedDuration::from_secs(1)).ok()?;
        let horizon = from.saturating_add(SEARCH_HORIZON).unwrap_or(Timestamp::MAX);
        let mut offset = self.zone.to_offset(from);
        let mut jump = self.offset_change_before(from, offset);
        loop {
            let change = self.zone.following(from).next().filter(|change| change.timestamp() < horizon);
            let until = change.as_ref().map_or(horizon, |change| change.timestamp());
            if let Some(occurrence) = self.next_in_span(from, until, offset, jump) {
                return Some(occurrence);
            }
            let change = change?;
            jump = Some(OffsetChange { at: change.timestamp(), before: offset });
            (from, offset) = (change.timestamp(), change.offset());
        }
    }

    /// Returns the offset change that began the span of `from`; `None` if the pattern does not depend on it.
    fn offset_change_before(&self, from: Timestamp, offset: Offset) -> Option<OffsetChange> {
        if self.pattern.follows_elapsed_time() {
            return None;
        }
        let following_second = from.checked_add(SignedDuration::from_secs(1)).ok()?;
        let at = self.zone.preceding(following_second).next()?.timestamp();
        let before = self.zone.to_offset(at.checked_sub(SignedDuration::from_secs(1)).ok()?);
        (before != offset).then_some(OffsetChange { at, before })
    }

    /// Returns the first occurrence in `from..until`, which lies in a span of `offset` that began with `jump`.
    fn next_in_span(
        &self,
        from: Timestamp,
        until: Timestamp,
        offset: Offset,
        jump: Option<OffsetChange>,
    ) -> Option<Timestamp> {
        let mut first = offset.to_datetime(from);
        if let Some(jump) = jump.filter(|jump| self.applies_dst_policy(*jump, offset)) {
            let old_time = jump.before.to_datetime(jump.at);
            if jump.is_forward(offset) {
                let new_time = offset.to_datetime(jump.at);
                if from == jump.at && self.pattern.next_match(old_time, new_time).is_some() {
                    return Some(from);
                }
            } else {
                first = first.max(old_time);
            }
        }
        let date_time = self.pattern.next_match(first, offset.to_datetime(until))?;
        offset.to_timestamp(date_time).ok()
    }

    /// Returns true if the daylight-saving policy deviates from the wall clock at this offset change.
    fn applies_dst_policy(&self, jump: OffsetChange, offset: Offset) -> bool {
        let is_special_policy = match jump.is_forward(offset) {
            true => self.dst.gap == GapPolicy::RunAfter,
            false => self.dst.fold == FoldPolicy::First,
        };
        is_special_policy
            && !self.pattern.follows_elapsed_time()
            && offset.duration_since(jump.before).abs() <= MAX_DST_SHIFT
    }
}

impl fmt::Debug for CronSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cron({:?} in {}, {:?})", self.expression(), self.zone(), self.dst)
    }
}

/// Change of a zone's UTC offset.
#[derive(Clone, Copy)]
struct OffsetChange {
    at: Timestamp,
    before: Offset,
}

impl OffsetChange {
    fn is_forward(self, offset: Offset) -> bool {
        offset > self.before
    }
}

/// Parses an expression, using the cache.
fn parse_cached(expression: &str) -> Result<(Arc<str>, Arc<CronBits>), ScheduleError> {
    let pattern = PATTERNS.get(expression);
    let expression = Arc::from(expression);
    if let Some(pattern) = pattern {
        return Ok((expression, pattern));
    }
    let pattern = Arc::new(CronBits::parse(&expression)?);
    PATTERNS.insert(Arc::clone(&expression), Arc::clone(&pattern));
    Ok((expression, pattern))
}

/// Looks up a zone by its IANA name, in any case, of at most 64 bytes.
///
/// # Errors
/// [`ScheduleError::UnknownZone`] if the database has no zone of this name, or one that differs between machines.
pub fn find_time_zone(name: &str) -> Result<TimeZone, ScheduleError> {
    clock::find_time_zone(name).ok_or_else(|| ScheduleError::UnknownZone { zone: excerpt(name) })
}
