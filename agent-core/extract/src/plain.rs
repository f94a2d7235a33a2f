//! Plain text and Markdown.

use agent_retrieval::document::TextFormat;
use agent_retrieval::extract::{ExtractError, ExtractedDocument};

use crate::encoding::decode;
use crate::limits::ExtractionLimits;
use crate::text_builder::TextBuilder;

pub(crate) fn extract_plain(
    bytes: &[u8],
    limits: &ExtractionLimits,
) -> Result<ExtractedDocument, ExtractError> {
    let mut builder = TextBuilder::new(limits);
    builder.push(&decode(bytes))?;
    Ok(builder.finish(None, TextFormat::Plain))
}

/// Extracts a Markdown text unchanged. Its front matter may contain the title.
pub(crate) fn extract_markdown(
    bytes: &[u8],
    limits: &ExtractionLimits,
) -> Result<ExtractedDocument, ExtractError> {
    let text = decode(bytes);
    let mut builder = TextBuilder::new(limits);
    builder.push(&text)?;
    Ok(builder.finish(front_matter_title(&text).as_deref(), TextFormat::Markdown))
}

/// Returns the title in the front matter of a text, in YAML or TOML.
fn front_matter_title(text: &str) -> Option<String> {
    let mut lines = text.lines();
    let (ends, separator) = match lines.next()?.trim_end() {
        "---" => (["---", "..."], ':'),
        "+++" => (["+++"; 2], '='),
        _ => return None,
    };
    let mut lines = lines.take_while(|line| !ends.contains(&line.trim_end()));
    let value = lines
        .find_map(|line| line.strip_prefix("title")?.trim_start().strip_prefix(separator))
        .map(|value| value.trim().trim_matches(['"', '\'']))?;
    if separator == ':' && matches!(value.as_bytes(), [b'>' | b'|'] | [b'>' | b'|', b'-' | b'+']) {
        // The value is in the lines below.
        let below = lines.take_while(|line| line.starts_with(' ')).map(str::trim);
        return Some(below.collect::<Vec<_>>().join(" "));
    }
    Some(value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_keeps_its_text_and_gives_the_title() {
        for (text, title, expected) in [
            ("# Leave\n\n30 days.\r\n", "Leave", "# Leave\n\n30 days."),
            (
                "---\nauthor: Ada\ntitle: \"Leave policy\"\n---\n30 days.",
                "Leave policy",
                "---\nauthor: Ada\ntitle: \"Leave policy\"\n---\n30 days.",
            ),
            ("---\n---\ntitle: no", "", "---\n---\ntitle: no"),
            (
                "---\ntitle: >-\n  Leave\n  policy\nauthor: Ada\n---\n30 days.",
                "Leave policy",
                "---\ntitle: >-\n  Leave\n  policy\nauthor: Ada\n---\n30 days.",
            ),
            (
                "+++\ntitle = 'Leave policy'\n+++\n30 days.",
                "Leave policy",
                "+++\ntitle = 'Leave policy'\n+++\n30 days.",
            ),
            ("30 days.", "", "30 days."),
        ] {
            let document = extract_markdown(text.as_bytes(), &ExtractionLimits::default()).unwrap().document;
            assert_eq!((document.title.as_str(), document.text.as_str()), (title, expected));
            assert_eq!(document.format, TextFormat::Markdown);
        }
    }

    #[test]
    fn plain_text_has_no_headings() {
        let document =
            extract_plain(b"# not a heading\ncaf\xe9", &ExtractionLimits::default()).unwrap().document;
        assert_eq!((document.title.as_str(), document.text.as_str()), ("", "# not a heading\ncafé"));
        assert_eq!(document.format, TextFormat::Plain);
    }
}
