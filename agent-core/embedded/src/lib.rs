//! In-process models, run on dedicated threads without network access: a language model with GGUF weights, and embedding
//! models.
//!
//! - [`EmbeddedModel`] implements [`Model`](agent_core::model::Model); [`EmbeddedConfig`] configures it.
//! - [`LocalEmbedder`] maps texts to vectors.
//! - [`catalog`] lists models that are known to work, with their checksums; [`pull`] downloads them.
//!
//! Private modules:
//!
//! | module | content |
//! |---|---|
//! | `weights` | header of a weights file |
//! | `vocabulary` | encoding and decoding of tokens |
//! | `attention`, `matrix`, `llama` | inference |
//! | `shape` | selection of the text that the model reads |
//! | `chat` | rendering of prompts |
//! | `intent`, `grammar` | tool calls, for a model that is too small to make them by itself |
//! | `call`, `runner`, `engine` | a call as data, its execution, and the model thread with its queue |

mod attention;
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
