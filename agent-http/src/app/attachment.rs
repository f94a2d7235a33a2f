//! Responses with stored bytes.

use agent_platform::records::StoreError;
use bytes::Bytes;
use futures_util::Stream;
use headers::{ETag, HeaderMapExt, IfNoneMatch};
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, Response, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::body::{empty, streaming};
use crate::error::HttpError;
use crate::service::HandlerResult;

/// Characters of a file name that are percent-encoded: all but the unreserved ones (RFC 8187, `attr-char`).
const FILE_NAME_ESCAPES: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Description of stored bytes that a browser saves and does not show.
pub(super) struct Attachment {
    /// Name under which they are saved.
    pub(super) name: String,
    pub(super) media_type: String,
    pub(super) bytes: u64,
    /// SHA-256 in hexadecimal, which is the entity tag.
    pub(super) sha256: String,
}

impl Attachment {
    /// Returns the response to a `GET`, with `pieces` as its body; 304 if the client has the bytes.
    pub(super) fn response(
        self,
        headers: &HeaderMap,
        pieces: impl Stream<Item = Result<Bytes, StoreError>> + Send + 'static,
    ) -> HandlerResult {
        let Self { name, media_type, bytes, sha256 } = self;
        let tag: ETag = format!("\"{sha256}\"").parse().map_err(HttpError::internal)?;
        let condition = headers.typed_get::<IfNoneMatch>();
        let is_unchanged = condition.is_some_and(|condition| !condition.precondition_passes(&tag));
        let mut response = match is_unchanged {
            true => Response::new(empty()),
            false => Response::new(streaming(pieces)),
        };
        if is_unchanged {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        } else {
            let name = utf8_percent_encode(&name, FILE_NAME_ESCAPES);
            let content_headers = [
                (CONTENT_TYPE, media_type),
                (CONTENT_LENGTH, bytes.to_string()),
                (CONTENT_DISPOSITION, format!("attachment; filename*=UTF-8''{name}")),
                (X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
            ];
            for (name, value) in content_headers {
                let value = HeaderValue::try_from(value).map_err(HttpError::internal)?;
                response.headers_mut().insert(name, value);
            }
        }
        response.headers_mut().typed_insert(tag);
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
        Ok(response)
    }
}
