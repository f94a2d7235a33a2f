//! Storing of the end of a run, and its terminal event by the outcome.

use std::time::Duration;

use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::event::{Event, RunOutcome};
use agent_platform::conversation::{
    ConversationError, Conversations, EndRun, EndedRun, RUN_INTERRUPTED, RunEndKind, RunFailure,
};

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
