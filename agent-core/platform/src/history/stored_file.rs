//! References of messages to files that users have uploaded.
//!
//! A message has the path at which its file is served, so that a client can show it. It stands for the file in every format;
//! AG-UI's source of the type `file` has the file's id alone.

use agent_core::message::MediaSource;

use super::FieldError;
use crate::ids::{FILE_PATH, is_file_id};

/// Returns the id of the file that a source refers to.
pub fn stored_file_id(source: &MediaSource) -> Option<&str> {
    match source {
        MediaSource::Url { value, .. } => id_in_url(value),
        MediaSource::Data { .. } => None,
    }
}

/// Returns the id in a reference; `None` if the address is another one.
pub(super) fn id_in_url(url: &str) -> Option<&str> {
    url.strip_prefix(FILE_PATH).filter(|id| is_file_id(id))
}

/// Reads the id of a file. The media type is that of the file, whatever a client says.
pub(super) fn file_source(name: &str, id: &str) -> Result<MediaSource, FieldError> {
    match is_file_id(id) {
        true => Ok(MediaSource::Url { value: [FILE_PATH, id].concat(), mime_type: None }),
        false => Err(FieldError::new(name, "must be the id of a file")),
    }
}
