//! Runs whose approvals have expired, and decided runs that were not continued.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_platform::backoff::Backoff;
use agent_platform::conversation::{
    ChangeRunRequest, ConversationError, Conversations, Run, RunChange, RunKey, ThreadOwner,
};
use agent_platform::trace::begin_trace;
use jiff::Timestamp;

use super::super::App;
use super::continue_run::continue_run;

/// Longest pause between two attempts to continue a decided run.
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// Pauses between the attempts.
const CONTINUE_BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), MAX_PAUSE);
/// Maximum number of runs with pauses; further ones are tried in each sweep.
const MAX_PAUSED_RUNS: usize = 10_000;

/// Decided runs that could not be continued, for example because the company's budget is spent: a company may have any number
/// of them, and each attempt takes time from the runs of other owners.
#[derive(Default)]
struct PausedRuns(HashMap<RunKey, (Instant, Backoff)>);

impl PausedRuns {
    /// Returns true if the next attempt at a run is later.
    fn is_paused(&self, run: &RunKey, now: Instant) -> bool {
        self.0.get(run).is_some_and(|(next, _)| now < *next)
    }

    fn record_failure(&mut self, run: RunKey, now: Instant) {
        if self.0.len() < MAX_PAUSED_RUNS || self.0.contains_key(&run) {
            let (next, backoff) = self.0.entry(run).or_insert((now, CONTINUE_BACKOFF));
            *next = now + backoff.next_pause();
        }
    }

    /// Removes runs that were not tried again, since they do not wait any more.
    fn remove_ended(&mut self, now: Instant) {
        self.0.retain(|_, (next, _)| now < *next + MAX_PAUSE);
    }
}

/// Ends runs whose approvals have expired, so that their threads are free. Runs until the future is dropped.
pub(in super::super) async fn sweep_approvals(app: &Arc<App>) {
    let Some(store) = app.conversations.store().cloned() else { return };
    let mut paused = PausedRuns::default();
    loop {
        match sweep(app, &*store, &mut paused).await {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "ended runs with expired approvals"),
            Err(error) => {
                tracing::warn!(%error, "failed to read runs with expired approvals; trying again later");
            }
        }
        tokio::time::sleep(app.conversations.times.lease / 2).await;
    }
}

/// Ends the runs whose approvals have expired, and returns their number.
async fn sweep(
    app: &Arc<App>,
    store: &dyn Conversations,
    paused: &mut PausedRuns,
) -> Result<usize, ConversationError> {
    let (mut expired_count, mut cursor) = (0, None);
    let now = app.conversations.now();
    loop {
        let page = store.due_runs(now, cursor.as_deref()).await?;
        for (owner, run) in page.runs {
            let key = RunKey { owner: owner.clone(), id: run.id.clone() };
            if paused.is_paused(&key, Instant::now()) {
                continue;
            }
            // An error with one run does not stop the others.
            match expire(app, store, &owner, &run, now).await {
                Ok(SweptRun::NoLongerWaits) => expired_count += 1,
                Ok(SweptRun::NotContinued) => paused.record_failure(key, Instant::now()),
                Ok(SweptRun::Other) => {}
                Err(error) => {
                    tracing::warn!(run_id = %run.id, %error, "failed to end an expired run; trying again later");
                }
            }
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            paused.remove_ended(Instant::now());
            return Ok(expired_count);
        }
    }
}

/// Outcome of a sweep for a run.
enum SweptRun {
    /// Its wait for decisions has ended.
    NoLongerWaits,
    /// The run is decided, and could not be continued.
    NotContinued,
    /// The run is left as it is, or was continued because of its decisions.
    Other,
}

/// Ends a run if all its open approvals have expired; one with an approved call continues.
async fn expire(
    app: &Arc<App>,
    store: &dyn Conversations,
    owner: &ThreadOwner,
    run: &Run,
    now: Timestamp,
) -> Result<SweptRun, ConversationError> {
    let is_decided = !run.is_undecided();
    if is_decided && !is_abandoned(app, run, now) {
        return Ok(SweptRun::Other);
    }
    if is_decided || !run.has_expired(now) {
        // The run that makes the approved calls refuses the expired ones.
        return match continue_run(app, owner, run, begin_trace()).await {
            Ok(()) if is_decided => {
                tracing::info!(run_id = %run.id, "a decided run was continued");
                Ok(SweptRun::Other)
            }
            Ok(()) => {
                app.record_expiry(owner, run);
                Ok(SweptRun::NoLongerWaits)
            }
            Err(error) => {
                tracing::warn!(run_id = %run.id, error = %error.detail(), "a decided run was not continued; trying again later");
                Ok(SweptRun::NotContinued)
            }
        };
    }
    let key = RunKey { owner: owner.clone(), id: run.id.clone() };
    let ended = store.change_run(ChangeRunRequest { run: key, change: RunChange::Expire, now }).await?;
    // Another process may have ended it before.
    if ended.is_changed {
        app.record_expiry(owner, run);
    }
    Ok(if ended.is_changed { SweptRun::NoLongerWaits } else { SweptRun::Other })
}

/// Returns true if a run whose calls are all decided was not continued, because its process ended between the last decision and
/// the beginning of the next run.
fn is_abandoned(app: &App, run: &Run, now: Timestamp) -> bool {
    let decided = run.approvals.iter().filter_map(|approval| approval.decided_at).max();
    decided.is_some_and(|at| now.duration_since(at).unsigned_abs() >= app.conversations.times.lease)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_cannot_be_continued_is_tried_less_and_less_often() {
        let key = |id: &str| RunKey { owner: ThreadOwner::new("c", "u"), id: id.into() };
        let (mut paused, begin) = (PausedRuns::default(), Instant::now());
        let mut attempts = 0;
        // A sweep each five seconds, for an hour.
        for sweep in 0..720 {
            let now = begin + Duration::from_secs(5) * sweep;
            if !paused.is_paused(&key("r1"), now) {
                attempts += 1;
                paused.record_failure(key("r1"), now);
            }
            assert!(!paused.is_paused(&key("r2"), now), "another run");
            paused.remove_ended(now);
            assert_eq!(paused.0.len(), 1);
        }
        assert!((60..=240).contains(&attempts), "{attempts}");
        // It was continued by the thread's next message.
        let later = begin + Duration::from_secs(2 * 60 * 60);
        paused.remove_ended(later);
        assert!(paused.0.is_empty());
        for number in 0..MAX_PAUSED_RUNS + 5 {
            paused.record_failure(key(&number.to_string()), later);
        }
        assert_eq!(paused.0.len(), MAX_PAUSED_RUNS);
    }
}
