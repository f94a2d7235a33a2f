//! Retrieval over documents: finds the fragments of documents that answer a question, without a model.
//!
//! ```text
//! text ──chunk──► chunks ──analysis──► doc_index (a value, stored as bytes)
//!                                          │ merged in memory
//!                                          ▼
//! question ──analysis──► terms ──search──► company ──► ranking ──pack──► fragments ──prompt──► text
//! ```
//!
//! Ranking is pure: no clock, no storage, no network, no model. The traits [`extract::Extractor`],
//! [`embed::Embedder`], [`index::SearchIndex`] and [`rerank::Reranker`] are for what is outside. Equal documents and equal questions give equal
//! rankings, whatever the order in which the documents were added, and whatever store keeps the values.
//!
//! ```
//! use agent_retrieval::chunk::StructuralChunker;
//! use agent_retrieval::company::{CompanyIndex, DocumentChange, SearchScope};
//! use agent_retrieval::doc_index::DocIndex;
//! use agent_retrieval::document::ExtractedText;
//! use agent_retrieval::search::{Query, SearchOptions};
//!
//! let text = "Receipts are kept for ten years.".to_owned();
//! let document = ExtractedText { title: "Handbook".into(), text, ..ExtractedText::default() };
//! let index = DocIndex::build(&document, &StructuralChunker::default())?;
//! let mut company = CompanyIndex::new();
//! company.apply([DocumentChange::Put("handbook".into(), index.into())]);
//!
//! let query = Query::new("How long do we keep a receipt?");
//! let ranking = company.search(SearchScope::All, &query, &SearchOptions::default());
//! assert_eq!(&document.text[ranking.hits[0].range.clone()], "Receipts are kept for ten years.");
//! # Ok::<(), agent_retrieval::doc_index::BuildError>(())
//! ```

pub mod analysis;
pub mod chunk;
pub mod company;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod doc_index;
pub mod document;
pub mod embed;
pub mod extract;
pub mod index;
pub mod json_numbers;
pub mod memory_index;
pub mod pack;
mod part;
mod postings;
pub mod prompt;
pub mod rerank;
pub mod search;
