//! The application's table of endpoints.

use std::sync::{Arc, OnceLock};

use agent_platform::coding::SIGN_IN_PATH;

use super::agents::{self, Agents};
use super::assignments::{self, Assignments};
use super::budgets::{self, CompanyBudgets};
use super::company_settings::{self, CompanySettings};
use super::credential::{
    ApiToken, ChatCredential, CronSecret, McpToken, PreviewSession, QuerySession, SchedulerCallback,
    SessionOrVisitor, UserSession, WaitingSession,
};
use super::document_indexes;
use super::document_versions::{self, Versions};
use super::documents::{self, Documents};
use super::memories::{self, OwnMemories, SharedMemories};
use super::providers::{self, CompanyProviders};
use super::pulse::{self, callback, jobs, next};
use super::services::CALLBACK_PATH;
use super::tokens::{self, AgentTokens};
use super::{
    App, agent_tools, approvals, assistants, capabilities, catalog, chat, coding, console, cron, debug,
    feedback, files, mcp, openai, openai_docs, resource, retrieve, role_preview, run_bundle, run_docs,
    run_events, runs, thread_docs, thread_export, thread_messages, threads, usage, usage_docs, widget,
};
use super::{credential, document_contents as contents};
use crate::endpoint::{Endpoint, Public};
use crate::error::HttpError;
use crate::health::HealthRoute;
use crate::health_endpoints;

/// Session for the management endpoints.
const USER: UserSession = UserSession(user_needed);
/// Session for the endpoints that wait for the extraction of a text if the client prefers so.
const UPLOADER: WaitingSession = WaitingSession(USER);
/// Session for the management endpoints that change nothing although their method is `POST`.
const READER: QuerySession = QuerySession(user_needed);
/// Session for the previews and the deprecated endpoints.
const SESSION: UserSession = UserSession(credential::session_needed);
/// Session for the audit log.
const AUDITOR: UserSession = UserSession(|| HttpError::unauthenticated("a session is required"));

fn user_needed() -> HttpError {
    HttpError::forbidden("a user's session is required")
}

/// Returns all endpoints of the application.
pub(crate) fn endpoints() -> Vec<Endpoint<App>> {
    enabled(OptionalParts { conversations: true, console: true, widget: true })
}

/// Parts of the application that a setting switches off.
#[derive(Debug, Clone, Copy)]
pub(super) struct OptionalParts {
    pub(super) conversations: bool,
    pub(super) console: bool,
    pub(super) widget: bool,
}

/// Returns the endpoints of an application with these parts.
pub(super) fn enabled(parts: OptionalParts) -> Vec<Endpoint<App>> {
    let mut all = permanent_endpoints();
    if parts.conversations {
        all.extend(thread_endpoints());
    }
    if parts.console {
        all.extend(console_endpoints());
    }
    if parts.widget {
        all.extend(widget_endpoints());
    }
    all
}

/// Returns the routes of all endpoints.
fn routes() -> &'static [&'static str] {
    static ROUTES: OnceLock<Vec<&'static str>> = OnceLock::new();
    ROUTES.get_or_init(|| endpoints().into_iter().map(|endpoint| endpoint.path).collect())
}

fn permanent_endpoints() -> Vec<Endpoint<App>> {
    let health = health_endpoints::endpoints(|app: Arc<App>, route| async move {
        let store = match route {
            HealthRoute::Ready | HealthRoute::Health => app.records.check_writable().await,
            HealthRoute::Live | HealthRoute::Metrics => Ok(()),
        };
        app.base.health.respond_checked(route, store)
    });
    let mut all = chat_endpoints();
    all.extend(management_endpoints());
    all.extend(tool_endpoints());
    all.extend(memory_endpoints());
    all.extend(sharing_endpoints());
    all.extend(content_endpoints());
    all.extend(file_endpoints());
    all.extend(job_endpoints());
    all.extend(coding_endpoints());
    all.extend(usage_endpoints());
    all.extend(provider_endpoints());
    all.extend(setting_endpoints());
    all.extend(openai_endpoints());
    all.extend(health);
    all
}

fn chat_endpoints() -> Vec<Endpoint<App>> {
    let (mcp_path, preview_path) = ("/api/agent/mcp", "/api/svcchat/previewPrompt");
    let (status_path, action_path) = ("/api/assistants/context-status", "/api/assistants/context/{*action}");
    vec![
        Endpoint::post("/api/agent/chat", ChatCredential, chat::post, chat::describe).open_to_any_origin(),
        Endpoint::post("/api/svcchat/private", ChatCredential, chat::post_legacy, chat::describe_alias)
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
    let (agents_path, agent_path) = ("/api/agents", "/api/agents/{id}");
    let (tokens_path, token_path) = ("/api/agents/{id}/tokens", "/api/agents/{id}/tokens/{tokenId}");
    let (documents_path, document_path) = ("/api/documents", "/api/documents/{id}");
    vec![
        Endpoint::get(agents_path, USER, resource::list::<Agents>, agents::describe_list),
        Endpoint::get(agent_path, USER, resource::get::<Agents>, agents::describe_get),
        Endpoint::put(agent_path, USER, resource::put::<Agents>, agents::describe_put),
        Endpoint::delete(agent_path, USER, resource::delete::<Agents>, agents::describe_delete),
        Endpoint::get("/api/agents/{id}/capabilities", USER, capabilities::get, capabilities::describe),
        Endpoint::get(tokens_path, USER, resource::list::<AgentTokens>, tokens::describe_list),
        Endpoint::post(tokens_path, USER, tokens::post, tokens::describe_post),
        Endpoint::delete(token_path, USER, tokens::delete, tokens::describe_delete),
        Endpoint::post("/api/agents/{id}/retrieve", USER, retrieve::post, retrieve::describe),
        Endpoint::post("/api/agents/{id}/preview", READER, role_preview::post, role_preview::describe),
        Endpoint::get(documents_path, USER, resource::list::<Documents>, documents::describe_list),
        Endpoint::get(document_path, USER, document_indexes::get, document_indexes::describe_get),
        Endpoint::put(document_path, USER, resource::put::<Documents>, documents::describe_put),
        Endpoint::delete(document_path, USER, documents::delete, documents::describe_delete),
    ]
}

fn tool_endpoints() -> Vec<Endpoint<App>> {
    let discover_path = "/api/agents/{id}/tools/discover";
    let test_path = "/api/agents/{id}/tools/{name}/test";
    vec![
        Endpoint::get("/api/agents/{id}/tools", USER, agent_tools::get, agent_tools::describe_get),
        Endpoint::post(discover_path, USER, agent_tools::discover, agent_tools::describe_discover),
        Endpoint::post("/api/agents/{id}/tools/pin", USER, agent_tools::pin, agent_tools::describe_pin),
        Endpoint::post(test_path, USER, agent_tools::test, agent_tools::describe_test),
    ]
}

fn content_endpoints() -> Vec<Endpoint<App>> {
    let (content_path, text_path) = ("/api/documents/{id}/content", "/api/documents/{id}/text");
    let reindex_path = "/api/documents/{id}/reindex";
    vec![
        Endpoint::get(content_path, USER, contents::get, contents::describe_get),
        Endpoint::put(content_path, UPLOADER, contents::put, contents::describe_put)
            .own_body_limit(|app| app.quotas.upload_bytes),
        Endpoint::get(text_path, USER, contents::get_text, contents::describe_get_text),
        Endpoint::post(reindex_path, UPLOADER, contents::reindex, contents::describe_reindex),
        Endpoint::post(
            "/api/documents/reindex",
            USER,
            document_indexes::reindex,
            document_indexes::describe_reindex,
        ),
    ]
}

fn file_endpoints() -> Vec<Endpoint<App>> {
    let (files_path, file_path) = ("/api/files", "/api/files/{id}");
    vec![
        Endpoint::get(files_path, USER, resource::list::<files::OwnFiles>, files::describe_list),
        Endpoint::post(files_path, USER, files::post, files::describe_post)
            .own_body_limit(|app| app.quotas.file_bytes),
        Endpoint::get(file_path, USER, files::get, files::describe_get),
        Endpoint::delete(file_path, USER, files::delete, files::describe_delete),
    ]
}

fn sharing_endpoints() -> Vec<Endpoint<App>> {
    let (versions_path, version_path) =
        ("/api/documents/{id}/versions", "/api/documents/{id}/versions/{revision}");
    let restore_path = "/api/documents/{id}/versions/{revision}/restore";
    vec![
        Endpoint::put("/api/agents/{id}/owner", USER, agents::put_owner, agents::describe_put_owner),
        Endpoint::put("/api/documents/{id}/owner", USER, documents::put_owner, documents::describe_put_owner),
        Endpoint::get(versions_path, USER, resource::list::<Versions>, document_versions::describe_list),
        Endpoint::get(version_path, USER, document_versions::get, document_versions::describe_get),
        Endpoint::post(restore_path, USER, document_versions::restore, document_versions::describe_restore),
    ]
}

fn memory_endpoints() -> Vec<Endpoint<App>> {
    let (own_path, own_entry_path) = ("/api/agents/{id}/memories", "/api/agents/{id}/memories/{memoryId}");
    let shared_path = "/api/agents/{id}/shared-memories";
    let shared_entry_path = "/api/agents/{id}/shared-memories/{memoryId}";
    vec![
        Endpoint::get(own_path, USER, resource::list::<OwnMemories>, memories::describe_list),
        Endpoint::delete(own_path, USER, memories::delete_all::<false>, memories::describe_delete_all),
        Endpoint::get(own_entry_path, USER, resource::get::<OwnMemories>, memories::describe_get),
        Endpoint::put(own_entry_path, USER, resource::put::<OwnMemories>, memories::describe_put),
        Endpoint::delete(own_entry_path, USER, resource::delete::<OwnMemories>, memories::describe_delete),
        Endpoint::get(shared_path, USER, resource::list::<SharedMemories>, memories::describe_list_shared),
        Endpoint::delete(
            shared_path,
            USER,
            memories::delete_all::<true>,
            memories::describe_delete_all_shared,
        ),
        Endpoint::get(
            shared_entry_path,
            USER,
            resource::get::<SharedMemories>,
            memories::describe_get_shared,
        ),
        Endpoint::put(
            shared_entry_path,
            USER,
            resource::put::<SharedMemories>,
            memories::describe_put_shared,
        ),
        Endpoint::delete(
            shared_entry_path,
            USER,
            resource::delete::<SharedMemories>,
            memories::describe_delete_shared,
        ),
    ]
}

fn job_endpoints() -> Vec<Endpoint<App>> {
    let (jobs_path, job_path) = ("/api/pulse/jobs", "/api/pulse/jobs/{id}");
    let reschedule_path = "/api/pulse/jobs/{id}/reschedule";
    let all_path = "/api/agents/{id}/assignments";
    let one_path = "/api/agents/{id}/assignments/{assignmentId}";
    vec![
        Endpoint::get("/api/pulse/status", USER, pulse::status, pulse::describe_status),
        Endpoint::get(jobs_path, USER, jobs::list, jobs::describe_list),
        Endpoint::post(jobs_path, USER, jobs::post, jobs::describe_post),
        Endpoint::get(job_path, USER, jobs::get, jobs::describe_get),
        Endpoint::delete(job_path, USER, jobs::cancel, jobs::describe_cancel),
        Endpoint::post(reschedule_path, USER, jobs::reschedule, jobs::describe_reschedule),
        Endpoint::post("/api/pulse/jobs/{id}/pause", USER, jobs::pause, jobs::describe_pause),
        Endpoint::post("/api/pulse/jobs/{id}/resume", USER, jobs::resume, jobs::describe_resume),
        Endpoint::post("/api/pulse/jobs/{id}/redrive", USER, jobs::redrive, jobs::describe_redrive),
        Endpoint::post("/api/pulse/next", READER, next::post, next::describe),
        Endpoint::get(all_path, USER, resource::list::<Assignments>, assignments::describe_list),
        Endpoint::get(one_path, USER, resource::get::<Assignments>, assignments::describe_get),
        Endpoint::put(one_path, USER, resource::put::<Assignments>, assignments::describe_put),
        Endpoint::delete(one_path, USER, resource::delete::<Assignments>, assignments::describe_delete),
        Endpoint::post(CALLBACK_PATH, SchedulerCallback, callback::post, callback::describe)
            .max_body_bytes(callback::MAX_BODY_BYTES),
        Endpoint::get("/api/cron", CronSecret, cron::get, cron::describe),
    ]
}

fn thread_endpoints() -> Vec<Endpoint<App>> {
    let mut all = visitor_endpoints();
    all.extend(own_thread_endpoints());
    all
}

/// Returns the endpoints that a widget's visitors have too, from the pages of any origin.
fn visitor_endpoints() -> Vec<Endpoint<App>> {
    const VISITOR: SessionOrVisitor = SessionOrVisitor;
    let (threads_path, thread_path) = ("/api/threads", "/api/threads/{id}");
    let (all_path, export_path) = ("/api/threads/export", "/api/threads/{id}/export");
    let feedback_path = "/api/threads/{id}/messages/{node}/feedback";
    let approval_path = "/api/approvals/{id}";
    let all = vec![
        Endpoint::get(all_path, VISITOR, thread_export::get_all, thread_export::describe_get_all)
            .without_head(),
        Endpoint::get(export_path, VISITOR, thread_export::get, thread_export::describe_get).without_head(),
        Endpoint::put(feedback_path, VISITOR, feedback::put, feedback::describe_put),
        Endpoint::delete(feedback_path, VISITOR, feedback::delete, feedback::describe_delete),
        Endpoint::get(threads_path, VISITOR, threads::list, thread_docs::list),
        Endpoint::delete(threads_path, VISITOR, threads::delete_many, thread_docs::delete_many),
        Endpoint::get(thread_path, VISITOR, threads::get, thread_docs::get),
        Endpoint::patch(thread_path, VISITOR, threads::patch, thread_docs::patch),
        Endpoint::delete(thread_path, VISITOR, threads::delete, thread_docs::delete),
        Endpoint::get("/api/runs/{id}/events", VISITOR, run_events::get, thread_docs::run_events)
            .without_head(),
        Endpoint::post("/api/runs/{id}/cancel", VISITOR, runs::cancel, thread_docs::cancel_run),
        Endpoint::get("/api/agent/chat/{threadId}/stream", VISITOR, run_events::resume, thread_docs::resume)
            .without_head(),
        Endpoint::get("/api/approvals", VISITOR, approvals::list, thread_docs::list_approvals),
        Endpoint::get(approval_path, VISITOR, approvals::get, thread_docs::get_approval),
        Endpoint::post(approval_path, VISITOR, approvals::decide, thread_docs::decide_approval),
    ];
    all.into_iter().map(Endpoint::open_to_any_origin).collect()
}

fn own_thread_endpoints() -> Vec<Endpoint<App>> {
    let messages_path = "/api/threads/{id}/messages";
    let message_path = "/api/threads/{id}/messages/{node}";
    vec![
        Endpoint::post("/api/threads", USER, threads::post, thread_docs::post),
        Endpoint::post("/api/threads/{id}/fork", USER, threads::fork, thread_docs::fork),
        Endpoint::post(messages_path, USER, thread_messages::post, thread_docs::post_messages),
        Endpoint::delete(message_path, USER, thread_messages::delete, thread_docs::delete_message),
        Endpoint::get("/api/runs", USER, runs::list, thread_docs::list_runs),
        Endpoint::post("/api/threads/{id}/cancel", USER, threads::cancel, thread_docs::cancel_thread),
        Endpoint::get("/api/runs/{id}", USER, runs::get, thread_docs::get_run),
        Endpoint::get("/api/runs/{id}/prompt", USER, runs::prompt, run_docs::get_prompt),
        Endpoint::get("/api/runs/{id}/bundle", USER, run_bundle::get, run_bundle::describe_get)
            .without_head(),
        Endpoint::get("/api/agents/{id}/feedback", USER, feedback::list, feedback::describe_list),
        Endpoint::get(
            "/api/agents/{id}/threads",
            USER,
            feedback::list_threads,
            feedback::describe_list_threads,
        ),
    ]
}

fn coding_endpoints() -> Vec<Endpoint<App>> {
    let one_path = "/api/coding/sign-in/{id}";
    vec![
        Endpoint::get("/api/coding", USER, coding::get, coding::describe_get),
        Endpoint::post(SIGN_IN_PATH, USER, coding::begin, coding::describe_begin),
        Endpoint::delete(SIGN_IN_PATH, USER, coding::sign_out, coding::describe_sign_out),
        Endpoint::get(one_path, USER, coding::status, coding::describe_status),
        Endpoint::delete(one_path, USER, coding::cancel, coding::describe_cancel),
    ]
}

fn usage_endpoints() -> Vec<Endpoint<App>> {
    let budget_path = "/api/budgets/{kind}/{id}";
    vec![
        Endpoint::get("/api/usage", USER, usage::list, usage_docs::list),
        Endpoint::get("/api/usage/runs/{runId}", USER, usage::get_run, usage_docs::get_run),
        Endpoint::get("/api/models", USER, catalog::list, catalog::describe),
        Endpoint::get("/api/limits", USER, usage::get_limits, usage_docs::get_limits),
        Endpoint::get("/api/budgets", USER, resource::list::<CompanyBudgets>, budgets::describe_list),
        Endpoint::get(budget_path, USER, resource::get::<CompanyBudgets>, budgets::describe_get),
        Endpoint::put(budget_path, USER, resource::put::<CompanyBudgets>, budgets::describe_put),
        Endpoint::delete(budget_path, USER, resource::delete::<CompanyBudgets>, budgets::describe_delete),
    ]
}

fn provider_endpoints() -> Vec<Endpoint<App>> {
    let path = "/api/providers/{id}";
    vec![
        Endpoint::get("/api/providers", USER, resource::list::<CompanyProviders>, providers::describe_list),
        Endpoint::get(path, USER, resource::get::<CompanyProviders>, providers::describe_get),
        Endpoint::put(path, USER, resource::put::<CompanyProviders>, providers::describe_put),
        Endpoint::delete(path, USER, resource::delete::<CompanyProviders>, providers::describe_delete),
    ]
}

fn setting_endpoints() -> Vec<Endpoint<App>> {
    use company_settings::{describe_delete, describe_get, describe_list, describe_put};
    let path = "/api/settings/{id}";
    vec![
        Endpoint::get("/api/settings", USER, resource::list::<CompanySettings>, describe_list),
        Endpoint::get(path, USER, resource::get::<CompanySettings>, describe_get),
        Endpoint::put(path, USER, resource::put::<CompanySettings>, describe_put),
        Endpoint::delete(path, USER, resource::delete::<CompanySettings>, describe_delete),
    ]
}

/// Returns the endpoints of OpenAI's API. Pages of any origin may use them: they accept no cookie.
fn openai_endpoints() -> Vec<Endpoint<App>> {
    let all = vec![
        Endpoint::get("/v1/models", ApiToken, openai::list_models, openai_docs::list_models),
        Endpoint::get("/v1/models/{id}", ApiToken, openai::get_model, openai_docs::get_model),
        Endpoint::post(
            "/v1/chat/completions",
            ApiToken,
            openai::post_completion,
            openai_docs::post_completion,
        ),
    ];
    all.into_iter().map(Endpoint::open_to_any_origin).collect()
}

fn widget_endpoints() -> Vec<Endpoint<App>> {
    vec![
        Endpoint::get(agent_console::widget::LOADER_PATH, Public, widget::file, widget::describe_loader),
        Endpoint::get("/widget/{*path}", Public, widget::file, widget::describe_module),
    ]
}

fn console_endpoints() -> Vec<Endpoint<App>> {
    let session_path = console::SESSION_PATH;
    let get_session = |context, principal| console::get_session(context, principal, routes());
    vec![
        Endpoint::get(agent_console::PAGE_PATH, Public, console::asset, console::describe_page),
        Endpoint::get("/assets/{*path}", Public, console::asset, console::describe_asset),
        Endpoint::post(
            "/api/console/links",
            console::InternalSecret,
            console::post_link,
            console::describe_post_link,
        ),
        Endpoint::post(session_path, Public, console::post_session, console::describe_post_session)
            .max_body_bytes(console::MAX_BODY_BYTES),
        Endpoint::get(session_path, USER, get_session, console::describe_get_session),
        Endpoint::delete(session_path, USER, console::delete_session, console::describe_delete_session),
    ]
}
