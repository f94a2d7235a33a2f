//! A language model inside the process: GGUF weights, a thread of their own, no network.
//!
//! - [`EmbeddedModel`] is the [`Model`](agent_core::model::Model); [`EmbeddedConfig`] says how it runs.
//! - [`catalog`] lists the weights that are known to work, with their checksums; [`pull`] fetches them.
//!
//! Within: `weights` reads a file's header, `vocabulary` turns text to tokens and back, `matrix` and
//! `llama` compute, `chat` renders conversations, `intent` and `grammar` make tool calls of a model
//! that is too small to make them by itself, `call` is one call as data, `runner` runs calls, and
//! `engine` is the thread with the queue before it.

mod call;
pub mod catalog;
mod chat;
mod engine;
mod grammar;
mod intent;
mod llama;
mod matrix;
mod model;
#[cfg(feature = "pull")]
pub mod pull;
mod runner;
mod sample;
mod vocabulary;
mod weights;

pub use model::{EmbeddedConfig, EmbeddedModel, PROVIDER};
pub use sample::Sampling;
pub use weights::WeightsError;
