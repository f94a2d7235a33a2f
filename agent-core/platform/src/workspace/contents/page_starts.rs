//! Positions of the pages of an extracted text.

use super::pieces::{PendingPieces, PieceSet, page_starts_id};
use crate::records::{Precondition, Records, RecordsExt, StoreError, Write, to_json};
use crate::workspace::Document;
use agent_core::ids::CompanyId;

/// Maximum number of stored positions; those of further pages are left out.
const MAX_PAGE_STARTS: usize = 50_000;

/// Returns the write that stores positions beside a text, at most [`MAX_PAGE_STARTS`] of them.
pub(crate) fn page_starts_write(pending: &PendingPieces, page_starts: &[u32]) -> Result<Write, StoreError> {
    let stored_starts = &page_starts[..page_starts.len().min(MAX_PAGE_STARTS)];
    let key = pending.set.collection(&pending.company_id)?.key(page_starts_id(pending.generation()))?;
    Ok(Write::Put { key, value: to_json(&stored_starts)?, precondition: Precondition::Any })
}

/// Returns the byte offsets at which the pages of a document's text begin, ascending; none for a document without pages.
pub async fn read_page_starts(
    records: &dyn Records,
    company_id: &CompanyId,
    document: &Document,
) -> Result<Vec<u32>, StoreError> {
    let content = document.content.as_ref();
    let Some(generation) = content.and_then(|content| content.text_generation.as_ref()) else {
        return Ok(Vec::new());
    };
    let set = PieceSet { document_id: document.id.clone(), generation: generation.clone(), pieces: 0 };
    let key = set.collection(company_id)?.key(page_starts_id(generation))?;
    Ok(records.get_as::<Vec<u32>>(&key).await?.map(|record| record.value).unwrap_or_default())
}
