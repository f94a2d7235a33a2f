//! The composition of the platform's services, as a library: for the binary beside it, for tests that start
//! real services, and for programs that bring a store or a model of their own.
//!
//! # Why each module is there
//!
//! - [`compose`]: the only place that chooses stores, models, layers and backends.
//! - [`stores`]: where the application's data is.
//! - [`run`]: a service's life, from taking its address to the end of its drain.
//! - [`dev`]: all services in one process with secrets of their own and a demo, for newcomers.
//! - [`weights`]: the model in the process: where its weights are, and how they come there.
//! - [`logging`]: the log's form.
//! - [`StartError`]: why a service does not start, in words that say what to do.

pub mod compose;
pub mod dev;
mod error;
pub mod logging;
pub mod run;
pub mod stores;
pub mod weights;

pub use error::{StartError, with_source};
