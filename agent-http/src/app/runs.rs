//! `/api/runs`: the caller's own runs.

use agent_core::event::{Audience, RunIds};
use agent_core::ids::{AgentId, RunId, ThreadId};
use agent_core::request::Principal;
use agent_platform::conversation::{
    CancelReason, Run, RunFilter, RunKey, RunState, RunTriggerKind, check_conversation_id,
};
use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use serde_json::json;

use super::resource::page_params;
use super::threads::{OwnConversations, private, word_param};
use super::{App, answer};
use crate::endpoint::RequestContext;
use crate::error::HttpError;
use crate::request::Query;
use crate::service::HandlerResult;

/// Handles `GET /api/runs`.
pub(super) async fn list(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let own = OwnConversations::open(context.state, &principal)?;
    let query = Query::from_uri(&context.head.uri);
    let filter = RunFilter {
        thread: query.get("threadId")?.map(ThreadId::from),
        agent: query.get("agentId")?.map(AgentId::from),
        state: word_param(&query, "state", RunState::from_name)?,
        kind: word_param(&query, "kind", RunTriggerKind::from_name)?,
    };
    let list = page_params(&query)?;
    let mut page = own.store.runs(&own.owner, &filter, list.cursor.as_deref(), list.page_size()).await?;
    page.runs = page.runs.into_iter().map(|run| own.run_on_wire(run)).collect();
    private(answer::json(StatusCode::OK, &page))
}

/// Handles `GET /api/runs/{id}`.
pub(super) async fn get(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let own = OwnConversations::open(context.state, &principal)?;
    let key = own.run_key(context.params.get("id")?)?;
    let run = own.store.run(&key.owner, &key.id).await?.ok_or_else(HttpError::not_found)?;
    private(answer::json(StatusCode::OK, &own.run_on_wire(run)))
}

/// Handles `POST /api/runs/{id}/cancel`.
pub(super) async fn cancel(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let own = OwnConversations::open(context.state, &principal)?;
    let key = own.run_key(context.params.get("id")?)?;
    let cancelled = own.app.conversations.cancel(&*own.store, &key, CancelReason::Requested).await?;
    let run = cancelled.ok_or_else(HttpError::not_found)?;
    private(answer::json(StatusCode::OK, &own.run_on_wire(run)))
}

/// Returns the answer to a request whose run goes on in the background.
pub(super) fn accepted(run: &RunIds) -> HandlerResult {
    let RunIds { thread_id, run_id } = run;
    let body = json!({"threadId": thread_id, "runId": run_id, "state": RunState::Running});
    let mut response = answer::json(StatusCode::ACCEPTED, &body)?;
    let location = HeaderValue::try_from(events_path(run_id));
    response.headers_mut().extend(location.ok().map(|path| (LOCATION, path)));
    private(Ok(response))
}

/// Returns the path of a run's log.
pub(super) fn events_path(id: &RunId) -> String {
    let id = percent_encoding::utf8_percent_encode(id, answer::SEGMENT_ESCAPES);
    format!("/api/runs/{id}/events")
}

impl OwnConversations {
    /// Returns the key of the run with this id; 404 for an id that no run has.
    pub(super) fn run_key(&self, id: &str) -> Result<RunKey, HttpError> {
        check_conversation_id("", id).map_err(|_| HttpError::not_found())?;
        Ok(RunKey { owner: self.owner.clone(), id: id.into() })
    }

    /// Returns a run with the number of clients that are attached in this process. A visitor is not told how the agent
    /// answers.
    fn run_on_wire(&self, run: Run) -> Run {
        let key = RunKey { owner: self.owner.clone(), id: run.id.clone() };
        let run = Run { attached: self.app.conversations.attached(&key), ..run };
        match self.audience {
            Audience::Trusted => run,
            Audience::Visitor => Run { backend: None, request_sha256: None, ..run },
        }
    }
}
