//! An agent's turn of a job, and the notification with its answer.

use std::sync::Arc;

use agent_core::event::{Interrupt, RunIds};
use agent_core::ids::RunId;
use agent_core::message::Message;
use agent_core::request::{Principal, TurnRequest};
use agent_core::role::RoleBlock;
use agent_core::tool::{Caller, ExecutionContext, WholeDelivery};
use agent_core::turn::TurnError;
use agent_jobs::job::Delivery;
use agent_platform::journal::ActiveRun;
use agent_platform::records::Write;
use agent_platform::workspace::{
    MAX_NOTIFICATION_BYTES, MAX_TITLE_BYTES, WorkspaceError, prepare_notification,
};

use super::super::App;
use super::super::conversation::start_job_turn;
use crate::error::{Code, HttpError};
use crate::stream;

/// Maximum size of a run's text, tool arguments and tool results together.
const MAX_RUN_BYTES: usize = 4 << 20;
/// The turn's trigger, as the agent's prompt shows it.
const TRIGGER: &str = "a scheduled job";

/// Runs an agent's turn, in a thread of the user if the agent's runs are stored. Returns the writes of the notification
/// with its answer; none for a turn that says nothing.
///
/// # Errors
/// Errors of the turn; 409 with `Retry-After` while the thread has another run.
pub(super) async fn run_agent_turn(
    app: &Arc<App>,
    run: &ActiveRun,
    delivery: &Delivery,
    role: &RoleBlock,
    mut context: ExecutionContext,
) -> Result<Vec<Write>, HttpError> {
    let payload = &delivery.payload;
    let principal = Principal::new(&*payload.user_id, &*payload.company_id, Caller::Proactive);
    let turn = TurnRequest {
        thread_id: context.thread_id.clone(),
        run_id: context.run_id.clone(),
        todo_list_id: payload.todo_list_id.clone(),
        timezone: payload.timezone.clone(),
        trigger: Some(TRIGGER.to_owned()),
        whole_delivery: Some(WholeDelivery::default()),
        trace: context.trace.clone(),
        ..TurnRequest::new(
            &*payload.agent_id,
            vec![Message::user(payload.message.clone().unwrap_or_default())],
        )
    };
    let whole_delivery = turn.whole_delivery.clone();
    let begin = |id: &_| run.set_run_id(RunId::clone(id));
    let (events, recorder) = match start_job_turn(app, &principal, &turn, delivery, begin).await? {
        Some(started) => {
            context.can_suspend = true;
            (started.events, Some(started.recorder))
        }
        None => {
            let events = app.run_turn(&principal, turn).await.map_err(|error| match error {
                TurnError::AgentNotFound => HttpError::gone("the agent no longer exists"),
                error => error.into(),
            })?;
            (events.into(), None)
        }
    };
    let RunIds { thread_id, run_id } = events.run();
    (context.thread_id, context.run_id) = (thread_id.clone(), run_id.clone());
    let events = events.with_whole_delivery(whole_delivery);
    let run_result = stream::collect_run(events, recorder, &app.stream, MAX_RUN_BYTES).await;
    let run_result = run_result.map_err(|error| match error.code() {
        Code::BudgetExceeded => budget_refusal(app, &context).unwrap_or(error),
        _ => error,
    })?;
    let Some(text) = notification_text(&run_result.output, &run_result.interrupts) else {
        return Ok(Vec::new());
    };
    let name = role.name.lines().next().map(|line| line.replace(char::is_control, " "));
    let title = name.filter(|name| !name.trim().is_empty()).unwrap_or_else(|| "A scheduled job".to_owned());
    let title = truncate_with_ellipsis(&title, MAX_TITLE_BYTES);
    match prepare_notification(&*app.records, &context, &title, Some(&text), app.pulse.now()).await {
        Ok((_, writes)) => Ok(writes),
        Err(WorkspaceError::Store(error)) => Err(error.into()),
        Err(error) => Err(HttpError::internal(error)),
    }
}

/// Returns the refusal of a run, or of one of its calls, by a budget. The scheduler postpones the job until the budget begins
/// again.
pub(super) fn budget_refusal(app: &App, context: &ExecutionContext) -> Option<HttpError> {
    app.usage.recorder.budgets()?.take_refusal(context).map(HttpError::from)
}

/// Returns the text of the notification: the answer, and the questions that the run waits with.
fn notification_text(answer: &str, interrupts: &[Interrupt]) -> Option<String> {
    let questions = interrupts.iter().filter_map(|interrupt| interrupt.message.as_deref());
    let parts: Vec<&str> = std::iter::once(answer.trim()).chain(questions).collect();
    let text = parts.join("\n\n");
    (!text.trim().is_empty()).then(|| truncate_with_ellipsis(&text, MAX_NOTIFICATION_BYTES))
}

/// Truncates a text to `max_bytes`, with an ellipsis.
fn truncate_with_ellipsis(text: &str, max_bytes: usize) -> String {
    const ELLIPSIS: char = '…';
    let text = text.trim();
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let mut truncated = text[..text.floor_char_boundary(max_bytes - ELLIPSIS.len_utf8())].to_owned();
    truncated.push(ELLIPSIS);
    truncated
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        for (text, bytes, expected) in
            [("abc", 3, "abc"), (" abc ", 3, "abc"), ("abcdef", 5, "ab…"), ("aüüü", 6, "aü…")]
        {
            assert_eq!(truncate_with_ellipsis(text, bytes), expected);
            assert!(truncate_with_ellipsis(text, bytes).len() <= bytes);
        }
    }
}
