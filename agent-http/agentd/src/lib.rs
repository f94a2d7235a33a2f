//! The `agentd` binary's command line, and composition of the platform's services as a library: for tests that start
//! real services, and for programs that supply their own store or model.
//!
//! # Modules
//!
//! - [`config`]: the table of all settings, validated together at startup.
//! - [`compose`]: the only module that chooses stores, models, layers and backends.
//! - [`stores`]: opens the services' stores.
//! - [`run`]: lifecycle of a service, from binding its address to the end of its drain.
//! - `command`: the command line; its commands are in `budget`, `console`, `data`, `healthcheck`, `migration`, `model`, `prompt`,
//!   `provider`, `replay`, `settings`, `threads`, `token`, `usage` and `user`.
//! - [`extract`]: text of documents, extracted in a separate process with limits.
//! - [`dev`]: all services in one process, with generated secrets and a demo workspace.
//! - `weights`: location and download of the embedded model's weights.
//! - [`logging`]: log output and filters.
//! - [`StartError`]: error that prevents a service from starting, with instructions for the operator.

mod budget;
mod cli;
mod command;
mod command_error;
pub mod compose;
pub mod config;
mod console;
mod data;
pub mod dev;
mod embedder;
mod error;
pub mod extract;
mod healthcheck;
pub mod logging;
mod masked_secrets;
mod migration;
mod model;
mod process;
mod prompt;
mod provider;
mod replay;
pub mod run;
mod settings;
mod sign_in_link;
pub mod stores;
mod threads;
mod token;
mod usage;
mod user;
mod weights;

pub use command::run_command_line;
pub use embedder::embedder;
pub use error::StartError;
pub(crate) use error::{store_message, with_source};
