//! `/api/runs`: the caller's own runs.

use agent_core::event::RunIds;
use agent_core::ids::{AgentId, ThreadId};
use agent_core::request::Principal;
use agent_platform::conversation::{
    CancelReason, Run, RunFilter, RunKey, RunRecord, RunState, RunTriggerKind, check_conversation_id,
};
use agent_platform::run_observer::RunInputs;
use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use serde_json::json;

use super::conversation::events_path;
use super::resource::page_params;
use super::threads::{OwnConversations, private, word_param};
use super::{App, response};
use crate::endpoint::RequestContext;
use crate::error::{Code, HttpError};
use crate::request::Query;
use crate::service::HandlerResult;

/// Handles `GET /api/runs`.
pub(super) async fn list(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let conversations = OwnConversations::open(context.state, &principal)?;
    let query = Query::from_uri(&context.head.uri);
    let filter = RunFilter {
        thread: query.get("threadId")?.map(ThreadId::from),
        agent: query.get("agentId")?.map(AgentId::from),
        state: word_param(&query, "state", RunState::ALL, RunState::as_str)?,
        kind: word_param(&query, "kind", RunTriggerKind::ALL, RunTriggerKind::as_str)?,
    };
    let list = page_params(&query)?;
    let mut page = conversations
        .store
        .runs(&conversations.owner, &filter, list.cursor.as_deref(), list.page_size())
        .await?;
    page.runs = page.runs.into_iter().map(|run| conversations.run_on_wire(run)).collect();
    private(response::json(StatusCode::OK, &page))
}

/// Handles `GET /api/runs/{id}`.
pub(super) async fn get(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let conversations = OwnConversations::open(context.state, &principal)?;
    let key = conversations.run_key(context.params.get("id")?)?;
    let run = conversations.recorded_run(&key).await?;
    private(response::json(StatusCode::OK, &conversations.run_on_wire(run)))
}

/// Handles `GET /api/runs/{id}/prompt`.
pub(super) async fn prompt(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let conversations = OwnConversations::open(context.state, &principal)?;
    let key = conversations.run_key(context.params.get("id")?)?;
    let prompt = conversations.recorded_run(&key).await?.prompt;
    let missing = || HttpError::new(Code::NotFound, "the run has no record of its prompt");
    let mut prompt = prompt.ok_or_else(missing)?;
    if let Some(inputs) = conversations.inputs(&key).await? {
        inputs.add_contents(&mut prompt);
    }
    private(response::json(StatusCode::OK, &prompt))
}

/// Handles `POST /api/runs/{id}/cancel`.
pub(super) async fn cancel(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let conversations = OwnConversations::open(context.state, &principal)?;
    let key = conversations.run_key(context.params.get("id")?)?;
    let cancelled =
        conversations.app.conversations.cancel(&*conversations.store, &key, CancelReason::Requested).await?;
    let run = cancelled.ok_or_else(HttpError::not_found)?;
    private(response::json(StatusCode::OK, &conversations.run_on_wire(run)))
}

/// Returns the answer to a request whose run continues in the background.
pub(super) fn accepted(run: &RunIds, state: RunState) -> HandlerResult {
    let RunIds { thread_id, run_id } = run;
    let body = json!({"threadId": thread_id, "runId": run_id, "state": state});
    let mut response = response::json(StatusCode::ACCEPTED, &body)?;
    let location = HeaderValue::try_from(events_path(run_id));
    response.headers_mut().extend(location.ok().map(|path| (LOCATION, path)));
    private(Ok(response))
}

impl OwnConversations {
    /// Returns the key of the run with this id; 404 for an id that no run has.
    pub(super) fn run_key(&self, id: &str) -> Result<RunKey, HttpError> {
        check_conversation_id("", id).map_err(|_| HttpError::not_found())?;
        Ok(RunKey { owner: self.owner.clone(), id: id.into() })
    }

    /// Returns a run, with its record so far if it runs in this process.
    async fn recorded_run(&self, key: &RunKey) -> Result<Run, HttpError> {
        let run = self.store.run(&key.owner, &key.id).await?.ok_or_else(HttpError::not_found)?;
        let observers = self.app.conversations.observers();
        let record = observers.record_of(&key.owner.company, &key.owner.owner, &key.id);
        Ok(match record.filter(|_| run.state.is_live()) {
            Some(RunRecord { timing, selection, prompt, attempts }) => {
                Run { timing, selection, prompt, attempts, ..run }
            }
            None => run,
        })
    }

    /// Returns the inputs of a run, if they are kept.
    async fn inputs(&self, key: &RunKey) -> Result<Option<RunInputs>, HttpError> {
        let Some(stored) = self.store.run_inputs(&key.owner, &key.id).await? else { return Ok(None) };
        // Inputs of another version are not shown.
        Ok(serde_json::from_slice(&stored).ok())
    }

    /// Returns a run with the number of clients that are attached in this process. Members that a visitor may not see
    /// are removed.
    fn run_on_wire(&self, run: Run) -> Run {
        let key = RunKey { owner: self.owner.clone(), id: run.id.clone() };
        Run { attached: self.app.conversations.attached_clients(&key), ..run.shown_to(self.audience) }
    }
}
