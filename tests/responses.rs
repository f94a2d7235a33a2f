//! The Responses API as a backend of embedded agents, against a vendor that checks every request.

pub(crate) mod faults;
pub(crate) mod rounds;
mod rows;

use serde_json::{Value, json};

use crate::support::responses_vendor::ResponsesVendor;
use crate::support::server::{self, Server};
use crate::support::{parse_run, workspace};

/// Starts an application with one agent for each model, which is named like its model. `container` is added to the
/// content of their `EmbeddedAI` containers.
async fn app(
    vendor: &ResponsesVendor,
    models: &[&str],
    container: Value,
    settings: &[(&str, &str)],
) -> Server {
    let mut workspace = workspace(&vendor.base_url(), "m");
    let template = workspace["agents"][0].clone();
    let agents = models.iter().map(|model| {
        let mut agent = template.clone();
        agent["id"] = json!(model);
        let content = &mut agent["children"][0]["content"];
        content["provider"] = json!("openai-responses");
        content["model"] = json!(model);
        for (name, value) in container.as_object().into_iter().flatten() {
            content[name] = value.clone();
        }
        agent
    });
    workspace["agents"] = agents.collect();
    server::app(&workspace, settings).await
}

/// Asks an agent, and returns the events of its run.
async fn run(app: &Server, agent: &str) -> Vec<Value> {
    run_with(app, json!({"agentId": agent, "message": "What is left?", "todoListId": "l1"})).await
}

async fn run_with(app: &Server, body: Value) -> Vec<Value> {
    let response = app.chat(&body).await;
    let status = response.status();
    let body = response.text().await.expect("a whole body");
    assert_eq!(status, 200, "{body}");
    parse_run(&body)
}

/// Returns the events of a type.
fn of_type<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}
