//! Budgets: who sets them, and runs that they shorten and refuse, in one process and in several.

use agent_platform::usage::BudgetKind;
use reqwest::Response;
use serde_json::{Value, json};

use super::{PRICE_OF_ANSWER, UsageApp, is_whole_millisecond, put_budget};
use crate::support::server::{Server, session_token};
use crate::support::vendor::{answer, tool_calls};
use crate::support::{expect_problem, parse_events, poll_until};

impl UsageApp {
    pub(super) async fn send(&self, user: &str, method: &str, path: &str, body: &Value) -> Response {
        let request = self.app.request(method, path).bearer_auth(session_token(user, "c1"));
        request.json(body).send().await.expect("an answer")
    }

    pub(super) async fn put(&self, path: &str, limits: Value) {
        let response = self.send("boss", "PUT", path, &json!({ "limits": limits })).await;
        assert!(response.status().is_success(), "{}", response.text().await.unwrap_or_default());
    }

    pub(super) async fn ask(&self, app: &Server, user: &str, query: &str) -> Response {
        let body = json!({"agentId": "a1", "message": "Hello", "todoListId": "l1", "store": false});
        app.chat_as(&session_token(user, "c1"), query, &body).await
    }

    /// Waits until nothing is reserved of a budget's first limit, and returns the limit.
    pub(super) async fn settled(&self, path: &str) -> Value {
        let fetch = async || self.get("boss", path).await.1["limits"][0].clone();
        poll_until(fetch, |limit| {
            matches!(limit["reserved"].to_string().trim_matches('"'), "0" | "0.000000000")
        })
        .await
    }
}

#[tokio::test]
async fn admins_manage_budgets_and_the_operator_that_of_the_company() {
    let test = UsageApp::start().await;
    let limits = json!({"limits": [{"unit": "tokens", "amount": 5_000, "window": "day", "warnAt": 0.5}]});
    for path in ["/api/budgets/agent/a1", "/api/budgets/user/ada", "/api/budgets/run/a1", "/api/budgets"] {
        let method = if path == "/api/budgets" { "GET" } else { "PUT" };
        let response = test.send("u1", method, path, &limits).await;
        expect_problem(response, 403, "FORBIDDEN").await;
    }
    let response = test.send("boss", "PUT", "/api/budgets/company/c1", &limits).await;
    expect_problem(response, 403, "FORBIDDEN").await;
    for (method, path) in [("PUT", "/api/budgets/company/c2"), ("GET", "/api/budgets/agent/a1")] {
        expect_problem(test.send("boss", method, path, &limits).await, 404, "NOT_FOUND").await;
    }
    expect_problem(test.send("boss", "GET", "/api/budgets/team/a1", &limits).await, 400, "INVALID_REQUEST")
        .await;
    for path in ["/api/budgets/agent/none", "/api/budgets/run/none"] {
        let window = if path.contains("/run/") { "run" } else { "day" };
        let limits = json!({"limits": [{"unit": "tokens", "amount": 5_000, "window": window}]});
        let response = test.send("boss", "PUT", path, &limits).await;
        let problem = expect_problem(response, 400, "INVALID_REQUEST").await;
        assert_eq!(problem["detail"], "id names no agent of the company", "{path}");
    }
    let path = "/api/budgets/agent/a1";
    let created = test.send("boss", "PUT", path, &limits).await;
    assert_eq!(created.status(), 201);
    let tag = created.headers()["etag"].to_str().expect("text").to_owned();
    let created: Value = created.json().await.expect("JSON");
    let limit = &created["limits"][0];
    assert_eq!((&limit["amount"], &limit["used"], &limit["reserved"]), (&json!(5_000), &json!(0), &json!(0)));
    for limits in [
        json!({}),
        json!({"limits": []}),
        json!({"limits": [{"unit": "cost", "amount": 5, "window": "day"}]}),
        json!({"limits": [{"unit": "cost", "amount": "1e400", "window": "day"}]}),
        json!({"limits": [{"unit": "cost", "amount": "-1", "window": "day"}]}),
        json!({"limits": [{"unit": "tokens", "amount": 5, "window": "run"}]}),
        json!({"limits": [{"unit": "tokens", "amount": 5, "window": "day"}], "currency": "EUR"}),
    ] {
        expect_problem(test.send("boss", "PUT", path, &limits).await, 400, "INVALID_REQUEST").await;
    }
    let request = test.app.request("PUT", path).bearer_auth(session_token("boss", "c1"));
    let response = request.header("If-Match", "\"1000000\"").json(&limits).send().await.expect("an answer");
    expect_problem(response, 412, "PRECONDITION_FAILED").await;
    let (_, list) = test.get("boss", "/api/budgets").await;
    assert_eq!(list["budgets"], json!([created]));
    let request = test.app.request("DELETE", path).bearer_auth(session_token("boss", "c1"));
    let deleted = request.header("If-Match", tag).send().await.expect("an answer");
    assert_eq!(deleted.status(), 204);
    assert_eq!(test.get("boss", path).await.0, 404);
}

#[tokio::test]
async fn a_spent_budget_refuses_runs_with_its_state() {
    let test = UsageApp::start().await;
    test.vendor.on_all(answer(&["Hi."]));
    test.put("/api/budgets/user/ada", json!([{"unit": "cost", "amount": "0.000092", "window": "month"}]))
        .await;
    // Too little for the prompt and the shortest answer.
    let refused = test.ask(&test.app, "ada", "").await;
    assert!(refused.headers().contains_key("retry-after"));
    let problem = expect_problem(refused, 402, "BUDGET_EXCEEDED").await;
    assert_eq!(problem["budget"]["kind"], "user");
    assert_eq!(
        (&problem["budget"]["amount"], &problem["budget"]["window"]),
        (&json!("0.000092000"), &json!("month"))
    );
    assert!(is_whole_millisecond(&problem["budget"]["resetsAt"]), "{problem}");
    assert_eq!(test.vendor.received_bodies("m").len(), 0);
    test.put("/api/budgets/user/ada", json!([{"unit": "cost", "amount": "5", "window": "month"}])).await;
    let run = test.chat("ada", "Hello").await;
    assert_eq!(test.booked(&run, 1).await["cost"], PRICE_OF_ANSWER);
    let limit = test.settled("/api/budgets/user/ada").await;
    assert_eq!((&limit["used"], &limit["amount"]), (&json!(PRICE_OF_ANSWER), &json!("5.000000000")));
    assert!(is_whole_millisecond(&limit["resetsAt"]), "{limit}");
    let (_, limits) = test.get("ada", "/api/limits").await;
    let budget_limit =
        limits["limits"].as_array().expect("limits").iter().find(|limit| limit["policy"] == "budget");
    assert_eq!(budget_limit.expect("the budget")["used"], PRICE_OF_ANSWER);
    // A colleague has no budget.
    test.chat("u1", "Hello").await;
}

#[tokio::test]
async fn the_rest_of_a_budget_limits_the_answer() {
    let test = UsageApp::start().await;
    test.vendor.on_all(answer(&["Hi."]));
    test.put("/api/budgets/agent/a1", json!([{"unit": "tokens", "amount": 2_000, "window": "day"}])).await;
    let response = test.ask(&test.app, "ada", "").await;
    let events = parse_events(&response.text().await.expect("a whole body"));
    let limited = events.iter().find(|event| event["value"]["kind"] == "outputLimited").expect("a notice");
    let tokens = limited["value"]["maxOutputTokens"].as_u64().expect("a number");
    let request_body = test.vendor.received_bodies("m").remove(0);
    assert!((256..2_000).contains(&tokens), "{tokens}");
    assert_eq!(request_body["max_tokens"], tokens, "{request_body}");
}

#[tokio::test]
async fn calls_of_tools_and_runs_have_limits() {
    let test = UsageApp::start().await;
    let calls = tool_calls(&[("c1", "readTodos", "{}"), ("c2", "readTodos", "{}")]);
    test.vendor.on("m", [calls, answer(&["Done."])]);
    test.put("/api/budgets/run/a1", json!([{"unit": "toolCalls", "amount": 1, "window": "run"}])).await;
    test.put("/api/budgets/agent/a1", json!([{"unit": "runs", "amount": 1, "window": "minute"}])).await;
    let response = test.ask(&test.app, "u1", "").await;
    let events = parse_events(&response.text().await.expect("a whole body"));
    let results: Vec<&str> = events.iter().filter_map(|event| event["content"].as_str()).collect();
    let refused = results.iter().filter(|result| result.contains("budget of tool calls is spent")).count();
    assert_eq!((results.len(), refused), (2, 1), "{results:?}");
    let second = test.ask(&test.app, "u1", "").await;
    let problem = expect_problem(second, 429, "RATE_LIMITED").await;
    assert_eq!(problem["budget"]["unit"], "runs");
    let metrics = test.metrics().await;
    for line in [
        "agentd_budget_refusals_total{kind=\"run\",unit=\"toolCalls\"} 1\n",
        "agentd_budget_refusals_total{kind=\"agent\",unit=\"runs\"} 1\n",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
}

#[tokio::test]
async fn an_unpriced_model_is_refused_where_the_cost_is_limited() {
    let test = UsageApp::start_with(&[], |agent, _| {
        agent["children"][0]["content"]["model"] = "unheard-of".into();
    })
    .await;
    test.vendor.on_all(answer(&["Hi."]));
    let limits = json!([{"unit": "cost", "amount": "5", "window": "day"}]);
    let is_told =
        |problem: &Value| problem["detail"].as_str().is_some_and(|detail| detail.contains("unheard-of"));
    // At the save of a budget that no run of the agent could keep.
    let of_runs = json!([{"unit": "cost", "amount": "5", "window": "run"}]);
    for (path, limits) in [("/api/budgets/agent/a1", &limits), ("/api/budgets/run/a1", &of_runs)] {
        let refused = test.send("boss", "PUT", path, &json!({ "limits": limits })).await;
        let problem = expect_problem(refused, 422, "PRICE_UNKNOWN").await;
        assert!(is_told(&problem), "{problem}");
    }
    test.put("/api/budgets/agent/a1", json!([{"unit": "tokens", "amount": 100_000, "window": "day"}])).await;
    assert_eq!(test.ask(&test.app, "ada", "").await.status(), 200, "the cost is not limited");
    // At a run, where the budget is not of an agent.
    test.put("/api/budgets/user/ada", limits.clone()).await;
    let problem = expect_problem(test.ask(&test.app, "ada", "").await, 422, "PRICE_UNKNOWN").await;
    assert!(is_told(&problem), "{problem}");
    // At the save of an agent, if the company limits the cost.
    put_budget(&test.stores, (BudgetKind::Company, "c1"), limits).await;
    let (_, mut agent) = test.get("u1", "/api/agents/a1").await;
    let refused = test.send("u1", "PUT", "/api/agents/a1", &agent).await;
    let problem = expect_problem(refused, 422, "PRICE_UNKNOWN").await;
    assert!(is_told(&problem), "{problem}");
    let previewed = json!({"agentId": "a1", "message": "Hello", "role": agent});
    let preview = test.send("u1", "POST", "/api/agents/a1/preview", &previewed).await;
    let preview: Value = preview.json().await.expect("JSON");
    assert_eq!(preview["attempts"][0]["priced"], false, "{preview}");
    agent["children"][0]["content"]["prices"] = json!({"input": "1", "output": "1"});
    assert_eq!(test.send("u1", "PUT", "/api/agents/a1", &agent).await.status(), 200);
}

#[tokio::test]
async fn a_preview_shows_a_model_without_a_price() {
    let test = UsageApp::start_with(&[], |agent, _| {
        agent["children"][0]["content"]["model"] = "unheard-of".into();
    })
    .await;
    let body = json!({"agentId": "a1", "message": "Hello"});
    let preview = test.send("u1", "POST", "/api/svcchat/previewPrompt", &body).await;
    let preview: Value = preview.json().await.expect("JSON");
    assert_eq!(preview["attempts"][0]["priced"], false, "{preview}");
}
