//! Content parts of OpenAI's Chat Completions.

use std::borrow::Cow;

use serde::{Serialize, Serializer};

use crate::message::{ContentPart, MediaSource};

/// A content part of Chat Completions.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ChatPart<'a> {
    Text { text: Cow<'a, str> },
    ImageUrl { image_url: ImageUrl<'a> },
    InputAudio { input_audio: InputAudio<'a> },
    File { file: File<'a> },
}

#[derive(Serialize)]
pub(super) struct ImageUrl<'a> {
    url: MediaUrl<'a>,
}

#[derive(Serialize)]
pub(super) struct InputAudio<'a> {
    data: &'a str,
    format: &'static str,
}

#[derive(Serialize)]
pub(super) struct File<'a> {
    filename: &'static str,
    file_data: MediaUrl<'a>,
}

impl<'a> ChatPart<'a> {
    /// Converts the part, or returns `None` if Chat Completions cannot represent it.
    pub(super) fn from_part(part: &'a ContentPart) -> Option<Self> {
        match part {
            ContentPart::Text { text } => Some(Self::Text { text: text.as_str().into() }),
            ContentPart::Image { source } => {
                Some(Self::ImageUrl { image_url: ImageUrl { url: MediaUrl(source) } })
            }
            ContentPart::Audio { source: MediaSource::Data { value, mime_type } } => {
                let format = match mime_type.as_str() {
                    "audio/wav" | "audio/x-wav" | "audio/wave" => "wav",
                    "audio/mpeg" | "audio/mp3" => "mp3",
                    _ => return None,
                };
                Some(Self::InputAudio { input_audio: InputAudio { data: value, format } })
            }
            ContentPart::Document { source: source @ MediaSource::Data { mime_type, .. } } => {
                let file = File { filename: file_name(mime_type), file_data: MediaUrl(source) };
                Some(Self::File { file })
            }
            _ => None,
        }
    }

    /// Returns a text note in place of a part that cannot be represented.
    pub(super) fn placeholder(part: &ContentPart) -> Self {
        Self::Text { text: media_placeholder(part).into() }
    }
}

/// Returns a text note in place of a part that the dialect cannot represent. It never contains the media bytes.
fn media_placeholder(part: &ContentPart) -> String {
    let (kind, source) = match part {
        ContentPart::Text { text } => return text.clone(),
        ContentPart::Image { source } => ("image", source),
        ContentPart::Audio { source } => ("audio", source),
        ContentPart::Video { source } => ("video", source),
        ContentPart::Document { source } => ("document", source),
    };
    match source {
        MediaSource::Data { mime_type, .. } => format!("[{kind} of type {mime_type}, not shown]"),
        MediaSource::Url { value, .. } => format!("[{kind} at {value}]"),
    }
}

/// Returns a file name for the media type: Chat Completions requires one and reads the type from its extension.
fn file_name(mime_type: &str) -> &'static str {
    match mime_type {
        "application/pdf" => "document.pdf",
        "text/plain" => "document.txt",
        "text/markdown" => "document.md",
        "text/csv" => "document.csv",
        "text/html" => "document.html",
        "application/json" => "document.json",
        _ => "document",
    }
}

/// A media source as one URL: its own, or a `data:` URL (RFC 2397) serialized without a copy.
pub(super) struct MediaUrl<'a>(&'a MediaSource);

impl Serialize for MediaUrl<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            MediaSource::Data { value, mime_type } => {
                serializer.collect_str(&format_args!("data:{mime_type};base64,{value}"))
            }
            MediaSource::Url { value, .. } => serializer.serialize_str(value),
        }
    }
}
