//! What becomes of occurrences that could not run when they were due.

use std::time::Duration;

use jiff::Timestamp;
#[cfg(feature = "schemars")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Schedule;

/// How late an occurrence may be and not count as missed under [`Misfire::Skip`]: a minute, cron's own step. A restart
/// or a busy moment is no reason to leave one out.
pub const GRACE: Duration = Duration::from_secs(60);

/// How far back [`Misfire::RunAll`] goes: 31 days, so that a monthly job loses nothing, and one that runs every second
/// does not try to make up for a year. Of what is older, the earliest alone runs.
pub const RUN_ALL_WINDOW: Duration = Duration::from_secs(31 * 24 * 60 * 60);

/// What a periodic job does about occurrences that passed while nobody could run them: the scheduler was down, the
/// job was paused, or workers were busy. A job that runs once has nothing to catch up with: it runs, however late.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Misfire {
    /// One run for all of them, under the time of the first that was missed.
    #[default]
    RunOnce,
    /// None of them runs, except the latest where it is less than [`GRACE`] late.
    Skip,
    /// Each of them runs, one after another, as far back as [`RUN_ALL_WINDOW`].
    RunAll,
}

/// What a periodic job does about occurrences that come while another one is still running or being retried. A job
/// never runs twice at the same time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Overlap {
    /// They are left out; the job goes on with the next one that is still to come. The default, as elsewhere: who is
    /// slow already is not helped by a queue.
    #[default]
    Skip,
    /// They wait, and the [`Misfire`] rule decides how many of them run once the other one has ended: one for all,
    /// by default.
    Queue,
}

/// What [`catch_up`] decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CatchUp {
    /// The occurrence to run now; none where it is too early, or where what was missed is to be skipped.
    pub run: Option<Timestamp>,
    /// The one after it. It may have passed already, and is then decided upon in its turn. None where the schedule
    /// has come to its end.
    pub next: Option<Timestamp>,
}

/// Decides at `now` about a schedule whose next occurrence was to be at `due`.
///
/// Constant time and memory, however much was missed: with [`Misfire::RunAll`] each call gives one occurrence. `next`
/// is later than `due` unless `due` is itself still to come, also where the clock was set back.
pub fn catch_up(schedule: &Schedule, due: Timestamp, now: Timestamp, misfire: Misfire) -> CatchUp {
    if due > now {
        return CatchUp { run: None, next: Some(due) };
    }
    if !schedule.is_periodic() {
        return CatchUp { run: Some(due), next: None };
    }
    match misfire {
        Misfire::RunOnce => CatchUp { run: Some(due), next: schedule.next_after(now) },
        Misfire::RunAll => {
            let oldest = before(now, RUN_ALL_WINDOW);
            CatchUp { run: Some(due), next: schedule.next_after(due.max(oldest)) }
        }
        Misfire::Skip => {
            let oldest = before(now, GRACE);
            let kept = if due > oldest { Some(due) } else { schedule.next_after(oldest) };
            match kept.filter(|kept| *kept <= now) {
                Some(kept) => CatchUp { run: Some(kept), next: schedule.next_after(now) },
                None => CatchUp { run: None, next: kept },
            }
        }
    }
}

impl Overlap {
    /// The occurrence to wait for once a run is over that began at `started` and ended at `ended`, where `next` was
    /// the one after it by [`catch_up`].
    ///
    /// What had passed before the run began was missed, not overlapped, and stays for the misfire rule.
    pub fn next(
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

fn before(time: Timestamp, duration: Duration) -> Timestamp {
    time.saturating_sub(duration).unwrap_or(Timestamp::MIN)
}
