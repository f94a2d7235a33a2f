//! Notes in prompts that replace content which is not sent.

use std::borrow::Cow;
use std::sync::Arc;

use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::message::{Content, ContentPart, MediaSource, Message, Role};
use agent_core::model::{ModelInfo, ModelRequest};
use agent_core::payload::Payload;
use agent_core::prompt::{Prompt, PromptMessage};

/// Attachment of a payload that has notes in place of content which the model does not support.
#[derive(Debug, Clone, Copy)]
pub struct ContentNotes;

/// Returns true if a payload has notes in place of content which the model does not support.
pub(crate) fn has_notes(payload: &Payload) -> bool {
    payload.attachment::<ContentNotes>().is_some()
}

/// Returns a note as a part of a prompt.
pub(crate) fn note(text: &str) -> ContentPart {
    ContentPart::Text { text: format!("[{text}]") }
}

/// Public message of the error for media that a model does not support.
const MEDIA_REFUSAL: &str = "this agent's model supports text input only, no images or files";

/// Returns the request with notes in place of media, if the model supports text alone; an owned one has notes.
///
/// # Errors
/// `UnsupportedContent` if the latest user message, which the run answers, has media.
pub fn request_for_model<'a>(
    request: &'a ModelRequest,
    model: &ModelInfo,
) -> Result<Cow<'a, ModelRequest>, AgentError> {
    let is_supported =
        |_: &Message, part: &ContentPart| model.supports_media || matches!(part, ContentPart::Text { .. });
    supported_request(request, MEDIA_REFUSAL, is_supported)
}

/// Returns the request with notes in place of the parts that a model does not support; an owned one has notes. `refusal` is the
/// public message of the error.
///
/// # Errors
/// `UnsupportedContent` if the latest user message, which the run answers, has such a part.
pub fn supported_request<'a>(
    request: &'a ModelRequest,
    refusal: &'static str,
    is_supported: impl Fn(&Message, &ContentPart) -> bool,
) -> Result<Cow<'a, ModelRequest>, AgentError> {
    let has_unsupported = |message: &Message| match &message.content {
        Content::Text(_) => false,
        Content::Parts(parts) => parts.iter().any(|part| !is_supported(message, part)),
    };
    let messages = request.prompt.messages();
    let latest = messages.iter().rfind(|message| message.role() == Role::User);
    if latest.is_some_and(|message| has_unsupported(message.original())) {
        return Err(AgentError::new(AgentErrorKind::UnsupportedContent, refusal));
    }
    let mut originals = messages.iter().map(|message| message.original()).chain(&request.appended_messages);
    if !originals.any(has_unsupported) {
        return Ok(Cow::Borrowed(request));
    }
    let messages = messages.iter().map(|message| match has_unsupported(message.original()) {
        true => PromptMessage::new(with_notes(message.message(), &is_supported)),
        false => Arc::clone(message),
    });
    let prompt = Prompt::new(request.prompt.system_fragments().to_vec(), messages.collect());
    let appended = request.appended_messages.iter().map(|message| with_notes(message, &is_supported));
    Ok(Cow::Owned(ModelRequest {
        prompt: Arc::new(prompt),
        appended_messages: appended.collect(),
        ..request.clone()
    }))
}

/// Returns a message with notes in place of the parts that a model does not support.
fn with_notes(message: &Message, is_supported: &impl Fn(&Message, &ContentPart) -> bool) -> Message {
    let Content::Parts(parts) = &message.content else { return message.clone() };
    let parts = parts.iter().map(|part| match is_supported(message, part) {
        true => part.clone(),
        false => unsupported_note(part),
    });
    // The content is not cloned: it may have megabytes.
    Message {
        id: message.id.clone(),
        role: message.role,
        content: Content::Parts(parts.collect()),
        tool_calls: message.tool_calls.clone(),
        tool_call_id: message.tool_call_id.clone(),
        provider_items: message.provider_items.clone(),
        sent_context: message.sent_context.clone(),
    }
}

fn unsupported_note(part: &ContentPart) -> ContentPart {
    let (kind, source) = match part {
        ContentPart::Text { .. } => return part.clone(),
        ContentPart::Image { source } => ("image", source),
        ContentPart::Audio { source } => ("audio", source),
        ContentPart::Video { source } => ("video", source),
        ContentPart::Document { source } => ("document", source),
    };
    let media_type = match source {
        MediaSource::Data { mime_type, .. } => Some(mime_type),
        MediaSource::Url { mime_type, .. } => mime_type.as_ref(),
    };
    note(&match media_type {
        Some(media_type) => format!("{kind} of type {media_type}, not sent"),
        None => format!("{kind}, not sent"),
    })
}

#[cfg(test)]
mod tests {
    use agent_core::prompt::{Fragment, Part, Stability};
    use agent_core::tool::ToolChoice;

    use super::*;

    fn message(role: Role, part: ContentPart) -> Message {
        let text = ContentPart::Text { text: "Look".into() };
        Message { content: Content::Parts(vec![text, part]), ..Message::text(role, "") }
    }

    fn image() -> ContentPart {
        ContentPart::Image {
            source: MediaSource::Data { value: "QUJD".into(), mime_type: "image/png".into() },
        }
    }

    fn video() -> ContentPart {
        let source = MediaSource::Url { value: "https://example.com/a.mp4".into(), mime_type: None };
        ContentPart::Video { source }
    }

    fn request(messages: Vec<Message>, appended_messages: Vec<Message>) -> ModelRequest {
        let system = Fragment::new("rules", "role", Stability::Role, Part::new("Be brief."));
        let messages = messages.into_iter().map(PromptMessage::new).collect();
        ModelRequest {
            prompt: Arc::new(Prompt::new(vec![system], messages)),
            appended_messages,
            tools: Arc::new([]),
            tool_choice: ToolChoice::Auto,
            thinking: None,
            response_format: None,
        }
    }

    /// Returns the request for a model that supports text and images alone.
    fn for_images(request: &ModelRequest) -> Result<Cow<'_, ModelRequest>, AgentError> {
        supported_request(request, "refused", |_, part| !matches!(part, ContentPart::Video { .. }))
    }

    #[test]
    fn unsupported_parts_of_earlier_messages_become_notes() {
        let history =
            vec![message(Role::User, video()), message(Role::User, image()), Message::user("And now?")];
        let request = request(history, vec![message(Role::Tool, video())]);
        let supported = for_images(&request).expect("the latest message is text");
        assert!(matches!(supported, Cow::Owned(_)));
        let messages = supported.prompt.messages();
        let noted = |role| message(role, note("video, not sent"));
        assert_eq!(messages[0].message(), &noted(Role::User));
        assert_eq!(messages[1].message(), &message(Role::User, image()), "a supported part is sent");
        assert_eq!(messages[2].message(), &Message::user("And now?"));
        assert_eq!(supported.appended_messages, [noted(Role::Tool)]);
        assert_eq!(supported.prompt.system_text(), "Be brief.");
        assert_eq!(
            request.prompt.messages()[0].message(),
            &message(Role::User, video()),
            "a copy has the notes"
        );
    }

    #[test]
    fn unsupported_parts_of_the_latest_user_message_are_refused() {
        let request = request(vec![Message::user("Hi"), message(Role::User, video())], Vec::new());
        let refused = for_images(&request).err().map(|error| error.kind());
        assert_eq!(refused, Some(AgentErrorKind::UnsupportedContent));
    }

    #[test]
    fn a_request_that_is_supported_is_unchanged() {
        let request = request(vec![message(Role::User, image()), Message::user("And now?")], Vec::new());
        assert!(matches!(for_images(&request), Ok(Cow::Borrowed(_))));
    }

    #[test]
    fn notes_name_the_kind_and_the_media_type() {
        assert_eq!(unsupported_note(&image()), note("image of type image/png, not sent"));
        let text = ContentPart::Text { text: "Look".into() };
        assert_eq!(unsupported_note(&text), text);
    }
}
