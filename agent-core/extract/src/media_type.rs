//! The media types that can be extracted.

use std::fmt;

/// A media type whose text can be extracted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MediaType {
    /// `application/pdf`.
    Pdf,
    /// Word document in Office Open XML.
    Docx,
    /// Excel workbook in Office Open XML.
    Xlsx,
    /// PowerPoint presentation in Office Open XML.
    Pptx,
    /// `text/html`.
    Html,
    /// `text/markdown`.
    Markdown,
    /// `text/plain`.
    Plain,
    /// `text/csv`, with any common separator.
    Csv,
    /// `application/json`, also with an object in each line.
    Json,
}

impl MediaType {
    /// All media types.
    pub const ALL: [Self; 9] = [
        Self::Pdf,
        Self::Docx,
        Self::Xlsx,
        Self::Pptx,
        Self::Html,
        Self::Markdown,
        Self::Plain,
        Self::Csv,
        Self::Json,
    ];

    /// Parses a media type and its usual aliases, ignoring case and parameters.
    pub fn parse(text: &str) -> Option<Self> {
        let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match essence.as_str() {
            "application/x-pdf" => Some(Self::Pdf),
            "application/xhtml+xml" => Some(Self::Html),
            "text/x-markdown" => Some(Self::Markdown),
            "application/csv" | "text/tab-separated-values" => Some(Self::Csv),
            "text/json"
            | "application/x-ndjson"
            | "application/ndjson"
            | "application/jsonl"
            | "application/x-jsonlines" => Some(Self::Json),
            essence => Self::ALL.into_iter().find(|media_type| media_type.as_str() == essence),
        }
    }

    /// Returns the registered name, without parameters.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pdf => "application/pdf",
            Self::Docx => "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
            Self::Xlsx => "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
            Self::Pptx => "application/vnd.openxmlformats-officedocument.presentationml.presentation",
            Self::Html => "text/html",
            Self::Markdown => "text/markdown",
            Self::Plain => "text/plain",
            Self::Csv => "text/csv",
            Self::Json => "application/json",
        }
    }

    /// Returns true if this build of the crate can extract the media type.
    pub fn is_supported(self) -> bool {
        cfg!(feature = "documents") || self.is_text()
    }

    /// Returns true for text formats, which are read without the libraries for documents.
    pub fn is_text(self) -> bool {
        matches!(self, Self::Markdown | Self::Plain | Self::Csv | Self::Json)
    }

    /// Returns true for an Office document, whose container is a zip archive.
    pub(crate) fn is_office(self) -> bool {
        matches!(self, Self::Docx | Self::Xlsx | Self::Pptx)
    }
}

impl fmt::Display for MediaType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed() {
        for media_type in MediaType::ALL {
            assert_eq!(MediaType::parse(media_type.as_str()), Some(media_type));
        }
        for (text, expected) in [
            ("Text/Plain; charset=utf-8", Some(MediaType::Plain)),
            (" text/x-markdown ", Some(MediaType::Markdown)),
            ("application/xhtml+xml", Some(MediaType::Html)),
            ("application/x-ndjson", Some(MediaType::Json)),
            ("image/png", None),
            ("", None),
        ] {
            assert_eq!(MediaType::parse(text), expected, "{text}");
        }
    }
}
