//! Thin hyper shells over [`agent_core`]: three services, and what they share.
//!
//! A request comes in by [`serve`], finds its route in [`app`], [`runtime`] or [`scheduler`], shows its credential to
//! [`auth`], is read by [`request`], runs in the core, and goes out by [`stream`] or, if it failed, by
//! [`error`]. The services know nothing of each other, and nothing here chooses a store or a model:
//! that is for the program around it.
//!
//! # Why each module is there
//!
//! The services:
//!
//! - [`app`]: the application server: agents, people, and the chat entry.
//! - [`runtime`]: the agent runtime: a model and its tool loop for other machines, with no data of its own.
//! - [`scheduler`]: jobs that wait for their time, and the calls that deliver them.
//! - [`probe`]: health, for all of them.
//!
//! In and out:
//!
//! - [`serve`]: the only place that knows hyper's server, so that its limits and its drain are in one place.
//! - [`request`]: bounded bodies, JSON, queries and routes, each with an error that names the fault.
//! - [`auth`]: who asks, from the request's head alone, before a body is read.
//! - [`cors`]: which browsers' pages may ask.
//! - [`error`]: the one exit of everything that fails, as RFC 9457 problems.
//! - [`stream`]: a run's events in four framings, and back from another service's lines.
//! - [`webhook`]: signed calls from one service to another.
//!
//! To others:
//!
//! - [`outbound`]: the one guarded client, so that the address policy, time-outs and caps hold everywhere.
//! - [`lines`]: lines and server-sent events out of chunks, for whatever reads a stream.
//! - [`backend`]: backends over HTTP: agent runtimes.
//! - [`mcp`]: tools over the Model Context Protocol, agents' own for others and others' for the runtime.
//! - [`model`]: models over HTTP: servers of the Chat Completions API, and Ollama.
//! - [`messenger`]: a messenger's bots, through the operator's own runtime.
//!
//! For the operator:
//!
//! - [`config`]: every setting in one table, checked at once.
//! - [`metrics`]: what a service counts about itself.
//! - [`openapi`]: the services' description, for those who generate clients.
//! - [`secret`]: comparing secrets, and keeping each with the origin it was made for.

pub mod app;
pub mod auth;
pub mod backend;
pub mod config;
pub mod cors;
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
pub mod runtime;
pub mod scheduler;
pub mod secret;
pub mod serve;
pub mod stream;
mod template;
mod wakes;
pub mod webhook;
