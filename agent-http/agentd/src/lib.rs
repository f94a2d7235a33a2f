//! Composition of the platform's services as a library: for the `agentd` binary, for tests that start real
//! services, and for programs that supply their own store or model.
//!
//! # Modules
//!
//! - [`config`]: the table of all settings, validated together at startup.
//! - [`compose`]: the only module that chooses stores, models, layers and backends.
//! - [`stores`]: opens the services' stores.
//! - [`run`]: lifecycle of a service, from binding its address to the end of its drain.
//! - [`dev`]: all services in one process, with generated secrets and a demo workspace.
//! - [`weights`]: location and download of the embedded model's weights.
//! - [`logging`]: log output and filters.
//! - [`StartError`]: error that prevents a service from starting, with instructions for the operator.

pub mod compose;
pub mod config;
pub mod dev;
mod error;
pub mod logging;
pub mod run;
pub mod stores;
pub mod weights;

pub use error::{StartError, with_source};
