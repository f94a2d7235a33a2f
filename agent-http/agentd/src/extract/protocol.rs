//! Output of `agentd extract`: JSON lines.
//!
//! ```text
//! {"version":1,"title":"Handbook","format":"markdown","pages":2,"pageStarts":[0,812],"needsOcr":[]}
//! {"text":"# Handbook\n…"}
//! {"end":{"textBytes":1304}}
//! ```
//!
//! In place of these lines, an error is the only line: `{"version":1,"error":{"kind":"encrypted","message":""}}`. An
//! incomplete output comes from a process that was killed.

use std::io::{self, Write};

use agent_retrieval::document::{ExtractedText, TextFormat};
use agent_retrieval::extract::{ExtractError, ExtractedDocument};
use serde::{Deserialize, Serialize};

/// Version of the protocol. The program on disk may be a newer one than the process that starts it.
const VERSION: u32 = 1;
/// Maximum length in bytes of the text in one line.
const MAX_PIECE_BYTES: usize = 64 * 1024;

/// A line of the output.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Error { version: u32, error: ErrorLine },
    Head(Head),
    Text { text: String },
    End { end: End },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    version: u32,
    title: String,
    format: Format,
    pages: Option<u32>,
    page_starts: Vec<u32>,
    needs_ocr: Vec<u32>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Format {
    Plain,
    Markdown,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct End {
    text_bytes: usize,
}

#[derive(Debug, Serialize, Deserialize)]
struct ErrorLine {
    kind: ErrorKind,
    message: String,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum ErrorKind {
    Unsupported,
    Malformed,
    Encrypted,
    LimitExceeded,
    Unavailable,
}

/// The output is not complete or not of this protocol's version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ProtocolError {
    #[error("its output is incomplete")]
    Incomplete,
    #[error("its output has an unknown form")]
    Invalid,
}

/// Writes the result of an extraction.
pub(super) fn write(out: &mut impl Write, result: Result<ExtractedDocument, ExtractError>) -> io::Result<()> {
    let ExtractedDocument { document, pages, needs_ocr } = match result {
        Ok(extraction) => extraction,
        Err(error) => return write_line(out, &Line::Error { version: VERSION, error: error_line(error) }),
    };
    let ExtractedText { title, text, format, page_starts } = document;
    let format = match format {
        TextFormat::Plain => Format::Plain,
        TextFormat::Markdown => Format::Markdown,
    };
    write_line(out, &Line::Head(Head { version: VERSION, title, format, pages, page_starts, needs_ocr }))?;
    let mut remaining = text.as_str();
    while !remaining.is_empty() {
        let (piece, after) = remaining.split_at(remaining.floor_char_boundary(MAX_PIECE_BYTES));
        write_line(out, &Line::Text { text: piece.to_owned() })?;
        remaining = after;
    }
    write_line(out, &Line::End { end: End { text_bytes: text.len() } })?;
    out.flush()
}

fn write_line(out: &mut impl Write, line: &Line) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

/// Reads the result of an extraction.
pub(super) fn read(output: &[u8]) -> Result<Result<ExtractedDocument, ExtractError>, ProtocolError> {
    let mut lines = output.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).map(read_line);
    let head = match lines.next().ok_or(ProtocolError::Incomplete)?? {
        Line::Error { version: VERSION, error } => return Ok(Err(extract_error(error))),
        Line::Head(head) if head.version == VERSION => head,
        _ => return Err(ProtocolError::Invalid),
    };
    let mut text = String::new();
    for line in lines {
        match line? {
            Line::Text { text: piece } => text.push_str(&piece),
            Line::End { end } if end.text_bytes == text.len() => return extraction(head, text).map(Ok),
            _ => return Err(ProtocolError::Invalid),
        }
    }
    Err(ProtocolError::Incomplete)
}

fn read_line(line: &[u8]) -> Result<Line, ProtocolError> {
    serde_json::from_slice(line).map_err(|error| match error.classify() {
        serde_json::error::Category::Eof => ProtocolError::Incomplete,
        _ => ProtocolError::Invalid,
    })
}

/// Returns the extraction if its offsets are within the text.
fn extraction(head: Head, text: String) -> Result<ExtractedDocument, ProtocolError> {
    let Head { title, format, pages, page_starts, needs_ocr, .. } = head;
    let are_valid = page_starts.is_sorted()
        && page_starts.iter().all(|&start| text.is_char_boundary(start as usize))
        && pages.unwrap_or_default() as usize == page_starts.len();
    if !are_valid {
        return Err(ProtocolError::Invalid);
    }
    let format = match format {
        Format::Plain => TextFormat::Plain,
        Format::Markdown => TextFormat::Markdown,
    };
    Ok(ExtractedDocument { document: ExtractedText { title, text, format, page_starts }, pages, needs_ocr })
}

fn error_line(error: ExtractError) -> ErrorLine {
    let (kind, message) = match error {
        ExtractError::Unsupported(media_type) => (ErrorKind::Unsupported, media_type),
        ExtractError::Malformed(reason) => (ErrorKind::Malformed, reason),
        ExtractError::Encrypted => (ErrorKind::Encrypted, String::new()),
        ExtractError::LimitExceeded(limit) => (ErrorKind::LimitExceeded, limit),
        ExtractError::Unavailable(reason) => (ErrorKind::Unavailable, reason),
        other => (ErrorKind::Unavailable, other.to_string()),
    };
    ErrorLine { kind, message }
}

fn extract_error(ErrorLine { kind, message }: ErrorLine) -> ExtractError {
    match kind {
        ErrorKind::Unsupported => ExtractError::Unsupported(message),
        ErrorKind::Malformed => ExtractError::Malformed(message),
        ErrorKind::Encrypted => ExtractError::Encrypted,
        ErrorKind::LimitExceeded => ExtractError::LimitExceeded(message),
        ErrorKind::Unavailable => ExtractError::Unavailable(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(result: Result<ExtractedDocument, ExtractError>) -> Vec<u8> {
        let mut output = Vec::new();
        write(&mut output, result).unwrap();
        output
    }

    fn handbook() -> ExtractedDocument {
        let text = format!("# Handbook\n\n\"quoted\" Grüße\n{}", "é".repeat(MAX_PIECE_BYTES));
        let document = ExtractedText {
            title: "Handbook".to_owned(),
            text,
            format: TextFormat::Markdown,
            page_starts: vec![0, 12],
        };
        ExtractedDocument { document, pages: Some(2), needs_ocr: vec![2] }
    }

    #[test]
    fn results_are_read_as_they_were_written() {
        let read_back = read(&written(Ok(handbook()))).unwrap().unwrap();
        assert_eq!(format!("{read_back:?}"), format!("{:?}", handbook()));
        let empty = read(&written(Ok(ExtractedDocument::default()))).unwrap().unwrap();
        assert_eq!(empty.document.text, "");
        for error in [
            ExtractError::Unsupported("image/png".to_owned()),
            ExtractError::Malformed("no page".to_owned()),
            ExtractError::Encrypted,
            ExtractError::LimitExceeded("time".to_owned()),
            ExtractError::Unavailable("no memory".to_owned()),
        ] {
            assert_eq!(read(&written(Err(error.clone()))).unwrap().unwrap_err(), error);
        }
    }

    #[test]
    fn no_part_of_an_output_is_a_result() {
        let output = written(Ok(handbook()));
        for length in [0, 1, 50, 100, 70_000, output.len() - 3] {
            assert_eq!(read(&output[..length]).unwrap_err(), ProtocolError::Incomplete, "{length}");
        }
    }

    #[test]
    fn other_outputs_are_refused() {
        let head = |version: u32, starts: &str| {
            format!(
                "{{\"version\":{version},\"title\":\"\",\"format\":\"plain\",\"pages\":1,\"pageStarts\":{starts},\
                 \"needsOcr\":[]}}\n{{\"text\":\"é\"}}\n{{\"end\":{{\"textBytes\":2}}}}\n"
            )
        };
        assert!(read(head(1, "[2]").as_bytes()).is_ok());
        for output in [
            head(2, "[0]"),
            head(1, "[1]"),
            head(1, "[3]"),
            head(1, "[]"),
            head(1, "[0]").replace("\"textBytes\":2", "\"textBytes\":3"),
            "running 1 test\n".to_owned(),
            "{\"text\":\"\"}\n".to_owned(),
            "{\"version\":2,\"error\":{\"kind\":\"encrypted\",\"message\":\"\"}}".to_owned(),
        ] {
            assert_eq!(read(output.as_bytes()).unwrap_err(), ProtocolError::Invalid, "{output}");
        }
    }
}
