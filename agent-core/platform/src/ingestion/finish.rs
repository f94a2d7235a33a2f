//! Ends of attempts: the text is stored, the extraction has failed, or it will be repeated.

use std::time::Duration;

use agent_core::ids::CompanyId;
use agent_retrieval::document::TextFormat;
use agent_retrieval::extract::{ExtractError, ExtractedDocument};

use super::IngestionState;
use super::claim::{Claim, document_write, status_write};
use crate::records::{Record, StoreError, Write};
use crate::workspace::{
    ContentFormat, ContentStatus, Document, DocumentContent, MAX_DOCUMENT_BYTES, MAX_TEXT_BYTES,
    MAX_TITLE_BYTES, PendingPieces, discard_pieces, get_document, page_starts_write, stored_head_write,
    text_release_writes, write_text_pieces,
};

/// Maximum number of attempts of a commit while other writers change the document.
const MAX_COMMIT_ATTEMPTS: usize = 32;
/// Maximum number of stored pages without text.
const MAX_OCR_PAGES: usize = 1_000;
/// Maximum size of a stored reason, in bytes.
const MAX_ERROR_BYTES: usize = 1_000;
/// Longest pause before an attempt.
const MAX_BACKOFF: Duration = Duration::from_secs(60);

impl IngestionState {
    /// Stores the pieces of a text that was extracted from an upload, which no document names yet. The text may exceed a limit.
    ///
    /// # Errors
    /// Errors of the store.
    pub(super) async fn write_text(
        &self,
        company_id: &CompanyId,
        (id, content): (&str, &DocumentContent),
        extraction: ExtractedDocument,
    ) -> Result<Result<WrittenText, ExtractError>, StoreError> {
        let text = without_control_characters(extraction.document.text);
        if text.len() > MAX_TEXT_BYTES {
            let fault = format!("its text has {} bytes; the limit is {MAX_TEXT_BYTES}", text.len());
            return Ok(Err(ExtractError::LimitExceeded(fault)));
        }
        let records = &*self.services.records;
        let is_short = text.len() <= MAX_DOCUMENT_BYTES;
        let pieces = write_text_pieces(records, company_id, id, (&text, is_short), self.now()).await?;
        let extracted = StoredText {
            title: title_line(&extraction.document.title),
            content: DocumentContent {
                status: ContentStatus::Ready,
                pages: extraction.pages,
                error: without_text(&text, &extraction.needs_ocr),
                needs_ocr: extraction.needs_ocr.into_iter().take(MAX_OCR_PAGES).collect(),
                text_bytes: Some(text.len() as u64),
                text_format: Some(match extraction.document.format {
                    TextFormat::Plain => ContentFormat::Plain,
                    TextFormat::Markdown => ContentFormat::Markdown,
                }),
                text_generation: Some(pieces.generation().to_owned()),
                extractor: Some(self.services.extractor.id().to_owned()),
                ..content.clone()
            },
            text: if is_short { text } else { String::new() },
            page_starts: extraction.document.page_starts,
        };
        Ok(Ok(WrittenText { pieces, extracted }))
    }

    /// Stores the text of an upload in its document.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the claim was lost or the document was deleted or replaced; errors of the store.
    pub(super) async fn store_text(&self, claim: &Claim, text: WrittenText) -> Result<(), StoreError> {
        let WrittenText { pieces, extracted } = text;
        let stored = self.commit_end(claim, |found| extracted.writes(found, &pieces)).await;
        if stored.is_err() {
            discard_pieces(&*self.services.records, &pieces).await;
        }
        stored
    }

    /// Ends an attempt that failed: the extraction has failed for good, or is repeated later.
    ///
    /// # Errors
    /// Same as [`store_text`](Self::store_text).
    pub(super) async fn end_attempt(&self, claim: &Claim, error: ExtractError) -> Result<(), StoreError> {
        let is_transient = matches!(error, ExtractError::Unavailable(_));
        if !is_transient || claim.task.attempts >= self.limits.attempts {
            return self.fail(claim, &error.to_string()).await;
        }
        tracing::warn!(%error, document = claim.document_id, "an extraction failed; it will be repeated");
        let exponent = claim.task.attempts.saturating_sub(1).min(6);
        let pause = Duration::from_secs(1 << exponent).min(MAX_BACKOFF);
        let mut task = claim.task.clone();
        task.lease = None;
        task.not_before = self.now().saturating_add(pause).ok();
        self.commit_with(claim, |found| {
            let mut writes = vec![claim.task_write(&task)?];
            writes.extend(status_write(found, ContentStatus::Pending)?);
            Ok(writes)
        })
        .await
    }

    /// Ends a task whose extraction has failed.
    ///
    /// # Errors
    /// Same as [`store_text`](Self::store_text).
    pub(super) async fn fail(&self, claim: &Claim, error: &str) -> Result<(), StoreError> {
        let error = error[..error.floor_char_boundary(MAX_ERROR_BYTES)].to_owned();
        self.commit_end(claim, |found| {
            let mut document = found.value.clone();
            if let Some(content) = &mut document.content {
                content.status = ContentStatus::Failed;
                content.error = Some(error.clone());
            }
            Ok(vec![document_write(found, &document)?])
        })
        .await
    }

    /// Commits writes that depend on the document, together with the end of the task.
    async fn commit_end(
        &self,
        claim: &Claim,
        writes: impl Fn(&Record<Document>) -> Result<Vec<Write>, StoreError> + Send + Sync,
    ) -> Result<(), StoreError> {
        self.commit_with(claim, |found| {
            let mut writes = writes(found)?;
            writes.push(claim.end_write());
            Ok(writes)
        })
        .await?;
        (self.services.on_end)(&claim.company_id, &claim.document_id);
        Ok(())
    }

    /// Commits writes that depend on the document. If it changes meanwhile and still has the same upload, they are made
    /// again.
    async fn commit_with(
        &self,
        claim: &Claim,
        writes: impl Fn(&Record<Document>) -> Result<Vec<Write>, StoreError> + Send + Sync,
    ) -> Result<(), StoreError> {
        let records = &*self.services.records;
        let mut attempt = 1;
        loop {
            let found = get_document(records, &claim.company_id, &claim.document_id).await?;
            let is_current =
                |found: &Record<Document>| found.value.generation() == Some(&claim.content.generation);
            let found = found.filter(is_current).ok_or_else(void)?;
            match records.commit(writes(&found)?).await {
                Err(error @ StoreError::Conflict { .. }) => {
                    // The fencing token tells a lost claim from a document that a user has renamed.
                    let task = records.get(&claim.key).await?;
                    let is_held = task.is_some_and(|task| task.version == claim.version);
                    if !is_held || attempt >= MAX_COMMIT_ATTEMPTS {
                        return Err(error);
                    }
                    attempt += 1;
                }
                committed => return committed.map(drop),
            }
        }
    }
}

/// Returns the error of an extraction whose document was deleted or replaced.
fn void() -> StoreError {
    StoreError::Conflict { expected: None, found: None }
}

/// An extracted text whose pieces are stored.
pub(super) struct WrittenText {
    pieces: PendingPieces,
    extracted: StoredText,
}

/// Extracted text with what is stored beside it.
struct StoredText {
    title: String,
    /// The text, if the document's record has it.
    text: String,
    content: DocumentContent,
    page_starts: Vec<u32>,
}

impl StoredText {
    /// Returns the writes that store a document's text and delete the data of an earlier extraction.
    fn writes(&self, found: &Record<Document>, pieces: &PendingPieces) -> Result<Vec<Write>, StoreError> {
        let title = if found.value.title.is_empty() { &self.title } else { &found.value.title };
        let document = Document {
            title: title.clone(),
            text: self.text.clone(),
            content: Some(self.content.clone()),
            ..found.value.clone()
        };
        let mut writes = vec![document_write(found, &document)?, pieces.attach_write()?];
        writes.extend(text_release_writes(&found.value)?);
        if !self.page_starts.is_empty() {
            writes.push(page_starts_write(pieces, &self.page_starts)?);
        }
        writes.extend(stored_head_write(&document)?);
        Ok(writes)
    }
}

/// Returns the reason why a document without text cannot be found; `None` if it has text, or pages that are known
/// to be pictures.
fn without_text(text: &str, needs_ocr: &[u32]) -> Option<String> {
    (text.trim().is_empty() && needs_ocr.is_empty()).then(|| "no text was found in the document".to_owned())
}

/// Replaces control characters other than line breaks and tabs by spaces, so that positions stay, and the text at most
/// doubles in size as JSON.
fn without_control_characters(text: String) -> String {
    let is_unwanted = |byte: u8| byte.is_ascii_control() && !matches!(byte, b'\n' | b'\r' | b'\t');
    if !text.bytes().any(is_unwanted) {
        return text;
    }
    let bytes = text.into_bytes().into_iter().map(|byte| if is_unwanted(byte) { b' ' } else { byte });
    // ASCII characters were replaced by ASCII characters.
    String::from_utf8(bytes.collect()).unwrap_or_default()
}

/// Returns a title as one line of at most [`MAX_TITLE_BYTES`].
fn title_line(title: &str) -> String {
    let line: String = title.chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
    let line = line.trim();
    line[..line.floor_char_boundary(MAX_TITLE_BYTES)].trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_become_spaces_in_place() {
        assert_eq!(without_control_characters("a\0b\x1f\n\t\r\u{7f}é".to_owned()), "a b \n\t\r é");
    }

    #[test]
    fn a_document_without_text_is_reported() {
        assert_eq!(without_text(" \n", &[]).as_deref(), Some("no text was found in the document"));
        assert_eq!(without_text(" \n", &[1]), None);
        assert_eq!(without_text("text", &[]), None);
    }

    #[test]
    fn a_title_is_one_bounded_line() {
        assert_eq!(title_line(" a\nb\0 "), "a b");
        assert_eq!(title_line(&"é".repeat(MAX_TITLE_BYTES)).len(), MAX_TITLE_BYTES);
    }
}
