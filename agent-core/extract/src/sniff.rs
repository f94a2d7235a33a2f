//! Detection of media types by content.

mod office;

use serde::de::IgnoredAny;

use self::office::ArchiveKind;
use crate::encoding::{decode, unmarked_utf_16};
use crate::json_lines::is_json_lines;
use crate::media_type::MediaType;

/// Maximum offset of a PDF file's signature, in bytes.
const MAX_PDF_OFFSET: usize = 1024;
/// Number of leading bytes that are examined to distinguish text from other data.
const SAMPLE_BYTES: usize = 64 * 1024;
/// Minimum number of bytes of a text for each control character. A short text may have [`MAX_CONTROLS_OF_SHORT_TEXT`].
const MIN_BYTES_PER_CONTROL: usize = 200;
const MAX_CONTROLS_OF_SHORT_TEXT: usize = 3;
/// Signatures of formats that consist of characters and are not read: Rich Text and PostScript.
const UNREAD_FORMATS: [&[u8]; 2] = [b"{\\rtf", b"%!PS"];

/// Returns the media type of a document by its content, or `None` if it cannot be extracted.
///
/// The declared media type decides only between the kinds of text, which look alike, and between the kinds of damaged Office
/// documents. It need not be a supported type.
pub fn sniff(bytes: &[u8], declared: &str) -> Option<MediaType> {
    let declared = MediaType::parse(declared);
    if bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"PK\x05\x06") {
        // The rest of a damaged archive may not show its kind. Its extraction says that it is damaged.
        return match office::archive_kind(bytes) {
            ArchiveKind::Office(media_type) => Some(media_type),
            ArchiveKind::Damaged => declared.filter(|media_type| media_type.is_office()),
            ArchiveKind::Other => None,
        };
    }
    if is_encrypted_office(bytes) {
        // Its extraction says that it is encrypted.
        return Some(declared.filter(|media_type| media_type.is_office()).unwrap_or(MediaType::Docx));
    }
    if is_pdf(bytes) {
        return Some(MediaType::Pdf);
    }
    let is_unread = UNREAD_FORMATS.iter().any(|signature| bytes.starts_with(signature));
    (!is_unread && is_text(bytes)).then(|| text_type(bytes, declared))
}

fn is_pdf(bytes: &[u8]) -> bool {
    bytes[..bytes.len().min(MAX_PDF_OFFSET)].windows(5).any(|window| window == b"%PDF-")
}

/// Returns true for an OLE container with an encrypted package, which is an Office document with a password.
pub(crate) fn is_encrypted_office(bytes: &[u8]) -> bool {
    let name: Vec<u8> = "EncryptedPackage".encode_utf16().flat_map(u16::to_le_bytes).collect();
    bytes.starts_with(&[0xd0, 0xcf, 0x11, 0xe0]) && memchr::memmem::find(bytes, &name).is_some()
}

fn is_text(bytes: &[u8]) -> bool {
    if encoding_rs::Encoding::for_bom(bytes).is_some() || unmarked_utf_16(bytes).is_some() {
        return true;
    }
    let sample = &bytes[..bytes.len().min(SAMPLE_BYTES)];
    let controls = sample.iter().filter(|&&byte| byte < 0x20 && !b"\t\n\r\x0c\x1b".contains(&byte)).count();
    !sample.contains(&0) && controls <= (sample.len() / MIN_BYTES_PER_CONTROL).max(MAX_CONTROLS_OF_SHORT_TEXT)
}

/// Returns the kind of a text: the kind that the content proves, else the declared one, else plain text.
fn text_type(bytes: &[u8], declared: Option<MediaType>) -> MediaType {
    let text = decode(&bytes[..bytes.len().min(SAMPLE_BYTES)]);
    if is_html_document(&text) {
        return MediaType::Html;
    }
    match declared {
        Some(media_type @ (MediaType::Markdown | MediaType::Csv | MediaType::Html)) => media_type,
        _ if text.trim_start().starts_with(['{', '[']) && is_json(bytes) => MediaType::Json,
        Some(MediaType::Json) if is_json(bytes) => MediaType::Json,
        _ => MediaType::Plain,
    }
}

/// Returns true for a text that begins as only HTML documents do.
fn is_html_document(text: &str) -> bool {
    let mut rest = text.trim_start();
    // Comments and the declaration of XHTML may come first.
    while let Some(after) = skip_part(rest, "<!--", "-->").or_else(|| skip_part(rest, "<?xml", "?>")) {
        rest = after;
    }
    let begins =
        |prefix: &str| rest.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    begins("<!doctype html") || begins("<html") || begins("<head") || begins("<body")
}

/// Returns the text after a leading part from `start` to `end`; `None` if the text has no such part.
fn skip_part<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    let (_, rest) = text.strip_prefix(start)?.split_once(end)?;
    Some(rest.trim_start())
}

fn is_json(bytes: &[u8]) -> bool {
    let text = decode(bytes);
    serde_json::from_str::<IgnoredAny>(&text).is_ok() || is_json_lines(&text)
}

#[cfg(test)]
mod tests;
