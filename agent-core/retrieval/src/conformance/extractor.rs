//! Conformance suite for [`Extractor`].

use bytes::Bytes;

use agent_core::conformance::with_timeout;

use crate::extract::{ExtractError, Extractor};

/// Maximum length of an identifier in bytes.
const MAX_ID_BYTES: usize = 512;
/// Number of damaged variants of each sample.
const VARIANTS: usize = 24;

/// A document that the extractor reads.
#[derive(Debug, Clone)]
pub struct ExtractorSample {
    /// Media type of the document.
    pub media_type: String,
    /// The document.
    pub bytes: Bytes,
    /// Words that the text contains.
    pub words: Vec<String>,
}

impl ExtractorSample {
    /// Creates a sample whose text contains `words`.
    pub fn new(media_type: &str, bytes: impl Into<Bytes>, words: &[&str]) -> Self {
        let words = words.iter().copied().map(str::to_owned).collect();
        Self { media_type: media_type.to_owned(), bytes: bytes.into(), words }
    }
}

/// Runs the conformance suite of [`Extractor`] with documents that the extractor reads.
///
/// # Panics
/// If the contract is violated, with a message that describes the violation.
pub async fn extractor(extractor: &dyn Extractor, samples: &[ExtractorSample]) {
    let id = extractor.id();
    assert!(
        !id.is_empty() && id.len() <= MAX_ID_BYTES,
        "an identifier has 1 to {MAX_ID_BYTES} bytes: {id:?}"
    );
    let unknown = ExtractorSample::new("application/x-unheard-of", &b"\0\x01\xfe\xff"[..], &[]);
    assert!(!extractor.supports(&unknown.media_type), "an unknown media type is not supported");
    let unknown = extract(extractor, &unknown, unknown.bytes.clone()).await;
    assert!(
        matches!(unknown, Err(ExtractError::Unsupported(_))),
        "an unknown media type is Unsupported: {unknown:?}"
    );
    for sample in samples {
        let media_type = &sample.media_type;
        assert!(extractor.supports(media_type), "{media_type} is supported");
        let first = extract(extractor, sample, sample.bytes.clone()).await.expect("a sample is read");
        let second = extract(extractor, sample, sample.bytes.clone()).await.expect("a sample is read again");
        assert_eq!(
            first.document.text, second.document.text,
            "{media_type}: equal documents have equal texts"
        );
        for word in &sample.words {
            assert!(first.document.text.contains(word), "{media_type}: the text contains {word:?}");
        }
        check_pages(media_type, &first.document.text, &first.document.page_starts);
        for variant in 0..VARIANTS {
            // Any bytes give a text or an error; a panic ends the suite.
            if let Ok(extraction) = extract(extractor, sample, damaged(&sample.bytes, variant)).await {
                check_pages(media_type, &extraction.document.text, &extraction.document.page_starts);
            }
        }
    }
}

async fn extract(
    extractor: &dyn Extractor,
    sample: &ExtractorSample,
    bytes: Bytes,
) -> Result<crate::extract::ExtractedDocument, ExtractError> {
    with_timeout("the end of an extraction", extractor.extract(&sample.media_type, bytes)).await
}

fn check_pages(media_type: &str, text: &str, page_starts: &[u32]) {
    assert!(page_starts.is_sorted(), "{media_type}: pages begin in order");
    let is_boundary = |start: &u32| text.is_char_boundary(*start as usize);
    assert!(page_starts.iter().all(is_boundary), "{media_type}: pages begin within the text");
}

/// Returns a document that is cut off, or in which some bytes are changed.
fn damaged(bytes: &Bytes, variant: usize) -> Bytes {
    let mut damaged = bytes.to_vec();
    if variant.is_multiple_of(2) {
        damaged.truncate(bytes.len() * variant / VARIANTS);
    } else {
        let step = (bytes.len() / (variant * 3)).max(1);
        damaged.iter_mut().step_by(step).for_each(|byte| *byte ^= 1 << (variant % 8));
    }
    damaged.into()
}
