//! Files of separated values.

use agent_retrieval::document::TextFormat;
use agent_retrieval::extract::{ExtractError, ExtractedDocument};
use csv::{Reader, ReaderBuilder, StringRecord};

use crate::encoding::decode;
use crate::limits::ExtractionLimits;
use crate::rows::push_rows;
use crate::text_builder::TextBuilder;

/// Separators, the most usual first.
const SEPARATORS: [u8; 4] = [b',', b';', b'\t', b'|'];
/// Number of records from which the separator is determined.
const SAMPLE_RECORDS: usize = 10;

pub(crate) fn extract(bytes: &[u8], limits: &ExtractionLimits) -> Result<ExtractedDocument, ExtractError> {
    let text = decode(bytes);
    let mut builder = TextBuilder::new(limits);
    let (separator, text) = separator(&text);
    let (closed, unclosed) = text.split_at(unclosed_start(text, separator));
    let (mut closed, mut unclosed) = (reader(closed, separator), reader_without_quotes(unclosed, separator));
    push_rows(&mut builder, closed.records().chain(unclosed.records()).map(cells))?;
    Ok(builder.finish(None, TextFormat::Plain))
}

fn reader(text: &str, separator: u8) -> Reader<&[u8]> {
    reader_builder(separator).from_reader(text.as_bytes())
}

fn reader_without_quotes(text: &str, separator: u8) -> Reader<&[u8]> {
    reader_builder(separator).quoting(false).from_reader(text.as_bytes())
}

fn reader_builder(separator: u8) -> ReaderBuilder {
    let mut builder = ReaderBuilder::new();
    builder.has_headers(false).flexible(true).delimiter(separator);
    builder
}

/// Returns the offset of the record with a quotation mark that is not closed, which would take all records behind it for a part of its
/// field; that of the end if there is none.
fn unclosed_start(text: &str, separator: u8) -> usize {
    let mut reader = reader(text, separator);
    let mut record = StringRecord::new();
    let mut start = 0;
    while matches!(reader.read_record(&mut record), Ok(true)) {
        start = record.position().map_or(start, |position| position.byte() as usize);
    }
    let last = text.get(start..).unwrap_or_default();
    let is_closed = last.bytes().filter(|&byte| byte == b'"').count() % 2 == 0;
    if is_closed || !last.trim_end().contains('\n') { text.len() } else { start }
}

fn cells(record: Result<StringRecord, csv::Error>) -> Result<Vec<String>, ExtractError> {
    let record = record.map_err(|_| ExtractError::Malformed("a record is not valid".to_owned()))?;
    Ok(record.iter().map(str::to_owned).collect())
}

/// Returns the separator, and the text behind the line by which some programs declare it (`sep=;`). Without one, it is the separator
/// that gives most records the same number of fields, at least two: the first records may be titles.
fn separator(text: &str) -> (u8, &str) {
    if let Some((separator, records)) = declared_separator(text) {
        return (separator, records);
    }
    let score = |separator: u8| {
        let mut reader = reader(text, separator);
        let fields: Vec<usize> =
            reader.records().take(SAMPLE_RECORDS).map_while(Result::ok).map(|record| record.len()).collect();
        let records_of = |width: usize| fields.iter().filter(|&&count| count == width).count();
        let widths = fields.iter().copied().filter(|&width| width > 1);
        widths.map(|width| (records_of(width), width)).max().unwrap_or_default()
    };
    // Of equal scores, `max_by_key` returns the last.
    let best = SEPARATORS.into_iter().rev().max_by_key(|&separator| score(separator));
    (best.unwrap_or(SEPARATORS[0]), text)
}

/// Returns the separator that the first line declares, and the text behind that line.
fn declared_separator(text: &str) -> Option<(u8, &str)> {
    let (line, records) = text.split_once('\n')?;
    match line.trim_end_matches('\r').trim_matches('"').strip_prefix("sep=")?.as_bytes() {
        [separator] if separator.is_ascii() && !separator.is_ascii_alphanumeric() => {
            Some((*separator, records))
        }
        _ => None,
    }
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
    fn titles_and_declared_separators_are_not_records() {
        let expected = "Name: Ada, Countess; Born: 1815\nName: Kurt; Born: 1906";
        for csv in [
            "sep=;\r\nName;Born\r\nAda, Countess;1815\r\nKurt;1906",
            "sep=^\nName^Born\nAda, Countess^1815\nKurt^1906",
            "\"sep=\t\"\nName\tBorn\nAda, Countess\t1815\nKurt\t1906",
        ] {
            assert_eq!(text_of(csv.as_bytes()), expected, "{csv}");
        }
        for title in ["Mathematicians", "Born in London, or nearly so"] {
            let csv = format!("{title}\nName;Born\nAda, Countess;1815\nKurt;1906");
            assert_eq!(text_of(csv.as_bytes()), format!("{title}\n{expected}"));
        }
        assert_eq!(text_of(b"sep=ab\nx;y"), "sep=ab\nx; y");
    }

    #[test]
    fn damaged_files_are_read_as_far_as_possible() {
        assert_eq!(text_of(b""), "");
        assert_eq!(text_of(b"a,b\n\"1,2"), "a: 1,2");
        assert_eq!(text_of(b"a,b\n\"1,2\n3,4\n5,6"), "a: \"1; b: 2\na: 3; b: 4\na: 5; b: 6");
        assert_eq!(text_of(b"a,b\n\"1\nx\",2\n3\",\"4\n"), "a: 1 x; b: 2\na: 3\"; b: 4");
        assert_eq!(text_of(b"a,b\n1\n1,2,3"), "a: 1\na: 1; b: 2; 3");
    }

    #[test]
    fn the_text_is_limited() {
        let limits = ExtractionLimits { max_text_bytes: 100, ..ExtractionLimits::default() };
        let csv = format!("a long name of a column,b\n{}", "1,2\n".repeat(100));
        assert!(matches!(extract(csv.as_bytes(), &limits), Err(ExtractError::LimitExceeded(_))));
    }
}
