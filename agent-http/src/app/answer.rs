//! An answer that is one JSON object.

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use serde::Serialize;

use crate::error::HttpError;
use crate::request::Handled;
use crate::serve::{ResponseBody, full};

/// Answers with `value`, which nobody in between may keep, for it is one user's own.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Handled {
    Ok(written(status, serde_json::to_vec(value).map_err(HttpError::internal)?))
}

/// The same of an object that has been written.
pub(super) fn written(status: StatusCode, json: Vec<u8>) -> Response<ResponseBody> {
    let mut response = Response::new(full(json));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
