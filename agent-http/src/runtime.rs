//! Agent runtime service: a streaming chat endpoint with a tool loop, and proxies of a messenger and of a coding
//! subscription. It is stateless.

mod bot_api;
mod chat;
mod coding_api;
mod coding_auth;
mod coding_chat;
mod coding_issuer;
mod messenger;
mod proxy;
mod sign_in_handle;
mod state;
mod tools;

use std::sync::Arc;

use crate::endpoint::{self, Endpoint};
use crate::error::ErrorFormat;
use crate::health_endpoints;
use crate::service::HttpService;

pub use bot_api::BotApi;
pub use chat::PROVIDERS;
pub use coding_api::CodingApi;
pub use coding_issuer::{CodingAuth, CodingIssuer};
pub use state::RuntimeState;

use state::RuntimeSecret;

/// Returns all endpoints of the runtime.
pub(crate) fn endpoints() -> Vec<Endpoint<RuntimeState>> {
    let health = health_endpoints::endpoints(|runtime: Arc<RuntimeState>, route| async move {
        runtime.base.health.respond(route)
    });
    let device = Endpoint::post(
        "/coding-auth/device",
        RuntimeSecret,
        coding_auth::device,
        coding_auth::describe_device,
    );
    let token =
        Endpoint::post("/coding-auth/token", RuntimeSecret, coding_auth::token, coding_auth::describe_token);
    let refresh = Endpoint::post(
        "/coding-auth/refresh",
        RuntimeSecret,
        coding_auth::refresh,
        coding_auth::describe_refresh,
    );
    let revoke = Endpoint::post(
        "/coding-auth/revoke",
        RuntimeSecret,
        coding_auth::revoke,
        coding_auth::describe_revoke,
    );
    let mut endpoints = vec![
        Endpoint::post("/chat", RuntimeSecret, chat::post, chat::describe),
        Endpoint::post("/coding-chat", RuntimeSecret, coding_chat::post, coding_chat::describe)
            .own_body_limit(CodingApi::body_limit),
        Endpoint::post("/messenger/call", RuntimeSecret, messenger::post, messenger::describe),
    ];
    endpoints.extend(
        [device, token, refresh, revoke].map(|route| route.max_body_bytes(coding_auth::MAX_BODY_BYTES)),
    );
    endpoints.extend(health);
    endpoints
}

/// Creates the runtime's HTTP service.
pub fn service(runtime: Arc<RuntimeState>) -> impl HttpService {
    endpoint::service(runtime, endpoints(), &[crate::mcp::CORS_HEADERS], |_| ErrorFormat::Problem)
}
