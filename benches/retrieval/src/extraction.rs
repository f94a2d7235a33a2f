//! Speed of the extraction of text from documents, on one core, in this process.

use std::time::Instant;

use agent_extract::fixtures::{PdfBuilder, PdfText, document};
use agent_extract::{ExtractionLimits, MediaType, extract};
use anyhow::{Context, Result};

use crate::table::Table;

/// Number of pages of the PDF document.
const PAGES: usize = 200;
/// Number of lines of a page, of about ten words each.
const LINES: u32 = 46;
/// Number of extractions. The fastest one counts.
const ROUNDS: usize = 5;
/// Words of the pages.
const WORDS: [&str; 16] = [
    "employees",
    "have",
    "thirty",
    "days",
    "of",
    "leave",
    "in",
    "each",
    "year",
    "and",
    "requests",
    "are",
    "sent",
    "to",
    "the",
    "manager",
];

/// Measures PDF pages per second, and the other formats in documents per second.
pub(crate) fn run(table: &mut Table) -> Result<()> {
    let pdf = pdf();
    let seconds = fastest(MediaType::Pdf, &pdf)?;
    table.at_least("extraction of PDF, one core, pages/s", PAGES as f64 / seconds, 50.0);
    for media_type in MediaType::ALL {
        let bytes = document(media_type);
        let seconds = fastest(media_type, &bytes)?;
        table.figure(&format!("extraction of a small {media_type}, ms"), format!("{:.2}", seconds * 1e3));
    }
    Ok(())
}

/// Returns the seconds of the fastest of several extractions.
fn fastest(media_type: MediaType, bytes: &[u8]) -> Result<f64> {
    let seconds = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        extract(media_type, bytes, &ExtractionLimits::default())?;
        Ok(start.elapsed().as_secs_f64())
    });
    let seconds = seconds.collect::<Result<Vec<f64>>>()?;
    seconds.into_iter().reduce(f64::min).context("there is a round")
}

/// Returns a document whose pages are full of text.
fn pdf() -> Vec<u8> {
    let mut pdf = PdfBuilder::new();
    for page in 0..PAGES {
        let lines: Vec<(u32, String)> = (0..LINES)
            .map(|line| {
                let words =
                    (0..10).map(|word| WORDS[(page * 7 + line as usize * 5 + word * 3) % WORDS.len()]);
                (line, words.collect::<Vec<_>>().join(" "))
            })
            .collect();
        let lines: Vec<PdfText<'_>> =
            lines.iter().map(|(line, text)| PdfText { x: 72, y: 730 - 14 * line, size: 11, text }).collect();
        pdf.text_page(&lines);
    }
    pdf.build()
}
