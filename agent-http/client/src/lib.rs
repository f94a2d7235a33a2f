//! Outbound HTTP over [`agent_core`]: the guarded HTTP client, and the model clients and backends that use it.
//!
//! Every request to another server leaves through [`outbound`], so that the address policy, timeouts and size limits
//! hold everywhere. Nothing here serves requests.
//!
//! # Modules
//!
//! - [`outbound`]: the one outbound HTTP client.
//! - [`models`]: model clients: servers of OpenAI's Chat Completions and Responses APIs, and Ollama.
//! - [`backends`]: backends over HTTP: agent runtimes and workflow webhooks.
//! - [`embeddings`]: embedding models of OpenAI-compatible servers and of Ollama.
//! - [`coding`]: the issuer of users' subscriptions, through the operator's own runtime.
//! - [`device_auth`]: sign-in at an OAuth issuer by a device code.
//! - [`http_tools`]: calls of HTTP tools that roles define.
//! - [`messenger`]: messenger bots, through the operator's own runtime.
//! - [`pulse`]: the scheduler's client.
//! - [`events`]: decoder of another runtime's event lines.
//! - `borrowed_text`: strings that are borrowed from JSON.
//! - `lines`: incremental parsers of lines and server-sent events (SSE).
//! - [`relay`]: the hot path of streams that are passed on: wakers and event templates.
//! - [`problem`]: problem details (RFC 9457) in responses of the platform's own services.
//! - [`keep_alive`]: the `Keep-Alive` header.
//! - [`secret`]: secrets bound to an origin.
//! - [`clock`]: the clock of programs that run on tokio.

pub mod backends;
mod borrowed_text;
pub mod clock;
pub mod coding;
mod context_size;
pub mod device_auth;
pub mod embeddings;
pub mod events;
pub mod http_tools;
pub mod keep_alive;
mod lines;
#[cfg(test)]
mod loopback;
pub mod messenger;
pub mod models;
pub mod outbound;
pub mod problem;
pub mod pulse;
pub mod relay;
pub mod secret;
mod token_count;
