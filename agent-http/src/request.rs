//! Request parsing: bounded bodies, JSON and query parameters.
//!
//! Invalid input becomes an [`HttpError`](crate::error::HttpError) that names the field and the fault, and never
//! repeats submitted values: a body may contain a secret, and problem responses end up in logs and screenshots.

mod body;
mod json;
mod query;

pub use body::BodyLimits;

pub(crate) use body::{content_type, read_body, read_json_bytes};
pub use json::MAX_JSON_DEPTH;
pub(crate) use json::{parse_json, truncate_chars};
pub(crate) use query::MAX_JOB_PARAMETER_BYTES;
pub use query::Query;
