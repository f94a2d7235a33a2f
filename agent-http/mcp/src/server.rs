//! The MCP server: an agent's tools, documents and prompts over Streamable HTTP (Model Context Protocol, versions
//! 2025-06-18, 2025-11-25 and 2026-07-28 at one URL).
//!
//! `rmcp` implements the protocol: messages, sessions, lifecycles. The parts that it leaves to a server are here, each
//! in a separate file, in the order of processing:
//!
//! 1. `host_guard`: validation of `Host` and `Origin`;
//! 2. `identity`: authentication, at every request;
//! 3. `sessions`: session ownership, limits and ends, and the requests in flight per session;
//! 4. `message`: pre-validation of the JSON-RPC envelope;
//! 5. `agent_limits`: rate and concurrency limits;
//! 6. `handler`: timeouts and cancellation; `audit`, the log of tool calls; and `report`, which reports a call to the
//!    event stream of its run; `direct`, a short way to it for the most frequent request;
//! 7. `features`: the trait for what is served, implemented for agents in `agent`, with `changes` for change
//!    notifications;
//! 8. `framing`: content negotiation and response framing.
//!
//! `request` leads a request through these steps.
//!
//! A request without a session is answered on its own regardless of its version, so that a script needs no handshake.
//! Errors before a message is read are [`AdmissionError`]s, which the caller answers; after it they are JSON-RPC
//! errors.

mod admission;
mod agent;
mod agent_limits;
mod audit;
mod changes;
mod direct;
mod features;
mod framing;
mod handler;
mod host_guard;
mod identity;
mod mcp_server;
mod message;
mod permits;
mod progress;
mod query;
mod report;
mod request;
mod rpc_error;
mod sessions;
mod tokens;

pub use admission::AdmissionError;
pub use agent::AgentFeatures;
pub use agent_limits::AgentLimits;
pub use audit::{AuditDecision, AuditError, AuditLog, AuditOutcome, CallPage, CallRecord, DecidedCall};
pub use changes::Change;
pub use features::{CallContext, Features};
pub use host_guard::HostGuard;
pub use identity::{Identity, LegacyQuery, McpAuthenticator, TokenResolver};
pub use mcp_server::{McpServer, McpServerLimits};
pub use request::AuthorizedRequest;
