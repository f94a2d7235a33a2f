//! Prices that a role sets: where they hold, where they are shown, and where they are refused.

use serde_json::{Value, json};

use super::{PRICE_OF_ANSWER, UsageApp};
use crate::support::server::{self, session_token};
use crate::support::vendor::answer;
use crate::support::{expect_problem, parse_events};

const PREVIEW: &str = "/api/svcchat/previewPrompt";

/// Sets members of the model's container.
fn set_model(agent: &mut Value, members: Value) {
    let content = agent["children"][0]["content"].as_object_mut().expect("a container");
    content.extend(members.as_object().expect("members").clone());
}

/// Without the prices, the model is refused, since nothing knows what it costs.
#[tokio::test]
async fn a_model_with_its_own_key_has_the_price_of_its_role() {
    let prices = json!({"input": "3", "output": "0.5"});
    let test = UsageApp::start_with(&[], |agent, _| {
        set_model(agent, json!({"model": "unheard-of", "prices": prices}));
    })
    .await;
    test.put("/api/budgets/agent/a1", json!([{"unit": "cost", "amount": "5", "window": "day"}])).await;
    test.vendor.on("unheard-of", [answer(&["Done."])]);
    let body = json!({"agentId": "a1", "message": "Hello"});
    let preview = test.send("u1", "POST", PREVIEW, &body).await.json::<Value>().await.expect("JSON");
    let shown = json!({"input": "3", "cachedInput": "3", "cacheWrite": "3", "output": "0.5", "asOf": "role"});
    assert_eq!(preview["attempts"][0]["prices"], shown, "{preview}");
    assert_eq!(preview["attempts"][0]["priced"], true, "{preview}");
    let run = test.chat("u1", "Hello").await;
    let usage = test.booked(&run, 1).await;
    let entry = &usage["entries"][0];
    // 11 tokens at 3 dollars a million, and 7 at half a dollar.
    assert_eq!((&entry["cost"], &entry["priceAsOf"]), (&json!("0.000036500"), &json!("role")), "{usage}");
    // The vendor's own name of the model is booked, and has no price in the catalogue either.
    assert_eq!((&entry["provider"], &entry["model"]), (&json!("openai"), &json!("fake-1")), "{usage}");
    assert_eq!(test.settled("/api/budgets/agent/a1").await["used"], "0.000036500");
}

/// With the operator's key, a price of the role would let the agent spend more than its budgets.
#[tokio::test]
async fn a_call_that_the_operator_pays_has_the_price_of_the_catalogue() {
    let test = UsageApp::start_with(&[], |agent, _| {
        set_model(agent, json!({"apiKey": null, "prices": {"input": "0", "output": "0"}}));
    })
    .await;
    let base_url = test.vendor.base_url();
    let path = test._catalog.path().to_str().expect("UTF-8");
    let settings =
        [("MODEL_CATALOG", path), ("OPENAI_BASE_URL", &*base_url), ("OPENAI_API_KEY", "operator-canary")];
    let app = server::app_with_stores(test.stores.clone(), &settings).await;
    test.vendor.on("m", [answer(&["Done."])]);
    let body = json!({"agentId": "a1", "message": "Hello"});
    let request = app.request("POST", PREVIEW).bearer_auth(session_token("u1", "c1")).json(&body);
    let preview = request.send().await.expect("an answer").json::<Value>().await.expect("JSON");
    assert_eq!(preview["attempts"][0].get("prices"), None, "{preview}");
    assert_eq!(preview["attempts"][0]["priced"], true, "by the catalogue: {preview}");
    let response = test.ask(&app, "u1", "").await;
    let events = parse_events(&response.text().await.expect("a whole body"));
    let usage = test.booked(events[0]["runId"].as_str().expect("a run"), 1).await;
    let entry = &usage["entries"][0];
    assert_eq!(
        (&entry["cost"], &entry["priceAsOf"]),
        (&json!(PRICE_OF_ANSWER), &json!("2026-01-31")),
        "{usage}"
    );
    assert_eq!(test.vendor.received().len(), 1);
}

#[tokio::test]
async fn prices_that_are_none_or_not_the_roles_to_set_are_refused_by_their_paths() {
    let test = UsageApp::start().await;
    for (content, path) in [
        (
            json!({"apiKey": "k", "prices": {"input": "-1", "output": "1"}}),
            "children[0].content.prices.input",
        ),
        (
            json!({"apiKey": "k", "prices": {"input": "1", "output": "1e400"}}),
            "children[0].content.prices.output",
        ),
        (
            json!({"apiKey": "k", "prices": {"input": "1", "output": "1", "x": "1"}}),
            "children[0].content.prices.x",
        ),
        (json!({"prices": {"input": "0", "output": "0"}}), "children[0].content.prices"),
        (
            json!({"apiKey": "k", "fallbacks": [{"prices": {"input": "0", "output": "0"}}]}),
            "children[0].content.fallbacks[0].prices",
        ),
    ] {
        let role = json!({"name": "Own", "children": [{"name": "EmbeddedAI", "content": content}]});
        let problem =
            expect_problem(test.send("u1", "PUT", "/api/agents/own", &role).await, 400, "INVALID_REQUEST")
                .await;
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains(path)), "{path}: {problem}");
    }
    let content = json!({"apiKey": "k", "prices": {"input": "0.25", "cachedInput": "0", "output": "2"}});
    let role = json!({"name": "Own", "children": [{"name": "EmbeddedAI", "content": content}]});
    let saved = test.send("u1", "PUT", "/api/agents/own", &role).await;
    assert_eq!(saved.status(), 201);
    let (_, read) = test.get("u1", "/api/agents/own").await;
    assert_eq!(read["children"][0]["content"]["prices"], content["prices"], "{read}");
}
