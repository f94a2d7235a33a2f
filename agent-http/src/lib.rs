//! HTTP services over [`agent_core`]: the application server, the agent runtime and the scheduler, on hyper.
//!
//! A request is accepted by [`serve`], routed by the table of `endpoint`s of [`app`], [`runtime`] or [`scheduler`],
//! authenticated by [`auth`] and parsed by [`request`]. The core runs it, and [`stream`] encodes the response or
//! [`error`] the failure. The services do not depend on each other. No module chooses a store or a model; the binary
//! composes them.
//!
//! # Modules
//!
//! Services:
//!
//! - [`app`]: the application server: agents, users and the chat endpoint.
//! - [`runtime`]: the agent runtime: a stateless server that runs a model and its tool loop for other services.
//! - [`scheduler`]: the job scheduler: stores scheduled jobs and delivers them as webhook calls.
//! - [`probe`]: health endpoints, which all services share.
//!
//! Inbound HTTP:
//!
//! - [`body`]: request and response bodies.
//! - [`request_id`]: ids under which requests are logged.
//! - [`service`]: handler functions as services.
//! - [`serve`]: the HTTP server. The only module that uses hyper's server, so that its limits and its graceful
//!   shutdown are in one place.
//! - `endpoint`: endpoints of a service: one table from which routing, authentication and the OpenAPI document are
//!   made.
//! - [`request`]: bounded request bodies, JSON and query parameters, each with an error that names the invalid field.
//! - [`auth`]: authentication from the request head alone, before the body is read.
//! - [`cors`]: cross-origin resource sharing: the origins whose pages may send requests.
//! - [`error`]: HTTP errors as RFC 9457 problem details.
//! - [`stream`]: encoders of a run's event stream in four formats, and the decoder of another service's event lines.
//! - [`webhook`]: signed calls from one service to another.
//!
//! Outbound HTTP:
//!
//! - [`outbound`]: the one outbound HTTP client, so that the address policy, timeouts and size limits hold
//!   everywhere.
//! - [`lines`]: incremental parsers of lines and server-sent events (SSE).
//! - [`backend`]: backends over HTTP: agent runtimes.
//! - [`mcp`]: Model Context Protocol (MCP): the server for an agent's tools, and the client with which the runtime
//!   uses the tools of other servers.
//! - [`model`]: model clients over HTTP: OpenAI-compatible Chat Completions servers, and Ollama.
//! - [`messenger`]: messenger bots, through the operator's own runtime.
//!
//! Operations:
//!
//! - [`config`]: the table of all settings, validated together at startup.
//! - [`metrics`]: Prometheus metrics.
//! - [`openapi`]: OpenAPI descriptions of the services, for client generators.
//! - [`secret`]: secrets bound to an origin.

pub mod app;
pub mod auth;
pub mod backend;
pub mod body;
pub mod config;
pub mod cors;
mod endpoint;
pub mod error;
mod keep_alive;
pub mod lines;
#[cfg(test)]
mod loopback;
pub mod mcp;
pub mod messenger;
pub mod metrics;
pub mod model;
pub mod openapi;
pub mod outbound;
pub mod probe;
pub mod request;
pub mod request_id;
pub mod runtime;
pub mod scheduler;
pub mod secret;
pub mod serve;
pub mod service;
pub mod stream;
mod template;
mod wakes;
pub mod webhook;
