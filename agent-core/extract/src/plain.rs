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
    Ok(builder.finish(front_matter_title(&text), TextFormat::Markdown))
}

/// Returns the title in the YAML front matter of a text.
fn front_matter_title(text: &str) -> Option<&str> {
    let mut lines = text.lines();
    lines.next().filter(|line| line.trim_end() == "---")?;
    let value = lines
        .take_while(|line| !matches!(line.trim_end(), "---" | "..."))
        .find_map(|line| line.strip_prefix("title:"))?;
    Some(value.trim().trim_matches(['"', '\'']))
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
