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
//! - [`health`]: health endpoints, which all services share.
//!
//! Inbound HTTP:
//!
//! - [`body`]: request and response bodies.
//! - [`request_id`]: ids under which requests are logged.
//! - `request_trace`: traces that requests belong to.
//! - [`service`]: handler functions as services.
//! - [`serve`]: the HTTP server. The only module that uses hyper's server, so that its limits and its graceful
//!   shutdown are in one place.
//! - `response`: JSON responses.
//! - `endpoint`: endpoints of a service: one table from which routing, authentication and the OpenAPI document are
//!   made.
//! - `exchange_permit`: permits of requests, which large responses hold while they are read.
//! - [`request`]: bounded request bodies, JSON and query parameters, each with an error that names the invalid field.
//! - [`auth`]: authentication from the request head alone, before the body is read.
//! - [`cors`]: cross-origin resource sharing: the origins whose pages may send requests.
//! - [`error`]: HTTP errors as RFC 9457 problem details.
//! - [`shutdown`]: stages of a graceful shutdown, which a service's server, streams and health share.
//! - [`stream`]: encoders of a run's event stream in six formats.
//! - [`webhook`]: signed calls from one service to another.
//!
//! Outbound HTTP:
//!
//! - [`mcp`]: Model Context Protocol (MCP): the server for an agent's tools, and the client with which the runtime
//!   uses the tools of other servers.
//! - [`tool_servers`]: connections to tool servers over the guarded HTTP client.
//!
//! Operations:
//!
//! - [`metrics`]: Prometheus metrics.
//! - [`usage_metrics`]: Prometheus metrics of runs and of their calls of models and tools.
//! - [`openapi`]: OpenAPI descriptions of the services, for client generators.

pub mod app;
pub mod auth;
pub mod body;
mod connection_permit;
pub mod cors;
mod endpoint;
pub mod error;
mod exchange_permit;
pub mod health;
mod health_endpoints;
pub mod mcp;
pub mod metrics;
pub mod openapi;
pub mod request;
pub mod request_id;
mod request_trace;
mod response;
pub mod runtime;
pub mod scheduler;
pub mod serve;
pub mod service;
pub mod shutdown;
pub mod state;
pub mod stream;
mod timestamps;
pub mod tool_servers;
pub mod usage_metrics;
pub mod webhook;
