//! In-process models, run on dedicated threads without network access: a language model with GGUF weights, and embedding
//! models.
//!
//! - [`EmbeddedModel`] implements [`Model`](agent_core::model::Model); [`EmbeddedConfig`] configures it.
//! - [`LocalEmbedder`] maps texts to vectors.
//! - [`catalog`] lists models that are known to work, with their checksums; [`pull`] downloads them.
//!
//! Private modules: `weights` reads a file's header, `vocabulary` encodes and decodes tokens, `matrix` and
//! `llama` run inference, `shape` selects what the model reads, `chat` renders prompts, `intent` and `grammar` implement tool calls for a model
//! that is too small to make them by itself, `call` is one call as data, `runner` runs calls, and `engine` is
//! the model thread with its queue.

mod call;
pub mod catalog;
mod chat;
mod embedding;
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
pub use embedding::{EmbeddingFiles, EmbeddingModelError, EmbeddingPriority, LocalEmbedder};
pub use model::{EmbeddedConfig, EmbeddedModel};
pub use sample::Sampling;
pub use weights::WeightsError;
