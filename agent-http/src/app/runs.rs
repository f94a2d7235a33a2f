//! `/api/runs`: the caller's own runs.

use agent_core::ids::{AgentId, RunId, ThreadId};
use agent_core::request::Principal;
use agent_platform::conversation::{RunFilter, RunState, RunTriggerKind, check_conversation_id};
use http::StatusCode;

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
    let page = own.store.runs(&own.owner, &filter, list.cursor.as_deref(), list.page_size()).await?;
    private(answer::json(StatusCode::OK, &page))
}

/// Handles `GET /api/runs/{id}`.
pub(super) async fn get(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let own = OwnConversations::open(context.state, &principal)?;
    let id = context.params.get("id")?;
    check_conversation_id("", id).map_err(|_| HttpError::not_found())?;
    let run = own.store.run(&own.owner, &RunId::from(id)).await?.ok_or_else(HttpError::not_found)?;
    private(answer::json(StatusCode::OK, &run))
}
