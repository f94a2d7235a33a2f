//! Start of a job's turn in a thread of the job's user. Each occurrence is a new root, so that no prompt grows with the
//! number of occurrences.

use std::sync::Arc;
use std::time::Duration;

use agent_core::ids::{RunId, ThreadId};
use agent_core::request::{Principal, TurnRequest};
use agent_jobs::job::Delivery;
use agent_platform::conversation::{ConversationError, RunKey, RunTrigger, RunTriggerKind, ThreadOwner};

use super::super::App;
use super::begin_error::BeginError;
use super::stored_turn::StoredTurn;
use super::turn::ThreadRequest;
use crate::error::{Code, HttpError};
use crate::stream::{RunRecorder, RunSource};

/// Number of occurrences in a thread of a job's own.
const OCCURRENCES_PER_THREAD: u64 = 50;
/// `Retry-After` of an occurrence whose thread waits for a person's decisions.
const WAITING_RETRY_AFTER: Duration = Duration::from_secs(60);

/// A job's turn that has started in a thread.
pub(in super::super) struct StartedTurn {
    pub(in super::super) events: RunSource,
    pub(in super::super) recorder: Box<dyn RunRecorder>,
}

/// Starts the turn of an occurrence in a thread; `None` if the agent's runs are not stored. `begin` receives the id of
/// the run before the run begins: the first attempt has that of `turn`, and each later one its own.
///
/// # Errors
/// - 429 with `Retry-After` while too many runs wait for the thread.
/// - 409 with `Retry-After` while the thread waits for decisions, and for a run that has waited for too long.
/// - 400 for a thread that cannot take the turn, 410 if the agent was deleted.
/// - Errors of the turn and of the store.
pub(in super::super) async fn start_job_turn(
    app: &Arc<App>,
    principal: &Principal,
    turn: &TurnRequest,
    delivery: &Delivery,
    begin: impl FnOnce(&RunId),
) -> Result<Option<StartedTurn>, HttpError> {
    let request = ThreadRequest::for_new_root();
    let Some(stored_turn) = StoredTurn::open(app, principal, turn, request).await? else { return Ok(None) };
    let trigger = RunTrigger {
        kind: RunTriggerKind::Job,
        job_id: Some(delivery.job_id.clone()),
        occurrence: Some(delivery.occurrence),
        reason: None,
    };
    // Half of the time is left for the turn.
    let max_wait = Some(app.pulse.deadline / 2);
    let stored_turn = StoredTurn { trigger: Some(trigger), max_wait, ..stored_turn };
    let run_id = unused_run_id(&stored_turn, principal, &turn.run_id).await?;
    begin(&run_id);
    let (thread, overflow) = threads(delivery);
    let begin = async |thread_id: ThreadId| {
        let turn = TurnRequest { thread_id, run_id: run_id.clone(), ..turn.clone() };
        begin_turn(app, &stored_turn, principal, turn).await
    };
    let started = match (begin(thread).await, overflow) {
        (Err(BeginError::Store(ConversationError::ThreadFull(_))), Some(overflow)) => begin(overflow).await,
        (started, _) => started,
    };
    started.map(Some).map_err(scheduler_error)
}

/// Begins the turn, after earlier attempts at the same occurrence have ended: their claims are lost.
async fn begin_turn(
    app: &Arc<App>,
    stored_turn: &StoredTurn,
    principal: &Principal,
    turn: TurnRequest,
) -> Result<StartedTurn, BeginError> {
    let owner = owner(principal);
    let thread = stored_turn.store.thread(&owner.thread(turn.thread_id.clone())).await?;
    let unfinished =
        thread.into_iter().flat_map(|thread| thread.queued_run_ids.into_iter().chain(thread.active_run_id));
    for id in unfinished {
        let run = stored_turn.store.run(&owner, &id).await?;
        if run.is_some_and(|run| Some(&run.trigger) == stored_turn.trigger.as_ref()) {
            app.conversations.displace(&*stored_turn.store, &RunKey { owner: owner.clone(), id }).await?;
        }
    }
    let (events, recorder) = stored_turn.begin(app, principal, turn).await?;
    Ok(StartedTurn { events, recorder: Box::new(recorder) })
}

fn owner(principal: &Principal) -> ThreadOwner {
    ThreadOwner::new(principal.company_id.clone(), principal.user_id.clone())
}

/// Returns the thread of the turn, and the overflow thread to use if it is full.
fn threads(delivery: &Delivery) -> (ThreadId, Option<ThreadId>) {
    let payload = &delivery.payload;
    if let Some(thread) = &payload.thread_id {
        return (thread.clone(), None);
    }
    let base = match &payload.assignment_id {
        Some(assignment) => format!("assignment:{assignment}"),
        None => format!("job:{}", delivery.job_id),
    };
    let occurrence = delivery.occurrence;
    let thread = match occurrence.saturating_sub(1) / OCCURRENCES_PER_THREAD {
        0 => base,
        number => format!("{base}:{}", number + 1),
    };
    let overflow = format!("{thread}.{occurrence}");
    (thread.into(), Some(overflow.into()))
}

/// Returns the id for the run of an attempt, since an earlier attempt's run may be stored.
async fn unused_run_id(
    stored_turn: &StoredTurn,
    principal: &Principal,
    first: &RunId,
) -> Result<RunId, HttpError> {
    Ok(match stored_turn.store.run(&owner(principal), first).await? {
        None => first.clone(),
        Some(_) => format!("{first}.{}", agent_core::new_id()).into(),
    })
}

/// Converts an error so that its status tells the scheduler whether to retry the occurrence.
fn scheduler_error(error: BeginError) -> HttpError {
    match error {
        BeginError::Store(
            error @ (ConversationError::AgentMismatch { .. }
            | ConversationError::ThreadFull(_)
            | ConversationError::Invalid(_)),
        ) => HttpError::invalid("payload.threadId", error),
        BeginError::Store(error @ ConversationError::InterruptsOpen { .. }) => {
            HttpError::from(error).with_retry_after(WAITING_RETRY_AFTER)
        }
        error => match HttpError::from(error) {
            error if error.code() == Code::NotFound => HttpError::gone("the agent no longer exists"),
            error => error,
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn threads_of_a_job_are_numbered() {
        let of = |occurrence: u64, more: &[(&str, &str)]| {
            let mut delivery = json!({"kind": "agent", "userId": "u", "companyId": "c", "agentId": "a", "message": "m",
                "jobId": "j", "occurrence": occurrence, "scheduledFor": "2026-11-22T08:00:00Z", "attempt": 1});
            for (name, value) in more {
                delivery[*name] = Value::from(*value);
            }
            let (thread, spare) = threads(&serde_json::from_value(delivery).expect("a delivery"));
            (thread.to_string(), spare.map(|spare| spare.to_string()))
        };
        let own_thread = |thread: &str, spare: &str| (thread.to_owned(), Some(spare.to_owned()));
        assert_eq!(of(1, &[]), own_thread("job:j", "job:j.1"));
        assert_eq!(of(50, &[]), own_thread("job:j", "job:j.50"));
        assert_eq!(of(51, &[]), own_thread("job:j:2", "job:j:2.51"));
        assert_eq!(of(1, &[("assignmentId", "daily")]), own_thread("assignment:daily", "assignment:daily.1"));
        assert_eq!(of(51, &[("threadId", "t")]), ("t".to_owned(), None));
    }
}
