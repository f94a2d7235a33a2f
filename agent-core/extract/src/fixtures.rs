//! Small documents of each media type, and mutations of them, for tests and benchmarks.

mod mutate;
mod office;
mod pdf;

pub use mutate::{mutate, mutate_archive};
pub use office::{archive, docx_parts, pptx_parts, xlsx_parts};
pub use pdf::{PdfBuilder, PdfText, deflate};

use crate::MediaType;

/// Title of the documents of [`document`].
pub const TITLE: &str = "Leave policy";

/// Returns a document of a media type about days of leave, with the title [`TITLE`].
pub fn document(media_type: MediaType) -> Vec<u8> {
    match media_type {
        MediaType::Pdf => leave_policy_pdf(),
        MediaType::Docx => archive(&docx_parts()),
        MediaType::Xlsx => archive(&xlsx_parts()),
        MediaType::Pptx => archive(&pptx_parts()),
        MediaType::Html => HTML.as_bytes().to_vec(),
        MediaType::Markdown => MARKDOWN.as_bytes().to_vec(),
        MediaType::Plain => "Leave policy\n\nEmployees have 30 days of leave.\n".as_bytes().to_vec(),
        MediaType::Csv => "Years,Days,Remark\n1,30,\"full, with pay\"\n10,33,\n".as_bytes().to_vec(),
        MediaType::Json => {
            r#"{"title": "Leave policy", "rules": [{"years": 1, "days": 30}, {"years": 10, "days": 33}]}"#
                .into()
        }
    }
}

const HTML: &str = "<!doctype html><html><head><title>Leave policy</title><script>track()</script></head><body>\
    <nav><a href=/>Home</a></nav><h1>Leave policy</h1><p>Employees have <b>30 days</b> of leave.</p>\
    <table><tr><th>Years</th><th>Days</th></tr><tr><td>10</td><td>33</td></tr></table></body></html>";
const MARKDOWN: &str =
    "# Leave policy\n\nEmployees have **30 days** of leave.\n\n| Years | Days |\n|---|---|\n| 10 | 33 |\n";

/// Returns a PDF document of two pages, the second with two columns.
fn leave_policy_pdf() -> Vec<u8> {
    let mut pdf = PdfBuilder::new();
    pdf.title(TITLE);
    pdf.text_page(&[
        PdfText { x: 72, y: 720, size: 24, text: "Leave policy" },
        PdfText { x: 72, y: 680, size: 11, text: "Employees have 30 days of leave in each year." },
        PdfText { x: 72, y: 666, size: 11, text: "After ten years of service they have 33 days." },
    ]);
    let left = [
        "Requests are sent to the",
        "manager two weeks before",
        "the leave begins, and the",
        "manager answers in three",
    ];
    let right = [
        "Days that are not taken",
        "are kept until the end of",
        "March and are then lost",
        "without compensation to",
    ];
    let column = |x, lines: [&'static str; 4]| {
        lines.into_iter().zip(0..).map(move |(text, line)| PdfText { x, y: 700 - 14 * line, size: 11, text })
    };
    let page: Vec<PdfText<'_>> = column(72, left).chain(column(330, right)).collect();
    pdf.text_page(&page);
    pdf.build()
}
