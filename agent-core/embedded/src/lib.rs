//! In-process language model: GGUF weights, run on dedicated threads without network access.
//!
//! - [`EmbeddedModel`] implements [`Model`](agent_core::model::Model); [`EmbeddedConfig`] configures it.
//! - [`catalog`] lists weights that are known to work, with their checksums; [`pull`] downloads them.
//!
//! Private modules: `weights` reads a file's header, `vocabulary` encodes and decodes tokens, `matrix` and
//! `llama` run inference, `shape` selects what the model reads, `chat` renders prompts, `intent` and `grammar` implement tool calls for a model
//! that is too small to make them by itself, `call` is one call as data, `runner` runs calls, and `engine` is
//! the model thread with its queue.

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
mod shape;
mod vocabulary;
mod weights;

pub use catalog::PROVIDER;
pub use model::{EmbeddedConfig, EmbeddedModel};
pub use sample::Sampling;
pub use weights::WeightsError;
