//! `POST /api/svcchat/private`: the chat entry under its older name, for clients that know no other.
//!
//! It is the very same code. What older clients spell otherwise (`chatInput`, `sessionId`) is read at either address,
//! and those that cannot read a stream ask for one object, by `format=json` or by `Accept`.

use http::Request;

use super::{App, chat};
use crate::request::Handled;
use crate::serve::Body;

pub(super) const PATH: &str = "/api/svcchat/private";

pub(super) async fn post(app: &App, request: Request<Body>) -> Handled {
    chat::post(app, request).await
}
