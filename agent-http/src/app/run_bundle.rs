//! `GET /api/runs/{id}/bundle`: a run with its inputs and its log, for `agentd replay`.

use std::convert::Infallible;

use agent_core::request::Principal;
use agent_platform::company_permits::CompanyPermit;
use agent_platform::replay::{BundleError, RunBundle};
use bytes::Bytes;
use futures_util::stream;
use http::StatusCode;
use http::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, HeaderValue};

use super::run_docs::{TAG, object};
use super::services::{hold_while_read, run_blocking};
use super::threads::{OwnConversations, private};
use super::{App, response};
use crate::body::{ResponseBody, streaming};
use crate::endpoint::{Operation, RequestContext, Schemas, string_schema};
use crate::error::{Code, HttpError};
use crate::service::HandlerResult;

/// Size of the pieces in which a bundle is written, in bytes.
const PIECE_BYTES: usize = 64 * 1024;

/// Name and version of this program, as bundles name it.
pub const PROGRAM: &str = concat!("agentd ", env!("CARGO_PKG_VERSION"));

/// Handles `GET /api/runs/{id}/bundle`.
pub(super) async fn get(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let conversations = OwnConversations::open(context.state, &principal)?;
    let key = conversations.run_key(context.params.get("id")?)?;
    let permit = conversations.app.bounds.bundle_downloads.admit(&principal.company_id)?;
    let loaded =
        RunBundle::load(&*conversations.store, &key, conversations.app.conversations.now(), PROGRAM).await?;
    let bundle = loaded.ok_or_else(HttpError::not_found)?.check_ended().map_err(bundle_error)?;
    // It can have tens of megabytes.
    let (text, permit) = run_blocking(permit, move || bundle.to_json()).await?;
    let text = text.map_err(bundle_error)?;
    let mut response = response::json_bytes(StatusCode::OK, Vec::new());
    response.headers_mut().insert(CONTENT_LENGTH, text.len().into());
    *response.body_mut() = bundle_body(text.into(), permit);
    let name = HeaderValue::from_static("attachment; filename=\"run.json\"");
    response.headers_mut().insert(CONTENT_DISPOSITION, name);
    private(Ok(response))
}

/// Returns the body with a bundle. Each piece holds the permit until it is sent, since it keeps the whole text in memory.
fn bundle_body(text: Bytes, permit: CompanyPermit) -> ResponseBody {
    let pieces = stream::unfold(text, |mut rest| async move {
        let piece = rest.split_to(rest.len().min(PIECE_BYTES));
        (!piece.is_empty()).then_some((Ok::<_, Infallible>(piece), rest))
    });
    streaming(hold_while_read(permit, pieces))
}

fn bundle_error(error: BundleError) -> HttpError {
    match error {
        BundleError::NotEnded => HttpError::conflict("the run has not ended"),
        error => HttpError::internal(error),
    }
}

/// Describes `GET /api/runs/{id}/bundle`.
pub(super) fn describe_get(_: &mut Schemas) -> Operation {
    let record = serde_json::json!({"type": "object", "description": "The run and its stored records."});
    let members = serde_json::json!({"format": string_schema(), "sha256": string_schema(), "record": record});
    Operation::new("getRunBundle", TAG, "Returns a run with its inputs and events, for `agentd replay`.")
        .describe("The digest is of the bytes of `record`. Secrets of the role are masked.")
        .json_response(200, "The bundle.", object(&["format", "sha256", "record"], members))
        .problems(&[Code::NotFound, Code::Conflict, Code::RateLimited])
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;
    use crate::app::RequestBounds;

    #[tokio::test]
    async fn a_company_has_two_bundles_until_they_are_written() {
        let bounds = RequestBounds::new(1);
        let admit = |company: &str| bounds.bundle_downloads.admit(&company.into());
        let text = Bytes::from(vec![b'x'; 2 * PIECE_BYTES + 1]);
        let [first, second] =
            [admit("c"), admit("c")].map(|permit| bundle_body(text.clone(), permit.expect("a permit")));
        let mut first = first;
        let piece = first.frame().await.expect("a frame").expect("a piece").into_data().expect("data");
        assert_eq!(piece.len(), PIECE_BYTES);
        assert_eq!(admit("c").expect_err("two are sent").code(), Code::RateLimited);
        assert!(admit("d").is_ok());
        let rest = first.collect().await.expect("the rest").to_bytes();
        assert_eq!(rest.len(), PIECE_BYTES + 1);
        assert!(admit("c").is_err(), "a piece is not sent yet");
        drop(piece);
        let third = admit("c").expect("one has been written");
        drop(second);
        admit("c").expect("the client of another has left");
        drop(third);
        let others: Vec<_> = ["c", "d", "e", "f", "g"]
            .into_iter()
            .flat_map(|company| [admit(company).ok(), admit(company).ok()])
            .collect();
        assert_eq!(others.iter().flatten().count(), 8, "of all companies");
    }
}
