//! The application service: chat and management endpoints for agents.

mod agent_tools;
mod agents;
mod approvals;
mod assignments;
mod assistants;
mod attachment;
mod budgets;
mod capabilities;
mod catalog;
mod chat;
mod coding;
mod company_settings;
mod console;
mod conversation;
mod credential;
mod cron;
mod debug;
mod document_contents;
mod document_indexes;
mod document_versions;
mod documents;
mod due;
mod endpoints;
mod feedback;
mod files;
mod mcp;
mod memories;
mod openai;
mod openai_docs;
mod ownership;
mod price_check;
mod providers;
mod pulse;
mod reader_access;
mod resource;
mod response;
mod retrieve;
mod role_preview;
mod run_bundle;
mod run_docs;
mod run_events;
mod runs;
mod services;
mod state;
mod thread_docs;
mod thread_export;
mod thread_messages;
mod thread_page;
mod thread_tag;
mod thread_view;
mod threads;
mod tokens;
mod turns;
mod upload_checks;
mod usage;
mod usage_docs;
mod widget;

use std::sync::Arc;

use crate::endpoint;
use crate::service::HttpService;

pub(crate) use endpoints::endpoints;
pub use run_bundle::PROGRAM;
pub use services::{
    ApprovedCalls, ConsoleService, ConversationService, DocumentUploads, LeasedTools, McpEndpoint,
    ProviderService, RateLimiter, RequestBounds, ResourceQuotas, RunSettings, SchedulerConnection,
    SchedulerConnectionConfig, SubscriptionService, SubscriptionServiceConfig, UsageService, console_link,
};
pub use state::App;

/// Creates the application's HTTP service.
pub fn service(app: Arc<App>) -> impl HttpService {
    let parts = endpoints::OptionalParts {
        conversations: app.conversations.is_on(),
        console: app.console.is_some(),
        widget: app.has_widget,
    };
    let table = endpoints::enabled(parts);
    endpoint::service(app, table, &[crate::mcp::CORS_HEADERS, openai::CORS_HEADERS], openai::error_format)
}

/// Runs the application's background work: jobs, expired records, and runs of ended processes. Runs until the future is
/// dropped.
pub async fn run_maintenance(app: Arc<App>) {
    tokio::join!(
        pulse::run_maintenance(app.clone()),
        app.conversations.run_upkeep(),
        conversation::sweep_threads(&app),
        conversation::sweep_summaries(&app),
        conversation::sweep_notifications(&app),
        conversation::sweep_approvals(&app),
        app.usage.run_upkeep(),
        app.usage.settle_lost_calls(&*app.pulse.inventory, app.conversations.store().cloned())
    );
}
