//! Storing of the end of a run, and its terminal event by the outcome.

use std::time::Duration;

use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::event::{Event, RunOutcome};
use agent_platform::conversation::{
    CancelReason, ChangeRun, ConversationError, Conversations, EndRun, EndedRun, RUN_INTERRUPTED, RunChange,
    RunEndKind, RunFailure, RunState,
};

use crate::app::services::ConversationService;
use crate::app::services::live::{LiveRun, RunStop};

/// Maximum time for which the end of a run is attempted to be stored. Until then the thread is busy.
const END_RETRY_TIME: Duration = Duration::from_secs(10 * 60);
/// Minimum pause between attempts to store the end of a run, which is the first one; it doubles up to [`MAX_END_RETRY_PAUSE`].
const MIN_END_RETRY_PAUSE: Duration = Duration::from_millis(100);
const MAX_END_RETRY_PAUSE: Duration = Duration::from_secs(5);

/// Stores the end of a run; repeats it while the store is unavailable.
pub(super) async fn store_end(store: &dyn Conversations, end: EndRun) -> Result<EndedRun, ConversationError> {
    let mut pause = MIN_END_RETRY_PAUSE;
    let started = tokio::time::Instant::now();
    let mut end = end;
    loop {
        let error = match store.end_run(end.clone()).await {
            Ok(ended) => return Ok(ended),
            Err(
                error @ (ConversationError::RunNotFound
                | ConversationError::RunEnded { .. }
                | ConversationError::ThreadNotFound),
            ) => return Err(error),
            Err(error) => error,
        };
        tracing::warn!(run_id = %end.run_id, %error, "failed to store the end of a run");
        if started.elapsed() >= END_RETRY_TIME {
            return Err(error);
        }
        if !matches!(error, ConversationError::Store(_)) {
            // The thread must become free, even if the answer cannot be stored.
            let code = AgentErrorKind::Internal.code().to_owned();
            let failure = RunFailure { code, message: "the answer could not be stored".to_owned() };
            (end.nodes, end.ending.kind) = (Vec::new(), RunEndKind::Failed(failure));
        }
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(MAX_END_RETRY_PAUSE);
    }
}

/// Returns true for the end of a run that the shutdown of this process has ended.
pub(super) fn is_shutdown(kind: &RunEndKind) -> bool {
    matches!(kind, RunEndKind::Failed(failure) if failure.code == AgentErrorKind::ShuttingDown.code())
}

/// Applies the stored end of a run to the cached thread. A run that was stopped after its last event, and waits for decisions
/// now, is cancelled, since the request to stop it was accepted. A client that leaves then cancels nothing.
pub(super) async fn apply_end(
    service: &ConversationService,
    store: &dyn Conversations,
    live_run: &LiveRun,
    ended: &EndedRun,
) {
    let EndedRun { thread, run, cancel, .. } = ended;
    let key = live_run.key().owner.thread(thread.id.clone());
    service.threads.apply_end(&key, ended);
    if run.state != RunState::Waiting {
        return;
    }
    service.signals_delivered().await;
    live_run.record_end();
    let reason = match live_run.stop_reason() {
        Some(RunStop::Cancelled(reason)) if reason != CancelReason::Disconnected => Some(reason),
        _ => *cancel,
    };
    if let Some(reason) = reason {
        let change = RunChange::CancelWaiting(reason);
        let change = ChangeRun { run: live_run.key().clone(), change, now: service.now() };
        if let Err(error) = store.change_run(change).await {
            tracing::warn!(run_id = %run.id, %error, "failed to cancel a run that waits for decisions");
        }
    }
}

/// Returns the terminal event for a client whose run's end was stored with this result.
pub(super) fn terminal_event(terminal: Event, stored: Result<(), ConversationError>) -> Event {
    match stored {
        Ok(()) => terminal,
        // The thread was deleted meanwhile, and the run with it.
        Err(ConversationError::RunNotFound | ConversationError::ThreadNotFound) => match terminal {
            Event::RunFinished { thread_id, run_id, usage, .. } => {
                let outcome = Some(RunOutcome::Cancelled);
                Event::RunFinished { thread_id, run_id, result: None, outcome, usage }
            }
            error => error,
        },
        Err(ConversationError::RunEnded { .. }) => Event::RunError {
            message: "the run was interrupted: its process had stopped for too long".to_owned(),
            code: RUN_INTERRUPTED.to_owned(),
            usage: usage_of(&terminal),
        },
        Err(_) => unavailable(&terminal),
    }
}

/// Returns the terminal event of a run whose end could not be stored.
pub(super) fn unavailable(terminal: &Event) -> Event {
    let error = AgentError::new(AgentErrorKind::StoreUnavailable, "the answer could not be stored");
    Event::RunError {
        message: error.message().to_owned(),
        code: error.kind().code().to_owned(),
        usage: usage_of(terminal),
    }
}

fn usage_of(terminal: &Event) -> Vec<agent_core::message::Usage> {
    match terminal {
        Event::RunFinished { usage, .. } | Event::RunError { usage, .. } => usage.clone(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use agent_core::store_error::StoreError;

    use super::*;

    #[test]
    fn the_terminal_event_tells_of_an_end_that_was_not_stored() {
        let finished = || Event::RunFinished {
            thread_id: "t".into(),
            run_id: "r".into(),
            result: None,
            outcome: None,
            usage: Vec::new(),
        };
        let unavailable = || ConversationError::from(StoreError::unavailable("the disk is full"));
        assert_eq!(terminal_event(finished(), Ok(())), finished());
        for (stored, expected) in [
            (unavailable(), "STORE_UNAVAILABLE"),
            (ConversationError::Invalid("x".to_owned()), "STORE_UNAVAILABLE"),
        ] {
            let Event::RunError { code, .. } = terminal_event(finished(), Err(stored)) else {
                panic!("the client is told")
            };
            assert_eq!(code, expected);
        }
        let deleted = terminal_event(finished(), Err(ConversationError::RunNotFound));
        assert!(matches!(deleted, Event::RunFinished { outcome: Some(RunOutcome::Cancelled), .. }));
    }
}
