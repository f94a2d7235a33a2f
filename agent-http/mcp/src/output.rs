//! Converts an MCP tool result to the text that a model reads.

use agent_core::tool::ToolOutput;
use rmcp::model::{CallToolResult, ContentBlock, Resource, ResourceContents};

use crate::suspension::read_suspension;

/// Converts a tool result to text, one block per line. Content that is not text is replaced by a description, since
/// models read tool results as text: media and binary resources by type and size, links by URL. Structured content without
/// a text follows as JSON.
pub(crate) fn to_tool_output(result: CallToolResult) -> ToolOutput {
    let has_text = result.content.iter().any(has_text);
    let mut blocks: Vec<String> = result.content.into_iter().map(text_of).collect();
    let structured = result.structured_content;
    if let Some(value) = structured.as_ref().filter(|_| !has_text) {
        blocks.retain(|text| !text.trim().is_empty());
        blocks.push(value.to_string());
    }
    let suspension = result.meta.as_ref().and_then(|meta| read_suspension(&meta.0));
    let is_error = result.is_error.unwrap_or_default();
    ToolOutput { text: blocks.join("\n"), structured, is_error, suspension, ..ToolOutput::default() }
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
}
