//! Conformance suites for the traits of this crate, for every implementation, an application's own included.
//!
//! Each takes a factory or a value and panics if the contract is violated, with a message that describes the violation.
//! None needs an async runtime.

mod chunker;
mod embedder;
mod extractor;
mod index;
mod reranker;

pub use chunker::chunker;
pub use embedder::{EmbedderSubject, embedder};
pub use extractor::{ExtractorSample, extractor};
pub use index::index;
pub use reranker::reranker;
