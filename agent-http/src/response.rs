//! JSON responses.

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use serde::Serialize;

use crate::body::{ResponseBody, full};
use crate::error::HttpError;
use crate::service::HandlerResult;

/// Returns `value` as a JSON response. It is `no-store`, since it belongs to one user.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> HandlerResult {
    Ok(json_bytes(status, serde_json::to_vec(value).map_err(HttpError::internal)?))
}

/// Returns serialized JSON as a response, with the same headers as [`json`].
pub(crate) fn json_bytes(status: StatusCode, json: Vec<u8>) -> Response<ResponseBody> {
    let mut response = Response::new(full(json));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
