//! Cron by the wall clock of a zone, by the rules of Vixie cron where the clock jumps.
//!
//! A zone's time is cut into spans of one offset. Within a span wall time and absolute time go side by side, so an
//! occurrence is a wall time that matches, less the offset; what is special about a change of the offset happens where
//! a span begins. Going from span to span never goes back, whatever a zone has done.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};
use quick_cache::sync::Cache;
#[cfg(feature = "schemars")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::{ScheduleError, excerpt};
use super::pattern::Pattern;

/// How far a search goes. The rarest pattern, a certain weekday on 29 February, fires every 28 years, and once after
/// 40, because 2100 is no leap year.
const HORIZON: Duration = Duration::from_secs(50 * 366 * 24 * 60 * 60);

/// Greater jumps of a clock are corrections and no daylight saving: `man 8 cron`. The new time counts at once.
const LARGEST_SHIFT: SignedDuration = SignedDuration::from_hours(3);

const LONGEST_ZONE_NAME: usize = 64;

/// How many expressions are kept as they were read: under six megabytes, were all of them as long as one may be.
const KEPT: usize = 4096;

/// What expressions say. Jobs are read from their store several times for each delivery, and reading the expression
/// would be most of it. Zones are not kept here, because their rules may change while this runs.
static PATTERNS: LazyLock<Cache<Arc<str>, Arc<Pattern>>> = LazyLock::new(|| Cache::new(KEPT));

/// Names in the folder of zones that mean another zone on another machine, or none.
const ZONES_OF_A_MACHINE: [&str; 4] = ["localtime", "posixrules", "Factory", "Etc/Unknown"];

/// What a job at fixed times does where the wall clock jumps. A job with `*` in its seconds, minutes or hours, `*/5`
/// included, goes by the time that passes instead: nothing in the gap, and again in the time that repeats.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DstPolicy {
    /// About times that the clock leaves out.
    pub gap: Gap,
    /// About times that the clock shows twice.
    pub fold: Fold,
}

impl DstPolicy {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What happens to times that a clock leaves out when it is put forward.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Gap {
    /// The job runs right after the gap, once for all times in it.
    #[default]
    RunAfter,
    /// The job does not run.
    Skip,
}

/// What happens at times that a clock shows twice because it is put back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Fold {
    /// The job runs the first time.
    #[default]
    First,
    /// The job runs both times.
    Both,
}

/// A cron expression, read, with the zone whose wall clock it means.
#[derive(Clone, PartialEq, Eq)]
pub struct Cron {
    expression: Arc<str>,
    pattern: Arc<Pattern>,
    zone: TimeZone,
    dst: DstPolicy,
}

impl Cron {
    /// Reads a cron expression of five fields, of six with the second first, or a nickname, for the zone of an IANA
    /// name.
    ///
    /// # Errors
    ///
    /// Where the expression cannot be read or the zone is not known. That it ever fires is not looked at.
    pub fn new(expression: &str, zone_name: &str, dst: DstPolicy) -> Result<Self, ScheduleError> {
        let zone = zone(zone_name)?;
        let (expression, pattern) = read(expression.trim())?;
        Ok(Self { expression, pattern, zone, dst })
    }

    /// The expression as it was given.
    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// The zone's IANA name.
    pub fn zone(&self) -> &str {
        self.zone.iana_name().expect("zones come from the database by their names")
    }

    /// What happens where the clock jumps.
    pub fn dst(&self) -> DstPolicy {
        self.dst
    }

    /// As [`Schedule::next_after`](super::Schedule::next_after).
    pub(super) fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let whole =
            Timestamp::from_second(after.as_nanosecond().div_euclid(1_000_000_000).try_into().ok()?).ok()?;
        let mut from = whole.checked_add(SignedDuration::from_secs(1)).ok()?;
        let horizon = from.saturating_add(HORIZON).unwrap_or(Timestamp::MAX);
        let mut offset = self.zone.to_offset(from);
        let mut jump = self.jump_before(from, offset);
        loop {
            let change = self.zone.following(from).next().filter(|change| change.timestamp() < horizon);
            let until = change.as_ref().map_or(horizon, |change| change.timestamp());
            if let Some(found) = self.next_in_span(from, until, offset, jump) {
                return Some(found);
            }
            let change = change?;
            jump = Some(Jump { at: change.timestamp(), before: offset });
            (from, offset) = (change.timestamp(), change.offset());
        }
    }

    /// The change of the offset with which the span of `from` began; not looked for where nothing depends on it.
    fn jump_before(&self, from: Timestamp, offset: Offset) -> Option<Jump> {
        if self.pattern.is_wildcard() {
            return None;
        }
        let beyond = from.checked_add(SignedDuration::from_secs(1)).ok()?;
        let at = self.zone.preceding(beyond).next()?.timestamp();
        let before = self.zone.to_offset(at.checked_sub(SignedDuration::from_secs(1)).ok()?);
        (before != offset).then_some(Jump { at, before })
    }

    /// The first occurrence from `from` up to and without `until`, both of which lie in a span of `offset` that began
    /// with `jump`.
    fn next_in_span(
        &self,
        from: Timestamp,
        until: Timestamp,
        offset: Offset,
        jump: Option<Jump>,
    ) -> Option<Timestamp> {
        let mut first = offset.to_datetime(from);
        if let Some(jump) = jump.filter(|jump| self.minds(*jump, offset)) {
            let old_time = jump.before.to_datetime(jump.at);
            if jump.is_forward(offset) {
                let new_time = offset.to_datetime(jump.at);
                if from == jump.at && self.pattern.next(old_time, new_time).is_some() {
                    return Some(from);
                }
            } else {
                first = first.max(old_time);
            }
        }
        let found = self.pattern.next(first, offset.to_datetime(until))?;
        offset.to_timestamp(found).ok()
    }

    /// Whether the job departs from what the clock shows because of a jump.
    fn minds(&self, jump: Jump, offset: Offset) -> bool {
        let wanted = match jump.is_forward(offset) {
            true => self.dst.gap == Gap::RunAfter,
            false => self.dst.fold == Fold::First,
        };
        wanted && !self.pattern.is_wildcard() && offset.duration_since(jump.before).abs() <= LARGEST_SHIFT
    }
}

impl fmt::Debug for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cron({:?} in {}, {:?})", self.expression(), self.zone(), self.dst)
    }
}

/// A change of a zone's offset.
#[derive(Clone, Copy)]
struct Jump {
    at: Timestamp,
    before: Offset,
}

impl Jump {
    fn is_forward(self, offset: Offset) -> bool {
        offset > self.before
    }
}

/// An expression, and what it says.
fn read(expression: &str) -> Result<(Arc<str>, Arc<Pattern>), ScheduleError> {
    let pattern = PATTERNS.get(expression);
    let expression = Arc::from(expression);
    if let Some(pattern) = pattern {
        return Ok((expression, pattern));
    }
    let pattern = Arc::new(Pattern::parse(&expression)?);
    PATTERNS.insert(Arc::clone(&expression), Arc::clone(&pattern));
    Ok((expression, pattern))
}

/// The zone of an IANA name.
pub(super) fn zone(name: &str) -> Result<TimeZone, ScheduleError> {
    let known = Some(name)
        .filter(|name| name.len() <= LONGEST_ZONE_NAME)
        .and_then(|name| TimeZone::get(name).ok())
        .filter(|zone| zone.iana_name().is_some_and(|name| !ZONES_OF_A_MACHINE.contains(&name)));
    known.ok_or_else(|| ScheduleError::UnknownZone { zone: excerpt(name) })
}
