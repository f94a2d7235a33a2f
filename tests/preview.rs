//! Prompt preview routes, and the endpoints of older clients.

mod legacy;
mod refusals;
mod sent;
mod shown;
mod unsaved;

use reqwest::RequestBuilder;
use serde_json::{Value, json};

use crate::support::server::{Server, session_token};
use crate::support::workspace;

const DEBUG: &str = "/api/svcchat/debugPrompt";
const PREVIEW: &str = "/api/svcchat/previewPrompt";

/// Returns a workspace whose agent has one container with this content.
fn workspace_with_container(container: &str, content: &Value) -> Value {
    let mut workspace = workspace("http://unused.example/v1", "m");
    workspace["agents"][0]["children"] = json!([{"name": container, "content": content}]);
    workspace
}

/// Builds a preview request of user `u1` of company `c1`.
fn preview(app: &Server, query: &str, body: &Value) -> RequestBuilder {
    app.request("POST", &format!("{PREVIEW}{query}")).bearer_auth(session_token("u1", "c1")).json(body)
}

/// Returns the body of a successful response; checks that it is JSON that must not be cached.
async fn text(request: RequestBuilder) -> String {
    let response = request.send().await.expect("an answer");
    let (status, headers) = (response.status(), response.headers().clone());
    let text = response.text().await.expect("a whole body");
    assert_eq!(status, 200, "{text}");
    assert_eq!(headers["content-type"], "application/json");
    assert_eq!(headers["cache-control"], "no-store");
    text
}

/// Returns the parsed body of a successful response, checked as by [`text`].
async fn json_of(request: RequestBuilder) -> Value {
    serde_json::from_str(&text(request).await).expect("JSON")
}
