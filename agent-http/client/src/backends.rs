//! Backends that are reached over HTTP.

pub mod agent_server;
mod mcp_url;
pub mod subscription;
pub mod workflow;

use agent_core::budget::TokenBudget;
use agent_core::payload::PayloadBuilder;
use mcp_url::push_mcp_server_url;

/// Token budget assumed for unknown models, such as the models of a workflow.
pub const DEFAULT_REMOTE_BUDGET: TokenBudget = TokenBudget { max_prompt_tokens: 128_000 - 16_384 };

/// Appends an optional member to a JSON object that already has at least one member.
fn push_optional_member(body: &mut PayloadBuilder, name: &str, value: Option<&impl serde::Serialize>) {
    if let Some(value) = value {
        body.raw(",").json(&name).raw(":").json(value);
    }
}
