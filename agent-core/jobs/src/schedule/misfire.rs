//! Policies for occurrences that could not run when they were due: misfire and overlap.

use std::time::Duration;

use jiff::Timestamp;
#[cfg(feature = "schemars")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Schedule;

/// Grace period of [`MisfirePolicy::Skip`]: an occurrence that is less late than this does not count as missed. A
/// minute, the resolution of cron, so that a restart or a short overload skips nothing.
pub(crate) const MISFIRE_GRACE: Duration = Duration::from_secs(60);

/// Catch-up window of [`MisfirePolicy::RunAll`]: 31 days, so that a monthly job loses nothing, and a job that runs
/// every second does not catch up on a year. Of older occurrences, only the earliest runs.
pub(crate) const CATCH_UP_WINDOW: Duration = Duration::from_secs(31 * 24 * 60 * 60);

/// Policy of a periodic job for missed occurrences: those that passed while the scheduler was down, the job was
/// paused or all workers were busy. A one-off job always runs, however late.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum MisfirePolicy {
    /// Runs once for all missed occurrences, with the scheduled time of the first.
    #[default]
    RunOnce,
    /// Skips missed occurrences, except the latest if it is less than 60 seconds late.
    Skip,
    /// Runs each missed occurrence, one after another, within the last 31 days.
    RunAll,
}

/// Policy of a periodic job for occurrences that become due while another one is running or being retried. A job
/// never runs concurrently with itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum OverlapPolicy {
    /// Skips them and continues with the next future occurrence. The default, since queueing does not help a job that
    /// is already slow.
    #[default]
    Skip,
    /// Queues them; when the run has ended, the [`MisfirePolicy`] policy decides how many of them run, by default one
    /// for all.
    Queue,
}

/// Result of [`catch_up`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CatchUp {
    /// Occurrence to run now; `None` if it is too early or if the missed occurrences are skipped.
    pub run: Option<Timestamp>,
    /// Occurrence after it. It may have passed as well and is then subject to the policy in its turn. `None` at the
    /// end of the schedule.
    pub next: Option<Timestamp>,
}

/// Applies the misfire policy at `now` to a schedule whose next occurrence is `due`.
///
/// Runs in constant time and memory, however many occurrences were missed: with [`MisfirePolicy::RunAll`], each call
/// returns one. `next` is later than `due` unless `due` is still in the future, even if the clock was set back.
pub(crate) fn catch_up(
    schedule: &Schedule,
    due: Timestamp,
    now: Timestamp,
    misfire: MisfirePolicy,
) -> CatchUp {
    if due > now {
        return CatchUp { run: None, next: Some(due) };
    }
    if !schedule.is_periodic() {
        return CatchUp { run: Some(due), next: None };
    }
    match misfire {
        MisfirePolicy::RunOnce => CatchUp { run: Some(due), next: schedule.next_after(now) },
        MisfirePolicy::RunAll => {
            let oldest = saturating_earlier(now, CATCH_UP_WINDOW);
            CatchUp { run: Some(due), next: schedule.next_after(due.max(oldest)) }
        }
        MisfirePolicy::Skip => {
            let oldest = saturating_earlier(now, MISFIRE_GRACE);
            let occurrence = if due > oldest { Some(due) } else { schedule.next_after(oldest) };
            match occurrence.filter(|occurrence| *occurrence <= now) {
                Some(occurrence) => CatchUp { run: Some(occurrence), next: schedule.next_after(now) },
                None => CatchUp { run: None, next: occurrence },
            }
        }
    }
}

impl OverlapPolicy {
    /// Returns the occurrence to wait for after a run from `started` to `ended`, where `next` is the one after it by
    /// [`catch_up`].
    ///
    /// Occurrences that had passed before the run began were missed and did not overlap; they are left to the misfire
    /// policy.
    pub(crate) fn next_after_run(
        self,
        schedule: &Schedule,
        next: Option<Timestamp>,
        started: Timestamp,
        ended: Timestamp,
    ) -> Option<Timestamp> {
        let next = next?;
        match self {
            Self::Skip if next > started && next <= ended => schedule.next_after(ended),
            Self::Skip | Self::Queue => Some(next),
        }
    }
}

fn saturating_earlier(time: Timestamp, duration: Duration) -> Timestamp {
    time.saturating_sub(duration).unwrap_or(Timestamp::MIN)
}
