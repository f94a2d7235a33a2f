//! `GET /api/runs/{id}/bundle`: a run with its inputs and its log, for `agentd replay`.

use agent_core::request::Principal;
use agent_platform::replay::{BundleError, RunBundle};
use http::StatusCode;
use http::header::{CONTENT_DISPOSITION, HeaderValue};
use serde_json::value::RawValue;

use super::run_docs::{TAG, object};
use super::threads::{OwnConversations, private};
use super::{App, answer};
use crate::endpoint::{Operation, RequestContext, Schemas, string_schema};
use crate::error::{Code, HttpError};
use crate::service::HandlerResult;

/// Name and version of this program, as bundles name it.
pub const PROGRAM: &str = concat!("agentd ", env!("CARGO_PKG_VERSION"));

/// Handles `GET /api/runs/{id}/bundle`.
pub(super) async fn get(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let conversations = OwnConversations::open(context.state, &principal)?;
    let key = conversations.run_key(context.params.get("id")?)?;
    let loaded =
        RunBundle::load(&*conversations.store, &key, conversations.app.conversations.now(), PROGRAM).await?;
    let bundle = loaded.ok_or_else(HttpError::not_found)?.check_ended().map_err(bundle_error)?;
    // Serialized off the async threads, since it can have tens of megabytes.
    let text = tokio::task::spawn_blocking(move || bundle.to_json()).await;
    let text = text.map_err(HttpError::internal)?.map_err(bundle_error)?;
    let raw = RawValue::from_string(text).map_err(HttpError::internal)?;
    let mut response = answer::json(StatusCode::OK, &raw)?;
    let name = HeaderValue::from_static("attachment; filename=\"run.json\"");
    response.headers_mut().insert(CONTENT_DISPOSITION, name);
    private(Ok(response))
}

fn bundle_error(error: BundleError) -> HttpError {
    match error {
        BundleError::NotEnded => HttpError::conflict("the run has not ended"),
        error => HttpError::internal(error),
    }
}

/// Describes `GET /api/runs/{id}/bundle`.
pub(super) fn describe_get(_: &mut Schemas) -> Operation {
    let record = serde_json::json!({"type": "object", "description": "The run, and what is kept of it."});
    let members = serde_json::json!({"format": string_schema(), "sha256": string_schema(), "record": record});
    Operation::new("getRunBundle", TAG, "Returns a run with its inputs and events, for `agentd replay`.")
        .describe("The digest is of the bytes of `record`. Secrets of the role are masked.")
        .json_response(200, "The bundle.", object(&["format", "sha256", "record"], members))
        .problems(&[Code::NotFound, Code::Conflict])
}
