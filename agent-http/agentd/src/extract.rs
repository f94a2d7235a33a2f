//! Extraction of text from documents in a separate process.
//!
//! ```text
//! ProcessExtractor ──starts──► agentd extract MEDIA_TYPE   (no environment; memory, time and output are limited)
//!        │ stdin: the document          │
//!        ◄── stdout: JSON lines ────────┘
//! ```
//!
//! The libraries that read PDF and Office documents allocate as a document tells them to, may panic, loop, or exhaust
//! the stack. In a separate process, each of these is a typed error of that document.

pub(crate) mod command;
mod process;
mod protocol;
mod text;

pub use process::ProcessExtractor;
pub use text::DocumentExtractor;

/// Maximum size of a document in bytes.
const MAX_DOCUMENT_BYTES: usize = 64 * 1024 * 1024;
