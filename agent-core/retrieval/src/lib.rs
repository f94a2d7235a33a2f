//! Retrieval over documents.
pub mod analysis;
pub mod chunk;
pub mod company;
pub mod doc_index;
pub mod document;
mod part;
mod postings;
pub mod search;
