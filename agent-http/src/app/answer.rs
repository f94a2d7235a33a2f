//! JSON responses.

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};
use serde::Serialize;

use crate::body::{ResponseBody, full};
use crate::error::HttpError;
use crate::service::HandlerResult;

/// Characters of an id in a path that are percent-encoded: all but the unreserved ones (RFC 3986, section 2.3).
pub(super) const SEGMENT_ESCAPES: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Returns `value` as a JSON response. It is `no-store`, since it belongs to one user.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> HandlerResult {
    Ok(json_bytes(status, serde_json::to_vec(value).map_err(HttpError::internal)?))
}

/// Returns serialized JSON as a response, with the same headers as [`json`].
pub(super) fn json_bytes(status: StatusCode, json: Vec<u8>) -> Response<ResponseBody> {
    let mut response = Response::new(full(json));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
