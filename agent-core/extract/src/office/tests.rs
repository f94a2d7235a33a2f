//! Office documents with hidden content, and with content that XML readers misread.

use super::*;
use crate::fixtures::{archive, docx_parts};

mod documents;
mod slides;
mod workbooks;

type Parts = Vec<(String, Vec<u8>)>;

const WORD: &str = "http://schemas.openxmlformats.org/wordprocessingml/2006/main";

const SHEET: &str = "http://schemas.openxmlformats.org/spreadsheetml/2006/main";

const DRAWING: &str = "http://schemas.openxmlformats.org/drawingml/2006/main";

const SLIDES: &str = "http://schemas.openxmlformats.org/presentationml/2006/main";

fn put(parts: &mut Parts, name: &str, xml: &str) {
    match parts.iter_mut().find(|part| part.0 == name) {
        Some(part) => part.1 = xml.into(),
        None => parts.push((name.to_owned(), xml.into())),
    }
}

fn edit(parts: &mut [(String, Vec<u8>)], name: &str, from: &str, to: &str) {
    let part = parts.iter_mut().find(|part| part.0 == name).expect("the part exists");
    let xml = String::from_utf8(part.1.clone()).expect("UTF-8");
    assert!(xml.contains(from), "{from}");
    part.1 = xml.replacen(from, to, 1).into_bytes();
}

fn extracted(media_type: MediaType, parts: &[(String, Vec<u8>)]) -> ExtractedDocument {
    extract(media_type, &archive(parts), &ExtractionLimits::default()).unwrap()
}

/// Returns the text of a Word document by its body.
fn word_text(body: &str) -> String {
    word_text_beside(&[], body)
}

/// Returns the text of a Word document with further parts by its body.
fn word_text_beside(further_parts: &[(&str, &str)], body: &str) -> String {
    let mut parts = docx_parts();
    further_parts.iter().for_each(|(name, xml)| put(&mut parts, name, xml));
    let document = format!("<w:document xmlns:w=\"{WORD}\"><w:body>{body}</w:body></w:document>");
    put(&mut parts, "word/document.xml", &document);
    let styles = "<w:style w:type=\"character\" w:styleId=\"Secret\"><w:rPr><w:vanish/></w:rPr></w:style>\
        <w:style w:type=\"character\" w:styleId=\"Base\"><w:basedOn w:val=\"Secret\"/></w:style>\
        <w:style w:type=\"table\" w:styleId=\"Dark\"><w:tblStylePr w:type=\"firstRow\"><w:tcPr>\
        <w:shd w:val=\"clear\" w:fill=\"000000\"/></w:tcPr></w:tblStylePr></w:style></w:styles>";
    edit(&mut parts, "word/styles.xml", "</w:styles>", styles);
    extracted(MediaType::Docx, &parts).document.text
}

fn run(properties: &str, text: &str) -> String {
    format!("<w:r><w:rPr>{properties}</w:rPr><w:t>{text}</w:t></w:r>")
}
