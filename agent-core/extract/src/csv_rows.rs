//! Files of separated values.

use agent_retrieval::document::TextFormat;
use agent_retrieval::extract::{ExtractError, Extraction};
use csv::{Reader, ReaderBuilder, StringRecord};

use crate::encoding::decode;
use crate::limits::ExtractionLimits;
use crate::rows::push_rows;
use crate::text_builder::TextBuilder;

/// Separators, the most usual first.
const SEPARATORS: [u8; 4] = [b',', b';', b'\t', b'|'];
/// Number of records from which the separator is determined.
const SAMPLE_RECORDS: usize = 10;

pub(crate) fn extract(bytes: &[u8], limits: &ExtractionLimits) -> Result<Extraction, ExtractError> {
    let text = decode(bytes);
    let mut builder = TextBuilder::new(limits);
    let mut reader = reader(&text, separator(&text));
    push_rows(&mut builder, reader.records().map(cells))?;
    Ok(builder.finish(None, TextFormat::Plain))
}

fn reader(text: &str, separator: u8) -> Reader<&[u8]> {
    let mut builder = ReaderBuilder::new();
    builder.has_headers(false).flexible(true).delimiter(separator).from_reader(text.as_bytes())
}

fn cells(record: Result<StringRecord, csv::Error>) -> Result<Vec<String>, ExtractError> {
    let record = record.map_err(|_| ExtractError::Malformed("a record is not valid".to_owned()))?;
    Ok(record.iter().map(str::to_owned).collect())
}

/// Returns the separator that gives most records as many fields as the first one, and at least two.
fn separator(text: &str) -> u8 {
    let score = |separator: u8| {
        let mut reader = reader(text, separator);
        let fields: Vec<usize> =
            reader.records().take(SAMPLE_RECORDS).map_while(Result::ok).map(|record| record.len()).collect();
        let width = fields.first().copied().unwrap_or_default();
        let equal = fields.iter().filter(|&&count| count == width).count();
        if width < 2 { (0, 0) } else { (equal, width) }
    };
    // Of equal scores, `max_by_key` returns the last.
    SEPARATORS.into_iter().rev().max_by_key(|&separator| score(separator)).unwrap_or(SEPARATORS[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(csv: &[u8]) -> String {
        extract(csv, &ExtractionLimits::default()).unwrap().document.text
    }

    #[test]
    fn separators_are_detected() {
        let expected = "Name: Ada, Countess; Born: 1815\nName: Kurt; Born: 1906";
        for csv in [
            "Name,Born\n\"Ada, Countess\",1815\nKurt,1906\n",
            "Name;Born\r\nAda, Countess;1815\r\nKurt;1906",
            "Name\tBorn\nAda, Countess\t1815\nKurt\t1906",
            "\u{feff}Name|Born\nAda, Countess|1815\nKurt|1906",
        ] {
            assert_eq!(text_of(csv.as_bytes()), expected, "{csv}");
        }
    }

    #[test]
    fn broken_files_are_read_as_far_as_they_go() {
        assert_eq!(text_of(b""), "");
        assert_eq!(text_of(b"a,b\n\"1,2\n3"), "a: 1,2 3");
        assert_eq!(text_of(b"a,b\n1\n1,2,3"), "a: 1\na: 1; b: 2; 3");
    }

    #[test]
    fn the_text_is_limited() {
        let limits = ExtractionLimits { max_text_bytes: 100, ..ExtractionLimits::default() };
        let csv = format!("a long name of a column,b\n{}", "1,2\n".repeat(100));
        assert!(matches!(extract(csv.as_bytes(), &limits), Err(ExtractError::LimitExceeded(_))));
    }
}
