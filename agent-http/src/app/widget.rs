//! The chat widget's files, which any page may load.

use serde_json::json;

use super::App;
use crate::body::full;
use crate::endpoint::{Operation, RequestContext, Schemas, string_schema};
use crate::error::{Code, HttpError};
use crate::service::HandlerResult;

/// Tag of the operations.
const TAG: &str = "widget";

/// Handles `GET /widget.js` and `GET /widget/…`.
pub(super) async fn file(context: RequestContext<App>, (): ()) -> HandlerResult {
    let head = context.head;
    let response = agent_console::widget::respond(head.uri.path(), &head.headers);
    Ok(response.ok_or_else(HttpError::not_found)?.map(full))
}

pub(super) fn describe_loader(_: &mut Schemas) -> Operation {
    describe("getWidget", "Returns the script that adds the chat widget to a page. Absent with `WIDGET=off`.")
}

pub(super) fn describe_module(_: &mut Schemas) -> Operation {
    describe("getWidgetModule", "Returns a module of the chat widget, which never changes under its path.")
}

fn describe(id: &str, summary: &str) -> Operation {
    let script =
        json!({"description": "The script.", "content": {"text/javascript": {"schema": string_schema()}}});
    Operation::new(id, TAG, summary).conditional_read().response(200, script).problems(&[Code::NotFound])
}
