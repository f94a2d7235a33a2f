//! Default limits of companies and runs, and budgets that replace them.

use agent_platform::usage::BudgetKind;
use agentd::stores::Stores;
use futures_util::future::join_all;
use reqwest::Response;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{is_whole_millisecond, put_budget};
use crate::support::server::{self, Server, session_token};
use crate::support::vendor::{Step, Vendor, answer, delta, finish, stream_head, tool_calls};
use crate::support::{expect_problem, parse_events, poll_until, workspace};

/// The application with an agent in each of two companies; `boss` is an admin of the first.
struct LimitedApp {
    vendor: Vendor,
    stores: Stores,
    app: Server,
}

impl LimitedApp {
    async fn start(settings: &[(&str, &str)]) -> Self {
        let vendor = Vendor::start().await;
        let mut workspace = workspace(&vendor.base_url(), "m");
        let mut other = workspace["agents"][0].clone();
        (other["id"], other["companyId"], other["ownerId"]) = (json!("a2"), json!("c2"), json!("u2"));
        workspace["agents"].as_array_mut().expect("agents").push(other);
        workspace["users"] = json!([{"id": "u1", "companyId": "c1"}, {"id": "u2", "companyId": "c2"},
            {"id": "boss", "companyId": "c1", "role": "admin"}]);
        let stores = server::stores(&workspace).await;
        let app = server::app_with_stores(stores.clone(), settings).await;
        Self { vendor, stores, app }
    }

    async fn ask(&self, user: &str, company: &str, agent: &str) -> Response {
        let body = json!({"agentId": agent, "message": "Hello", "store": false});
        self.app.chat_as(&session_token(user, company), "", &body).await
    }

    /// Sets the budget of the company `c1`, as the operator does.
    async fn put_company(&self, limits: Value) {
        put_budget(&self.stores, (BudgetKind::Company, "c1"), limits).await;
    }

    /// Returns the default limits that a user of the company `c1` sees.
    async fn shown(&self, user: &str) -> Vec<Value> {
        let request = self.app.request("GET", "/api/limits").bearer_auth(session_token(user, "c1"));
        let body: Value = request.send().await.expect("an answer").json().await.expect("JSON");
        let limits = body["limits"].as_array().expect("limits").clone();
        limits.into_iter().filter(|limit| limit["policy"] == "default").collect()
    }
}

#[tokio::test]
async fn a_company_has_sixty_four_runs_at_once() {
    let test = LimitedApp::start(&[("CONCURRENT_RUNS_COMPANY", "64")]).await;
    let gate = watch::Sender::new(false);
    let mut steps = vec![stream_head(), delta(json!({"content": "Hi."})), Step::Until(gate.subscribe())];
    steps.extend(finish("stop"));
    test.vendor.on_all(steps);
    let answers = join_all((0..65).map(|_| test.ask("u1", "c1", "a1"))).await;
    let (held, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status() == 200);
    assert_eq!((held.len(), refused.len()), (64, 1));
    for refused in refused {
        let headers = refused.headers().clone();
        assert_eq!(headers["retry-after"], "5");
        assert_eq!(headers["ratelimit"], "\"company-concurrent\";r=0;t=5");
        assert_eq!(headers["ratelimit-policy"], "\"company-concurrent\";q=64;qu=\"concurrent-requests\"");
        let problem = expect_problem(refused, 429, "RATE_LIMITED").await;
        assert_eq!(problem["violated-policies"], json!(["company-concurrent"]));
        assert_eq!(problem["budget"]["reserved"], 64, "{problem}");
    }
    let shown = test.shown("boss").await;
    assert_eq!((shown.len(), &shown[0]["kind"], &shown[0]["reserved"]), (1, &json!("company"), &json!(64)));
    assert!(test.shown("u1").await.is_empty(), "the company's limits are for its admins");
    // Another company has a separate limit, and so has a company with a budget.
    assert_eq!(test.ask("u2", "c2", "a2").await.status(), 200);
    test.put_company(json!([{"unit": "concurrentRuns", "amount": 1}])).await;
    assert!(test.shown("boss").await.is_empty(), "the budget replaces it");
    let of_budget = test.ask("u1", "c1", "a1").await;
    assert_eq!(of_budget.status(), 200);
    let problem = expect_problem(test.ask("u1", "c1", "a1").await, 429, "RATE_LIMITED").await;
    assert_eq!((&problem["budget"]["amount"], &problem["budget"]["reserved"]), (&json!(1), &json!(1)));
    gate.send_replace(true);
    for answer in held.into_iter().chain([of_budget]) {
        let events = parse_events(&answer.text().await.expect("a whole body"));
        assert_eq!(events.last().expect("events")["type"], "RUN_FINISHED");
    }
    test.put_company(json!([{"unit": "tokens", "amount": 1_000_000_000, "window": "day"}])).await;
    poll_until(async || test.shown("boss").await, |shown| shown[0]["reserved"] == 0).await;
    assert_eq!(test.ask("u1", "c1", "a1").await.status(), 200, "the runs have ended");
}

#[tokio::test]
async fn a_company_has_so_many_runs_a_minute() {
    let test = LimitedApp::start(&[("RUNS_PER_MINUTE_COMPANY", "4")]).await;
    test.vendor.on_all(answer(&["Hi."]));
    for user in ["u1", "boss", "u1", "boss"] {
        assert_eq!(test.ask(user, "c1", "a1").await.status(), 200, "the users share the limit");
    }
    let refused = test.ask("u1", "c1", "a1").await;
    assert_eq!(refused.headers()["ratelimit-policy"], "\"company-minute\";q=4;w=60");
    let problem = expect_problem(refused, 429, "RATE_LIMITED").await;
    assert_eq!(problem["violated-policies"], json!(["company-minute"]));
    assert!(is_whole_millisecond(&problem["budget"]["resetsAt"]), "{problem}");
    assert_eq!((&problem["budget"]["kind"], &problem["budget"]["amount"]), (&json!("company"), &json!(4)));
    let shown = test.shown("boss").await;
    assert_eq!((&shown[0]["unit"], &shown[0]["used"]), (&json!("runs"), &json!(4)), "{shown:?}");
    assert!(is_whole_millisecond(&shown[0]["resetsAt"]), "{shown:?}");
    assert_eq!(test.ask("u2", "c2", "a2").await.status(), 200, "another company");
    test.put_company(json!([{"unit": "runs", "amount": 1, "window": "minute"}])).await;
    assert_eq!(test.ask("u1", "c1", "a1").await.status(), 200, "the budget replaces it");
    let refused = test.ask("u1", "c1", "a1").await;
    assert_eq!(refused.headers()["ratelimit-policy"], "\"company-minute\";q=1;w=60");
    expect_problem(refused, 429, "RATE_LIMITED").await;
}

/// The client sends its message again: it is not stored, also if it should be.
#[tokio::test]
async fn a_run_whose_first_call_a_budget_refuses_is_none_of_the_runs_a_minute() {
    let test = LimitedApp::start(&[("RUNS_PER_MINUTE_COMPANY", "2")]).await;
    test.vendor.on_all(answer(&["Hi."]));
    let ask = async |is_stored: bool| {
        let body = json!({"agentId": "a1", "message": "Hello", "threadId": "t", "store": is_stored});
        test.app.chat_as(&session_token("u1", "c1"), "", &body).await
    };
    test.put_company(json!([{"unit": "tokens", "amount": 1, "window": "day"}])).await;
    for is_stored in [true, false] {
        expect_problem(ask(is_stored).await, 402, "BUDGET_EXCEEDED").await;
    }
    test.put_company(json!([{"unit": "tokens", "amount": 1_000_000_000, "window": "day"}])).await;
    for is_stored in [false, true] {
        assert_eq!(ask(is_stored).await.status(), 200);
    }
    let problem = expect_problem(ask(false).await, 429, "RATE_LIMITED").await;
    assert_eq!(problem["violated-policies"], json!(["company-minute"]));
}

#[tokio::test]
async fn a_run_has_so_many_tool_calls() {
    let test = LimitedApp::start(&[("TOOL_CALLS_PER_RUN", "2")]).await;
    let calls = [("c1", "readTodos", "{}"), ("c2", "readTodos", "{}"), ("c3", "readTodos", "{}")];
    test.vendor
        .on("m", [tool_calls(&calls), answer(&["Done."]), tool_calls(&calls[..2]), answer(&["Done."])]);
    for expected in [1, 0] {
        let events = parse_events(&test.ask("u1", "c1", "a1").await.text().await.expect("a whole body"));
        assert_eq!(events.last().expect("events")["type"], "RUN_FINISHED");
        let results = events.iter().filter_map(|event| event["content"].as_str());
        let refused = results.filter(|result| result.contains("budget of tool calls is spent")).count();
        assert_eq!(refused, expected, "each run has its own count: {events:?}");
    }
    // The model has seen the error.
    let messages = test.vendor.received_bodies("m")[1]["messages"].to_string();
    assert!(messages.contains("budget of tool calls is spent"), "{messages}");
    let shown = test.shown("u1").await;
    assert_eq!((&shown[0]["kind"], &shown[0]["amount"]), (&json!("run"), &json!(2)), "{shown:?}");
}
