//! `POST /api/svcchat/private`: an alias of the chat endpoint, for older clients.
//!
//! The handler is the same. The older field names (`chatInput`, `sessionId`) are accepted at both paths, and clients
//! that cannot read a stream request a single object with `format=json` or `Accept`.

use http::Request;

use super::{App, chat};
use crate::body::Body;
use crate::service::HandlerResult;

pub(super) const PATH: &str = "/api/svcchat/private";

pub(super) async fn post(app: &App, request: Request<Body>) -> HandlerResult {
    chat::post(app, request).await
}
