//! Converts an MCP tool result to the text that a model reads.

use agent_core::tool::ToolOutput;
use agent_platform::exact_json;
use rmcp::model::{CallToolResult, ContentBlock, Resource, ResourceContents};
use serde::Deserialize;
use serde_json::Value;

use crate::suspension::read_suspension;

/// Maximum number of notes about blocks that are not understood; further blocks are counted in the last one.
const MAX_NOTES: usize = 8;
/// Maximum length of a kind of content in a note, in bytes.
const MAX_KIND_BYTES: usize = 64;

/// Converts a tool result to text, one block per line. Content that is not text is replaced by a description, since
/// models read tool results as text: media and binary resources by type and size, links by URL. Structured content without
/// a text follows as JSON.
pub(crate) fn to_tool_output(mut result: CallToolResult) -> ToolOutput {
    let blocks = std::mem::take(&mut result.content);
    let has_text = blocks.iter().any(has_text);
    convert(blocks.into_iter().map(text_of).collect(), has_text, result)
}

/// Converts a tool result with blocks that are not understood, such as those of a later revision. A note stands in their place.
/// Returns `None` for JSON that is not a tool result.
pub(crate) fn to_known_output(mut result: Value) -> Option<ToolOutput> {
    let content = result.get_mut("content").and_then(Value::as_array_mut)?;
    let (mut texts, mut has_any_text, mut unread) = (Vec::new(), false, 0_usize);
    for block in std::mem::take(content) {
        match read_block(&block) {
            Some(block) => {
                has_any_text |= has_text(&block);
                texts.push(text_of(block));
            }
            None => {
                unread += 1;
                texts.extend((unread < MAX_NOTES).then(|| describe_unread(&block)));
            }
        }
    }
    if unread >= MAX_NOTES {
        texts.push(format!("[further blocks of unknown kinds, omitted: {}]", unread + 1 - MAX_NOTES));
    }
    Some(convert(texts, has_any_text, serde_json::from_value(result).ok()?))
}

/// Reads a block. A text is read regardless of other members.
fn read_block(block: &Value) -> Option<ContentBlock> {
    let text = || block["text"].as_str().filter(|_| block["type"] == "text").map(ContentBlock::text);
    ContentBlock::deserialize(block).ok().or_else(text)
}

/// Returns the note for a block that is not understood.
fn describe_unread(block: &Value) -> String {
    let is_plain = |kind: &&str| {
        let is_plain_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte);
        (1..=MAX_KIND_BYTES).contains(&kind.len()) && kind.bytes().all(is_plain_byte)
    };
    match block["type"].as_str().filter(is_plain) {
        Some(kind) => format!("[content of the kind {kind}, which is not understood, omitted]"),
        None => unknown(),
    }
}

/// Combines the texts of the blocks with the other members of a result.
fn convert(mut texts: Vec<String>, has_text: bool, result: CallToolResult) -> ToolOutput {
    let structured = result.structured_content;
    if let Some(value) = structured.as_ref().filter(|_| !has_text) {
        texts.retain(|text| !text.trim().is_empty());
        texts.push(exact_json::write(value));
    }
    let structured = structured.map(exact_json::rounded);
    let suspension = result.meta.as_ref().and_then(|meta| read_suspension(&meta.0));
    let is_error = result.is_error.unwrap_or_default();
    ToolOutput { text: texts.join("\n"), structured, is_error, suspension, ..ToolOutput::default() }
}

/// Returns true if a block has a text of the server.
fn has_text(block: &ContentBlock) -> bool {
    match block {
        ContentBlock::Text(text) => !text.text.trim().is_empty(),
        ContentBlock::Resource(resource) => {
            matches!(&resource.resource, ResourceContents::TextResourceContents { .. })
        }
        _ => false,
    }
}

fn text_of(block: ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text,
        ContentBlock::Image(image) => describe_omitted("image", Some(&image.mime_type), &image.data),
        ContentBlock::Audio(audio) => describe_omitted("audio", Some(&audio.mime_type), &audio.data),
        ContentBlock::Resource(resource) => match resource.resource {
            ResourceContents::TextResourceContents { text, .. } => text,
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                describe_omitted(&format!("resource {uri}"), mime_type.as_deref(), &blob)
            }
            _ => unknown(),
        },
        ContentBlock::ResourceLink(link) => link_to(&link),
        _ => unknown(),
    }
}

fn describe_omitted(what: &str, mime_type: Option<&str>, base64: &str) -> String {
    let bytes = base64.trim_end_matches('=').len() * 3 / 4;
    format!("[{what}, {}, {bytes} bytes, omitted]", mime_type.unwrap_or("of unknown type"))
}

fn link_to(link: &Resource) -> String {
    match &link.description {
        Some(description) => format!("[link to {}: {} ({description})]", link.name, link.uri),
        None => format!("[link to {}: {}]", link.name, link.uri),
    }
}

fn unknown() -> String {
    "[content of an unknown kind, omitted]".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_kind_of_content_becomes_text() {
        let text = |text: &str| json!({"type": "text", "text": text});
        let blob = json!({"type": "resource", "resource": {"uri": "file:///b", "blob": "AAECAw=="}});
        let written = json!({"type": "resource", "resource": {"uri": "file:///t", "text": "written"}});
        let link = json!({"type": "resource_link", "uri": "https://h/x", "name": "x", "description": "an x"});
        let cases = [
            (json!({"content": []}), "", false),
            (json!({"content": [text("a"), text("b")]}), "a\nb", false),
            (json!({"content": [text("no")], "isError": true}), "no", true),
            (json!({"structuredContent": {"n": 1}}), r#"{"n":1}"#, false),
            (json!({"content": [text("one")], "structuredContent": {"n": 1}}), "one", false),
            (json!({"content": [text(" ")], "structuredContent": {"n": 1}}), r#"{"n":1}"#, false),
            (
                json!({"content": [blob, link], "structuredContent": {"n": 1}}),
                "[resource file:///b, of unknown type, 4 bytes, omitted]\n[link to x: https://h/x (an x)]\n{\"n\":1}",
                false,
            ),
            (
                json!({"content": [{"type": "image", "data": "AAEC", "mimeType": "image/png"}]}),
                "[image, image/png, 3 bytes, omitted]",
                false,
            ),
            (
                json!({"content": [text("see"), {"type": "audio", "data": "AA==", "mimeType": "audio/wav"}]}),
                "see\n[audio, audio/wav, 1 bytes, omitted]",
                false,
            ),
            (json!({"content": [blob]}), "[resource file:///b, of unknown type, 4 bytes, omitted]", false),
            (json!({"content": [written]}), "written", false),
            (json!({"content": [link]}), "[link to x: https://h/x (an x)]", false),
        ];
        for (result, expected, is_error) in cases {
            let structured = result.get("structuredContent").cloned();
            let output = to_tool_output(serde_json::from_value(result).unwrap());
            assert_eq!(
                output,
                ToolOutput { text: expected.to_owned(), structured, is_error, ..ToolOutput::default() }
            );
        }
    }
    #[test]
    fn blocks_that_are_not_understood_leave_the_others_readable() {
        let read = |content: Value| {
            to_known_output(json!({"content": content, "isError": true})).expect("a tool result")
        };
        let video = json!({"type": "video", "data": "AAEC", "mimeType": "video/mp4"});
        let annotated = json!({"type": "text", "text": "b", "annotations": {"priority": "high"}});
        let output = read(json!([{"type": "text", "text": "a"}, video, annotated]));
        let expected = "a\n[content of the kind video, which is not understood, omitted]\nb";
        assert_eq!((output.text.as_str(), output.is_error), (expected, true));
        for (block, expected) in [
            (json!({"type": "image"}), "[content of the kind image, which is not understood, omitted]"),
            (json!({"type": "a b"}), "[content of an unknown kind, omitted]"),
            (json!({"type": "x".repeat(65)}), "[content of an unknown kind, omitted]"),
            (json!({"type": 7}), "[content of an unknown kind, omitted]"),
            (json!(null), "[content of an unknown kind, omitted]"),
        ] {
            assert_eq!(read(json!([block])).text, expected);
        }
        let many = read(json!(vec![video.clone(); 1_000])).text;
        assert!(many.ends_with("[further blocks of unknown kinds, omitted: 993]"), "{many}");
        assert_eq!(many.lines().count(), MAX_NOTES);
        // A note is not text, so the structured content follows.
        let structured = json!({"content": [video], "structuredContent": {"n": 1}});
        let text = to_known_output(structured).expect("a tool result").text;
        assert_eq!(text.lines().last(), Some(r#"{"n":1}"#));
        for other in
            [json!({}), json!([]), json!({"content": "a"}), json!({"content": [], "resultType": "task"})]
        {
            assert_eq!(to_known_output(other.clone()), None, "{other}");
        }
    }
}
