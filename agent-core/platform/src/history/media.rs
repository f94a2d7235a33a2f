//! Parsing of message content: text, or parts of several media types, in the formats of AG-UI, OpenAI and the AI SDK.

use super::json::{self, ObjectFields, Value};
use super::stored_file::{file_source, id_in_url};
use super::{FieldError, MAX_LIST_ITEMS};
use agent_core::message::{Content, ContentPart, MediaSource, Role};

/// Limit on the address of an image or file, in bytes.
const MAX_URL_BYTES: usize = 8192;
/// Types of parts with text.
const TEXT_TYPES: [&str; 4] = ["text", "input_text", "output_text", "refusal"];

/// Reads `content`: text or a list of parts.
pub(super) fn read(role: Role, value: &Value<'_>) -> Result<Content, FieldError> {
    if let Value::Str(text) = value {
        return Ok(Content::Text(text.to_string()));
    }
    if !value.is_array() {
        return Err(FieldError::new("", "must be text or a list of parts"));
    }
    let list = json::list(value, MAX_LIST_ITEMS)?;
    let mut parts = Vec::with_capacity(list.len());
    for (index, value) in list.iter().enumerate() {
        let part = ObjectFields::from_value(value).and_then(|fields| read_part(role, fields));
        parts.extend(part.map_err(|fault| fault.with_index(index))?);
    }
    Ok(content_from_parts(parts))
}

/// Converts parts to content. Parts without media become plain text, which every model accepts for every role.
pub(super) fn content_from_parts(parts: Vec<ContentPart>) -> Content {
    let content = Content::Parts(parts);
    if content.has_media() { content } else { Content::Text(content.to_text().into_owned()) }
}

/// Reads one part; `None` if its type is unknown, its text is empty, or its media is not from the user: models do not
/// accept images of a model or a tool in assistant or tool messages, so only the user's media are kept.
pub(super) fn read_part(role: Role, part: ObjectFields<'_>) -> Result<Option<ContentPart>, FieldError> {
    let kind = part.required_text("type")?;
    let text = match kind {
        "refusal" => part.required_text("refusal")?,
        kind if TEXT_TYPES.contains(&kind) => part.required_text("text")?,
        _ if role == Role::User => return read_media(kind, part),
        _ => return Ok(None),
    };
    Ok((!text.is_empty()).then(|| ContentPart::Text { text: text.to_owned() }))
}

/// Returns true if a part is of a type that is left out of the messages of a role.
pub(super) fn is_left_out(role: Role, part: ObjectFields<'_>) -> Result<bool, FieldError> {
    let kind = part.required_text("type")?;
    Ok(!TEXT_TYPES.contains(&kind) && read_part(role, part)?.is_none())
}

fn read_media(kind: &str, part: ObjectFields<'_>) -> Result<Option<ContentPart>, FieldError> {
    let part = match kind {
        "image" => ContentPart::Image { source: read_source(part)? },
        "audio" => ContentPart::Audio { source: read_source(part)? },
        "video" => ContentPart::Video { source: read_source(part)? },
        "document" => ContentPart::Document { source: read_source(part)? },
        "binary" => part_for_media_type(read_binary(part)?),
        "image_url" | "input_image" => ContentPart::Image { source: read_image_url(part)? },
        "input_audio" => ContentPart::Audio { source: read_input_audio(part)? },
        "file" if part.has("file") => {
            let file = part.object("file")?;
            let source =
                file.map(|file| read_openai_file(file).map_err(|fault| fault.with_parent_path("file")));
            part_for_media_type(source.unwrap_or_else(|| Err(FieldError::new("file", "is missing")))?)
        }
        "file" => part_for_media_type(read_binary(part)?),
        "input_file" => part_for_media_type(read_openai_file(part)?),
        _ => return Ok(None),
    };
    Ok(Some(part))
}

/// Returns the kind of part that corresponds to the media type.
pub(crate) fn part_for_media_type(source: MediaSource) -> ContentPart {
    let mime_type = match &source {
        MediaSource::Data { mime_type, .. } => mime_type.as_str(),
        MediaSource::Url { mime_type, .. } => mime_type.as_deref().unwrap_or_default(),
    };
    match mime_type.split_once('/').map_or("", |(kind, _)| kind) {
        "image" => ContentPart::Image { source },
        "audio" => ContentPart::Audio { source },
        "video" => ContentPart::Video { source },
        _ => ContentPart::Document { source },
    }
}

/// Reads AG-UI's `source: {type: "data" | "url", value, mimeType}`, or the type `file` with the id of an uploaded file.
fn read_source(part: ObjectFields<'_>) -> Result<MediaSource, FieldError> {
    let under_source = |fault: FieldError| fault.with_parent_path("source");
    let source = part.object("source")?.ok_or_else(|| FieldError::new("source", "is missing"))?;
    let mime_type = mime_type(source).map_err(under_source)?;
    let value = source.required_text("value").map_err(under_source)?;
    match source.required_text("type").map_err(under_source)? {
        "data" => inline_source("value", value, mime_type).map_err(under_source),
        "url" => url_source("value", value, mime_type).map_err(under_source),
        "file" => file_source("value", value).map_err(under_source),
        _ => Err(FieldError::new("source.type", "must be data, url or file")),
    }
}

/// Reads AG-UI's older `binary` and the AI SDK's `file`: inline data or an address, and a media type.
fn read_binary(part: ObjectFields<'_>) -> Result<MediaSource, FieldError> {
    let mime_type = mime_type(part)?;
    match (part.text("data")?, part.text("url")?) {
        (Some(value), _) => inline_source("data", value, mime_type),
        (None, Some(url)) => url_source("url", url, mime_type),
        (None, None) => Err(FieldError::new("url", "or data is required")),
    }
}

/// Reads OpenAI's `image_url`, which is an address or an object that contains one.
fn read_image_url(part: ObjectFields<'_>) -> Result<MediaSource, FieldError> {
    match part.get("image_url") {
        Some(Value::Str(url)) => url_source("image_url", url, None),
        Some(value) => ObjectFields::from_value(value)
            .and_then(|fields| url_source("url", fields.required_text("url")?, None))
            .map_err(|fault| fault.with_parent_path("image_url")),
        None => Err(FieldError::new("image_url", "is missing")),
    }
}

/// Reads OpenAI's `input_audio: {data, format}`.
fn read_input_audio(part: ObjectFields<'_>) -> Result<MediaSource, FieldError> {
    let under_input_audio = |fault: FieldError| fault.with_parent_path("input_audio");
    let audio = part.object("input_audio")?.ok_or_else(|| FieldError::new("input_audio", "is missing"))?;
    let mime_type = match audio.required_text("format").map_err(under_input_audio)? {
        "mp3" => "audio/mpeg",
        "wav" => "audio/wav",
        _ => return Err(FieldError::new("input_audio.format", "must be mp3 or wav")),
    };
    let value = audio.required_text("data").map_err(under_input_audio)?;
    inline_source("data", value, Some(mime_type.to_owned())).map_err(under_input_audio)
}

/// Reads OpenAI's `file_data` or `file_url`. A `file_id` refers to a file stored at one vendor only and is rejected.
fn read_openai_file(file: ObjectFields<'_>) -> Result<MediaSource, FieldError> {
    match (file.text("file_data")?, file.text("file_url")?) {
        (Some(value), _) => inline_source("file_data", value, None),
        (None, Some(url)) => url_source("file_url", url, None),
        (None, None) => Err(FieldError::new("file_data", "is missing")),
    }
}

fn mime_type(fields: ObjectFields<'_>) -> Result<Option<String>, FieldError> {
    let name = fields.first_present_name("mimeType", "mediaType");
    let Some(mime_type) = fields.text(name)?.filter(|text| !text.is_empty()) else { return Ok(None) };
    check_mime_type(mime_type).map_err(|fault| fault.with_parent_path(name))?;
    Ok(Some(mime_type.to_owned()))
}

/// Checks a media type. It becomes part of `data:` addresses, so it must not contain their delimiters.
fn check_mime_type(text: &str) -> Result<(), FieldError> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"/.+-_;=\"! *".contains(&byte);
    if text.len() <= 128 && text.contains('/') && text.bytes().all(fits) {
        Ok(())
    } else {
        Err(FieldError::new("", "must be a media type"))
    }
}

/// Reads inline data: plain Base64 with a separate media type, or a `data:` address with its own.
fn inline_source(name: &str, value: &str, mime_type: Option<String>) -> Result<MediaSource, FieldError> {
    if is_data_url(value) {
        return data_url(value).map_err(|fault| fault.with_parent_path(name));
    }
    let mime_type = mime_type.ok_or_else(|| FieldError::new("mimeType", "is missing"))?;
    check_base64(value).map_err(|fault| fault.with_parent_path(name))?;
    Ok(MediaSource::Data { value: value.to_owned(), mime_type })
}

fn url_source(name: &str, url: &str, mime_type: Option<String>) -> Result<MediaSource, FieldError> {
    if is_data_url(url) {
        return data_url(url).map_err(|fault| fault.with_parent_path(name));
    }
    if let Some(id) = id_in_url(url) {
        return file_source(name, id);
    }
    let web = ["http://", "https://"].iter().any(|scheme| starts_with_ignoring_case(url, scheme));
    if !web {
        return Err(FieldError::new(name, "must be an http, https or data URL"));
    }
    json::check_single_line(url, MAX_URL_BYTES).map_err(|fault| fault.with_parent_path(name))?;
    Ok(MediaSource::Url { value: url.to_owned(), mime_type })
}

fn is_data_url(text: &str) -> bool {
    starts_with_ignoring_case(text, "data:")
}

fn starts_with_ignoring_case(text: &str, prefix: &str) -> bool {
    text.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// Parses a `data:` address (RFC 2397), with Base64 only: `data:image/png;base64,…`.
fn data_url(url: &str) -> Result<MediaSource, FieldError> {
    let wrong = || FieldError::new("", "must be a Base64 data URL with a media type");
    let (head, value) = url["data:".len()..].split_once(',').ok_or_else(wrong)?;
    let mime_type = head.strip_suffix(";base64").ok_or_else(wrong)?;
    check_mime_type(mime_type).map_err(|_| wrong())?;
    check_base64(value)?;
    Ok(MediaSource::Data { value: value.to_owned(), mime_type: mime_type.to_owned() })
}

fn check_base64(text: &str) -> Result<(), FieldError> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=-_".contains(&byte);
    if text.is_empty() || !text.bytes().all(fits) {
        return Err(FieldError::new("", "must be Base64"));
    }
    Ok(())
}
