//! What is shown of a turn that is not sent, and the addresses of older clients.

mod legacy;
mod refusals;
mod sent;
mod shown;

use reqwest::RequestBuilder;
use serde_json::{Value, json};

use crate::support::server::{Server, session};
use crate::support::workspace;

const DEBUG: &str = "/api/svcchat/debugPrompt";
const PREVIEW: &str = "/api/svcchat/previewPrompt";

/// A workspace whose agent is answered for by what this container says.
fn answered_by(container: &str, content: &Value) -> Value {
    let mut workspace = workspace("http://unused.example/v1", "m");
    workspace["agents"][0]["children"] = json!([{"name": container, "content": content}]);
    workspace
}

/// A preview for the user `u1` of the company `c1`.
fn preview(app: &Server, query: &str, body: &Value) -> RequestBuilder {
    app.request("POST", &format!("{PREVIEW}{query}")).bearer_auth(session("u1", "c1")).json(body)
}

/// The text of an answer that is one JSON object nobody in between may keep.
async fn text(request: RequestBuilder) -> String {
    let response = request.send().await.expect("an answer");
    let (status, headers) = (response.status(), response.headers().clone());
    let text = response.text().await.expect("a whole body");
    assert_eq!(status, 200, "{text}");
    assert_eq!(headers["content-type"], "application/json");
    assert_eq!(headers["cache-control"], "no-store");
    text
}

/// The same, read.
async fn json_of(request: RequestBuilder) -> Value {
    serde_json::from_str(&text(request).await).expect("JSON")
}
