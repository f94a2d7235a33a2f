//! A coding subscription: the runtime's proxies of its model API and of its sign-in, and the agents that answer by it.

mod backend;
mod callers;
mod faults;
mod installation;
mod refresh;
mod replicas;
mod rounds;
mod runtime;
mod secrets;
mod signin;

use serde_json::{Value, json};

use crate::support::responses_vendor::{OutputItem, Reply};
use crate::support::vendor::json_response;

/// Returns the vendor's refusal with this status and body.
pub fn refusal(status: &str, headers: &str, body: &Value) -> Reply {
    Reply::steps(json_response(status, headers, &body.to_string()))
}

/// Returns the vendor's refusal of a token.
pub fn unauthorized() -> Reply {
    refusal(
        "401 Unauthorized",
        "",
        &json!({"error": {"code": "token_expired", "message": "upstream-canary"}}),
    )
}

/// Returns a short answer.
pub fn hello() -> Reply {
    Reply::answer(vec![OutputItem::text(&["Hel", "lo."])])
}
