//! Uploaded contents of documents: the original bytes, the state of the extraction of their text, and texts that are
//! too long for a record.
//!
//! Originals and long texts are stored in pieces, records of a collection per document ([`pieces`]). An upload writes
//! its pieces in several commits under a new generation. One last commit sets the generation in the document and
//! deletes the pieces of the previous generation. A partial upload is therefore never visible. Until then the pieces
//! are listed in a record of pending pieces, by which those of an interrupted upload are deleted ([`sweep`]).

mod page_starts;
mod pieces;
mod queue;
mod range;
mod sweep;
mod usage;

pub(crate) use page_starts::page_starts_write;
pub use page_starts::read_page_starts;
pub use pieces::{PENDING_COLLECTION, read_original, read_original_piece};
pub(crate) use pieces::{
    PendingPieces, PieceSet, discard_pieces, read_piece, read_pieces, write_text_pieces,
};
pub(crate) use queue::{
    INGESTION_COLLECTION, IngestionTask, TaskLease, stored_head_write, text_release_writes,
};
pub use range::{TextRange, read_document_text};
pub(crate) use sweep::unchanged_write;
pub use sweep::{STORED_COLLECTION, sweep_pending_pieces, sweep_stored_contents};
pub use usage::{SUMMED_COLLECTIONS, USER_FILE_COLLECTION, UploadUsage};

pub(super) use pieces::write_original;
pub(super) use queue::{release_writes, task_write};
pub(super) use usage::UploadQuota;

/// Maximum size of an extracted text, in bytes.
pub const MAX_TEXT_BYTES: usize = 20 * 1000 * 1000;
