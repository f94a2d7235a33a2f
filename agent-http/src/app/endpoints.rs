//! The application's table of endpoints.

use std::sync::Arc;

use agent_core::request::Principal;

use super::credential::{
    ChatCredential, CronSecret, McpToken, PreviewSession, SchedulerCallback, UserSession,
};
use super::pulse::{self, CALLBACK_PATH, callback};
use super::resource::Route;
use super::{App, agents, assignments, assistants, chat, cron, debug, documents, mcp, tokens};
use crate::endpoint::{Endpoint, RequestContext};
use crate::error::HttpError;
use crate::probe;

type Context = RequestContext<App>;

/// Session for the management endpoints.
const USER: UserSession = UserSession(|| HttpError::forbidden("a user's session is needed here"));
/// Session for the previews and the deprecated endpoints.
const SESSION: UserSession = UserSession(debug::session_needed);
/// Session for the audit log.
const AUDITOR: UserSession = UserSession(|| HttpError::unauthenticated("a session is needed"));

/// Returns all endpoints of the application.
pub(crate) fn endpoints() -> Vec<Endpoint<App>> {
    let health = probe::endpoints(|app: Arc<App>, route| async move { app.probe.respond(route) });
    let mut all = chat_endpoints();
    all.extend(management_endpoints());
    all.extend(job_endpoints());
    all.extend(health);
    all
}

fn chat_endpoints() -> Vec<Endpoint<App>> {
    let (mcp_path, preview_path) = ("/api/agent/mcp", "/api/svcchat/previewPrompt");
    let (status_path, action_path) = ("/api/assistants/context-status", "/api/assistants/context/{*action}");
    vec![
        Endpoint::post("/api/agent/chat", ChatCredential, chat::post, chat::describe).open_to_any_origin(),
        Endpoint::post("/api/svcchat/private", ChatCredential, chat::post, chat::describe_alias)
            .open_to_any_origin(),
        Endpoint::get("/api/svcchat/debugPrompt", SESSION, debug::get, debug::describe_debug),
        Endpoint::get(preview_path, SESSION, debug::get, debug::describe_get),
        Endpoint::post(preview_path, PreviewSession, debug::post, debug::describe_post),
        Endpoint::get(mcp_path, McpToken, mcp::serve, mcp::describe_listen).without_head(),
        Endpoint::post(mcp_path, McpToken, mcp::serve, mcp::describe_send),
        Endpoint::delete(mcp_path, McpToken, mcp::serve, mcp::describe_end),
        Endpoint::get("/api/agent/tools/audit", AUDITOR, mcp::audit, mcp::describe_audit),
        Endpoint::get(status_path, SESSION, assistants::respond, assistants::describe_status),
        Endpoint::get(action_path, SESSION, assistants::respond, assistants::describe_get),
        Endpoint::post(action_path, SESSION, assistants::respond, assistants::describe_post),
    ]
}

fn management_endpoints() -> Vec<Endpoint<App>> {
    let (tokens_path, token_path) = ("/api/agents/{id}/tokens", "/api/agents/{id}/tokens/{tokenId}");
    vec![
        Endpoint::get(
            "/api/agents",
            USER,
            |c: Context, user: Principal| agents::handle(c, user, Route::List),
            agents::describe_list,
        ),
        Endpoint::get(
            "/api/agents/{id}",
            USER,
            |c: Context, user: Principal| agents::handle(c, user, Route::Get),
            agents::describe_get,
        ),
        Endpoint::put(
            "/api/agents/{id}",
            USER,
            |c: Context, user: Principal| agents::handle(c, user, Route::Put),
            agents::describe_put,
        ),
        Endpoint::delete(
            "/api/agents/{id}",
            USER,
            |c: Context, user: Principal| agents::handle(c, user, Route::Delete),
            agents::describe_delete,
        ),
        Endpoint::get(
            tokens_path,
            USER,
            |c: Context, user: Principal| tokens::handle(c, user, tokens::Route::List),
            tokens::describe_list,
        ),
        Endpoint::post(
            tokens_path,
            USER,
            |c: Context, user: Principal| tokens::handle(c, user, tokens::Route::Post),
            tokens::describe_post,
        ),
        Endpoint::delete(
            token_path,
            USER,
            |c: Context, user: Principal| tokens::handle(c, user, tokens::Route::Delete),
            tokens::describe_delete,
        ),
        Endpoint::get(
            "/api/documents",
            USER,
            |c: Context, user: Principal| documents::handle(c, user, Route::List),
            documents::describe_list,
        ),
        Endpoint::get(
            "/api/documents/{id}",
            USER,
            |c: Context, user: Principal| documents::handle(c, user, Route::Get),
            documents::describe_get,
        ),
        Endpoint::put(
            "/api/documents/{id}",
            USER,
            |c: Context, user: Principal| documents::handle(c, user, Route::Put),
            documents::describe_put,
        ),
        Endpoint::delete(
            "/api/documents/{id}",
            USER,
            |c: Context, user: Principal| documents::handle(c, user, Route::Delete),
            documents::describe_delete,
        ),
    ]
}

fn job_endpoints() -> Vec<Endpoint<App>> {
    let jobs_path = "/api/pulse/jobs";
    let all_path = "/api/agents/{id}/assignments";
    let path = "/api/agents/{id}/assignments/{assignmentId}";
    vec![
        Endpoint::get("/api/pulse/status", USER, pulse::status, pulse::describe_status),
        Endpoint::get(jobs_path, USER, pulse::list, pulse::describe_list),
        Endpoint::delete("/api/pulse/jobs/{id}", USER, pulse::cancel, pulse::describe_cancel),
        Endpoint::post(
            "/api/pulse/jobs/{id}/reschedule",
            USER,
            pulse::reschedule,
            pulse::describe_reschedule,
        ),
        Endpoint::get(
            all_path,
            USER,
            |c: Context, user: Principal| assignments::handle(c, user, Route::List),
            assignments::describe_list,
        ),
        Endpoint::get(
            path,
            USER,
            |c: Context, user: Principal| assignments::handle(c, user, Route::Get),
            assignments::describe_get,
        ),
        Endpoint::put(
            path,
            USER,
            |c: Context, user: Principal| assignments::handle(c, user, Route::Put),
            assignments::describe_put,
        ),
        Endpoint::delete(
            path,
            USER,
            |c: Context, user: Principal| assignments::handle(c, user, Route::Delete),
            assignments::describe_delete,
        ),
        Endpoint::post(CALLBACK_PATH, SchedulerCallback, callback::post, callback::describe)
            .max_body_bytes(callback::MAX_BODY_BYTES),
        Endpoint::get("/api/cron", CronSecret, cron::get, cron::describe),
    ]
}
