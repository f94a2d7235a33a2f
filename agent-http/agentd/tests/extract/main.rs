//! Extraction of text by `agentd extract`: results, limits, hostile documents, and processes that misbehave.

mod hostile;
mod mutations;
mod process;

use std::sync::Arc;
use std::time::Duration;

use agent_extract::{ExtractionLimits, MediaType, fixtures};
use agent_retrieval::conformance::ExtractorSample;
use agent_retrieval::extract::{ExtractError, ExtractedDocument, Extractor};
use agentd::config::ExtractionConfig;
use agentd::extract::{DocumentExtractor, ProcessExtractor};

/// The program under test.
const AGENTD: &str = env!("CARGO_BIN_EXE_agentd");

/// Returns an extractor by the program under test.
fn extractor(config: ExtractionConfig) -> Arc<ProcessExtractor> {
    Arc::new(ProcessExtractor::with_program(AGENTD, config))
}

/// Prints a result, which is shown with `--no-capture`.
#[expect(clippy::print_stderr, reason = "the output of a test")]
fn report(line: &str) {
    eprintln!("{line}");
}

async fn extract(
    extractor: &ProcessExtractor,
    media_type: &str,
    bytes: impl Into<Vec<u8>>,
) -> Result<ExtractedDocument, ExtractError> {
    extractor.extract(media_type, bytes.into().into()).await
}

#[tokio::test]
async fn a_process_gives_the_text_that_the_library_gives() {
    let extractor = extractor(ExtractionConfig::default());
    for media_type in MediaType::ALL {
        let bytes = fixtures::document(media_type);
        let expected = agent_extract::extract(media_type, &bytes, &ExtractionLimits::default());
        let extraction = extract(&extractor, media_type.as_str(), bytes).await;
        assert_eq!(format!("{extraction:?}"), format!("{expected:?}"), "{media_type}");
    }
}

#[tokio::test]
async fn the_extractor_conforms() {
    let sample = |media_type: MediaType| {
        let bytes = fixtures::document(media_type);
        let extraction = agent_extract::extract(media_type, &bytes, &ExtractionLimits::default());
        let text = extraction.expect("a fixture is read").document.text;
        let words = text.split_whitespace().take(3).map(str::to_owned).collect();
        ExtractorSample { media_type: media_type.as_str().to_owned(), bytes: bytes.into(), words }
    };
    let samples: Vec<_> = MediaType::ALL.into_iter().map(sample).collect();
    agent_retrieval::conformance::extractor(&*extractor(ExtractionConfig::default()), &samples).await;
}

#[tokio::test]
async fn the_content_decides_and_not_the_declared_type() {
    let extractor = extractor(ExtractionConfig::default());
    let pdf = fixtures::document(MediaType::Pdf);
    for declared in [MediaType::Docx.as_str(), "image/png", "--memory", ""] {
        assert_eq!(extractor.detect(declared, &pdf).as_deref(), Some("application/pdf"));
        let extraction = extract(&extractor, declared, pdf.clone()).await.unwrap();
        assert_eq!((extraction.pages, extraction.document.title.as_str()), (Some(2), fixtures::TITLE));
    }
    let picture = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
    assert_eq!(extractor.detect("text/plain", picture), None);
    let error = extract(&extractor, "text/plain", picture).await.unwrap_err();
    assert_eq!(error, ExtractError::Unsupported("text/plain".to_owned()));
    assert!(extractor.supports("text/html; charset=utf-8") && !extractor.supports("image/png"));
}

#[tokio::test]
async fn damaged_documents_have_their_declared_type_and_are_malformed() {
    let extractor = extractor(ExtractionConfig::default());
    for media_type in [MediaType::Docx, MediaType::Xlsx, MediaType::Pptx, MediaType::Pdf] {
        let name = media_type.as_str();
        // The directory of an archive is at its end, and the objects of a PDF document follow its signature.
        let damaged = fixtures::document(media_type)[..40].to_vec();
        assert_eq!(extractor.detect(name, &damaged).as_deref(), Some(name));
        let error = extract(&extractor, name, damaged).await.unwrap_err();
        assert!(matches!(error, ExtractError::Malformed(_)), "{media_type}: {error:?}");
    }
    let book = fixtures::archive(&[("mimetype".to_owned(), b"application/epub+zip".to_vec())]);
    assert_eq!(extractor.detect(MediaType::Docx.as_str(), &book), None, "another archive");
}

#[tokio::test]
async fn errors_pass_through() {
    let extractor = extractor(ExtractionConfig::default());
    let error = extract(&extractor, "application/pdf", "%PDF-1.7 canary").await.unwrap_err();
    assert_eq!(error, ExtractError::Malformed("not a valid PDF document".to_owned()));
    let mut pdf = fixtures::PdfBuilder::new();
    pdf.image_page();
    pdf.encrypt();
    assert_eq!(
        extract(&extractor, "application/pdf", pdf.build()).await.unwrap_err(),
        ExtractError::Encrypted
    );
    let large = vec![b' '; 65 * 1024 * 1024];
    let error = extract(&extractor, "text/plain", large).await.unwrap_err();
    assert_eq!(error, ExtractError::LimitExceeded("more than 67108864 bytes".to_owned()));
}

#[tokio::test]
async fn only_the_document_that_needs_too_much_memory_fails() {
    let config = ExtractionConfig { memory_bytes: 512 * 1024 * 1024, ..ExtractionConfig::default() };
    let extractor = extractor(config);
    let json = format!("[{}1]", "[{}],".repeat(4_000_000));
    let error = extract(&extractor, "application/json", json).await.unwrap_err();
    assert_eq!(error, ExtractError::LimitExceeded("the memory".to_owned()));
    assert!(extract(&extractor, "application/json", "[1]").await.is_ok());
}

#[tokio::test]
async fn formats_with_a_parser_are_read_in_a_process() {
    let config = ExtractionConfig { memory_bytes: 512 * 1024 * 1024, ..ExtractionConfig::default() };
    let extractor = DocumentExtractor::new(ProcessExtractor::with_program(AGENTD, config));
    let json = format!("[{}1]", "[{}],".repeat(4_000_000));
    let error = extractor.extract("application/json", json.into()).await.unwrap_err();
    assert_eq!(error, ExtractError::LimitExceeded("the memory".to_owned()));
    let no_process = ProcessExtractor::with_program("/nonexistent/agentd", ExtractionConfig::default());
    let extractor = DocumentExtractor::new(no_process);
    for media_type in MediaType::ALL {
        let result = extractor.extract(media_type.as_str(), fixtures::document(media_type).into()).await;
        let has_no_parser = matches!(media_type, MediaType::Plain | MediaType::Markdown);
        assert_eq!(result.is_ok(), has_no_parser, "{media_type}: {result:?}");
    }
}

#[tokio::test]
async fn a_text_beyond_the_output_limit_is_refused() {
    let extractor =
        extractor(ExtractionConfig { timeout: Duration::from_secs(300), ..ExtractionConfig::default() });
    let error = extract(&extractor, "text/plain", "0123456789abcdef".repeat(1_400_000)).await.unwrap_err();
    assert_eq!(error, ExtractError::LimitExceeded("more than 20000000 bytes of text".to_owned()));
    // Each line break is two bytes of the output.
    let error = extract(&extractor, "text/plain", "a\n".repeat(9_000_000)).await.unwrap_err();
    assert_eq!(error, ExtractError::LimitExceeded("an output of 20971520 bytes".to_owned()));
}
