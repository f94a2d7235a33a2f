//! Usage: booking of runs, access to the usage, and its metrics.

mod budgets;
mod default_limits;
mod disconnects;
mod hostile;
mod kill;
mod prices;
mod zones;

use std::sync::Arc;

use agent_core::clock::SystemClock;
use agent_platform::records::Precondition;
use agent_platform::usage::{Budget, BudgetKind, BudgetOptions, Budgets, MAX_RUN_ENTRIES, UsageEntry};
use agent_platform::workspace::utc_time;
use agentd::stores::Stores;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::support::log::LogBuffer;
use crate::support::server::{self, Server, session_token};
use crate::support::vendor::{Step, Vendor, answer, delta, json_response, stream_head, tool_calls};
use crate::support::{client, expect_problem, parse_events, poll_until, read_until, workspace};

const CATALOG: &str = r#"{"asOf":"2026-01-31","models":[
    {"provider":"openai","model":"m","prices":{"input":"2","output":"10"}}]}"#;

/// Price of an answer of the vendor, which reports 11 and 7 tokens.
const PRICE_OF_ANSWER: &str = "0.000092000";

/// The application with priced models; `u1` owns the agent `a1`, `ada` is a colleague, `boss` an admin.
struct UsageApp {
    vendor: Vendor,
    stores: Stores,
    app: Server,
    _catalog: tempfile::NamedTempFile,
}

impl UsageApp {
    async fn start() -> Self {
        Self::start_with(&[], |_, _| {}).await
    }

    async fn start_with(settings: &[(&str, &str)], change: impl FnOnce(&mut Value, &Vendor)) -> Self {
        let vendor = Vendor::start().await;
        let mut workspace = workspace(&vendor.base_url(), "m");
        workspace["users"] = json!([
            {"id": "u1", "companyId": "c1"},
            {"id": "ada", "companyId": "c1"},
            {"id": "boss", "companyId": "c1", "role": "admin"},
            {"id": "boss", "companyId": "c2", "role": "admin"},
        ]);
        change(&mut workspace["agents"][0], &vendor);
        let catalog = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(catalog.path(), CATALOG).expect("written");
        let path = catalog.path().to_str().expect("UTF-8").to_owned();
        let settings = [&[("MODEL_CATALOG", path.as_str())], settings].concat();
        let stores = server::stores(&workspace).await;
        let app = server::app_with_stores(stores.clone(), &settings).await;
        Self { vendor, stores, app, _catalog: catalog }
    }

    /// Runs a turn of a user and returns the run's id.
    async fn chat(&self, user: &str, message: &str) -> String {
        let body = json!({"agentId": "a1", "message": message, "todoListId": "l1", "store": false});
        let response = self.app.chat_as(&session_token(user, "c1"), "", &body).await;
        let events = parse_events(&response.text().await.expect("a whole body"));
        events[0]["runId"].as_str().expect("a run").to_owned()
    }

    async fn get(&self, user: &str, path: &str) -> (u16, Value) {
        let request = self.app.request("GET", path).bearer_auth(session_token(user, "c1"));
        let response = request.send().await.expect("an answer");
        (response.status().as_u16(), response.json().await.unwrap_or_default())
    }

    /// Waits until a run has this number of booked calls.
    async fn booked(&self, run: &str, calls: usize) -> Value {
        let path = format!("/api/usage/runs/{run}");
        let fetch = async || self.get("boss", &path).await.1;
        poll_until(fetch, |usage| usage["entries"].as_array().is_some_and(|found| found.len() == calls)).await
    }

    /// Returns the rows of a query of usage.
    async fn rows(&self, user: &str, query: &str) -> Vec<Value> {
        let (status, body) = self.get(user, &format!("/api/usage?{query}")).await;
        assert_eq!(status, 200, "{query}: {body}");
        assert_eq!((&body["currency"], &body["nextCursor"]), (&json!("USD"), &Value::Null));
        body["rows"].as_array().expect("rows").clone()
    }

    async fn metrics(&self) -> String {
        let response = self.app.request("GET", "/metrics").send().await.expect("an answer");
        response.text().await.expect("text")
    }
}

/// Returns the budgets of a store, to set budgets as the operator.
fn budgets(stores: &Stores) -> Budgets {
    let (records, usage) = (stores.records.clone(), stores.usage.clone());
    let spawner = Arc::new(|task| drop(tokio::spawn(task)));
    Budgets::new(records, usage, Arc::new(SystemClock), spawner, BudgetOptions::default())
}

/// Sets the budget of a subject of the company `c1` in a store.
pub(crate) async fn put_budget(stores: &Stores, subject: (BudgetKind, &str), limits: Value) {
    let body = json!({ "limits": limits });
    let budget = Budget::read(subject.0, body.as_object().expect("an object")).expect("valid");
    budgets(stores).put(&"c1".into(), subject, &budget, Precondition::Any).await.expect("written");
}

#[tokio::test]
async fn a_run_is_booked_with_its_tools_and_its_price() {
    let test = UsageApp::start().await;
    let call = [("c1", "createTodo", r#"{"title":"Weed"}"#), ("c2", "nonsense", "{}")];
    test.vendor.on("m", [tool_calls(&call), answer(&["Done."])]);
    let run = test.chat("u1", "Remind me").await;
    let fetch = async || test.booked(&run, 2).await;
    // Tool calls are booked at the end of the run.
    let usage = poll_until(fetch, |usage| usage["toolCalls"] == 1).await;
    let expected = json!({"currency": "USD", "runId": run, "agentId": "a1", "userId": "u1", "caller": "session",
        "calls": 2, "inputTokens": 22, "cachedInputTokens": 0, "cacheWriteTokens": 0, "outputTokens": 14,
        "reasoningTokens": 0, "toolCalls": 1, "cost": "0.000184000", "estimatedCost": "0.000000000",
        "unpricedCalls": 0});
    for (name, value) in expected.as_object().expect("an object") {
        assert_eq!(&usage[name], value, "{name}: {usage}");
    }
    let entries: Vec<_> = usage["entries"]
        .as_array()
        .expect("calls")
        .iter()
        .map(|call| {
            assert!(is_whole_millisecond(&call["endedAt"]) && call["estimated"] == false, "{call}");
            [
                &call["round"],
                &call["attempt"],
                &call["model"],
                &call["cost"],
                &call["priceAsOf"],
                &call["outcome"],
            ]
            .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
            .join(" ")
        })
        .collect();
    let expected = [1, 2].map(|round| format!("{round} 1 m {PRICE_OF_ANSWER} 2026-01-31 ok"));
    assert_eq!(entries, expected);
    let metrics = test.metrics().await;
    for line in [
        "agentd_model_attempts_total{provider=\"openai\",model=\"m\",outcome=\"ok\"} 2\n",
        "agentd_tokens_total{provider=\"openai\",model=\"m\",kind=\"input\"} 22\n",
        "agentd_cost_usd_total{provider=\"openai\",model=\"m\"} 0.000184\n",
        "agentd_tool_calls_total{tool=\"createTodo\",outcome=\"ok\"} 1\n",
        "agentd_runs_total{backend=\"embedded\",caller=\"session\",outcome=\"ok\"} 1\n",
        "agentd_run_seconds_count{backend=\"embedded\"} 1\n",
        "agentd_first_content_seconds_count{backend=\"embedded\"} 1\n",
        "agentd_circuit_open 0.0\n",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    assert!(!metrics.contains("nonsense"), "{metrics}");
}

/// Returns the field `name` of a line of the log.
fn log_field<'l>(line: &'l str, name: &str) -> &'l str {
    let start = line.find(&format!(" {name}=")).unwrap_or_else(|| panic!("{name}: {line}")) + name.len() + 2;
    let value = &line[start..];
    match value.strip_prefix('"') {
        Some(quoted) => &quoted[..quoted.find('"').expect("a closing quote")],
        None => value.split(' ').next().unwrap_or_default(),
    }
}

#[tokio::test]
async fn each_run_has_one_line_in_the_log() {
    let log = LogBuffer::install();
    let test = UsageApp::start().await;
    let refusal = || {
        json_response("400 Bad Request", "", r#"{"error":{"message":"no","type":"invalid_request_error"}}"#)
    };
    let calls = || tool_calls(&[("c1", "createTodo", r#"{"text":"Milk"}"#)]);
    test.vendor.on("m", [calls(), answer(&["Done."]), calls(), refusal()]);
    let finished = test.chat("u1", "Buy milk").await;
    let failed = test.chat("ada", "Buy milk").await;
    for (run, user, outcome, calls, cost) in [
        (&finished, "u1", "ok", "2", "0.000184000"),
        (&failed, "ada", "BACKEND_FAILED", "2", PRICE_OF_ANSWER),
    ] {
        let ended = || -> Vec<String> {
            let text = log.text();
            let is_end = |line: &&str| line.contains("run ended") && line.contains(run.as_str());
            text.lines().filter(is_end).map(str::to_owned).collect()
        };
        let lines = poll_until(async || ended(), |lines| !lines.is_empty()).await;
        let [line] = lines.as_slice() else { panic!("{lines:?}") };
        for (name, expected) in [
            ("company", "c1"),
            ("user", user),
            ("agent", "a1"),
            ("run", run),
            ("caller", "session"),
            ("model", "m"),
            ("calls", calls),
            ("tool_calls", "1"),
            ("cost", cost),
            ("outcome", outcome),
        ] {
            assert_eq!(log_field(line, name), expected, "{name}: {line}");
        }
        assert_eq!(log_field(line, "trace_id").len(), 32, "{line}");
        assert!(!line.contains("milk") && !line.contains("Milk"), "no content: {line}");
    }
}

#[tokio::test]
async fn users_see_the_usage_that_they_have_a_right_to() {
    // The date in UTC.
    let today = || Timestamp::now().to_string()[..10].to_owned();
    let first_day = today();
    let test = UsageApp::start().await;
    for (user, run) in [("u1", 1), ("ada", 2)] {
        for n in 0..run {
            let run = test.chat(user, &format!("Hello {n}")).await;
            test.booked(&run, 1).await;
        }
    }
    let calls = async |user: &str, query: &str| {
        let rows = test.rows(user, query).await;
        rows.iter().map(|row| row["calls"].as_u64().expect("a number")).collect::<Vec<_>>()
    };
    for (user, query, expected) in [
        ("ada", "", vec![2]),
        ("ada", "agentId=a1", vec![2]),
        ("ada", "userId=ada", vec![2]),
        ("ada", "agentId=other", vec![]),
        ("u1", "", vec![1]),
        ("u1", "agentId=a1", vec![3]),
        ("u1", "agentId=a1&userId=ada", vec![2]),
        ("u1", "agentId=a1&groupBy=user", vec![2, 1]),
        ("boss", "", vec![3]),
        ("boss", "userId=ada", vec![2]),
        ("boss", "userId=nobody", vec![]),
        ("boss", "from=2020-01-01&to=2020-12-31", vec![]),
    ] {
        assert_eq!(calls(user, query).await, expected, "{user}: {query}");
    }
    let rows = test.rows("boss", "groupBy=model,user,agent,provider,caller").await;
    let groups: Vec<_> = rows
        .iter()
        .map(|row| {
            let group = ["agentId", "userId", "provider", "model", "caller"];
            group.map(|name| row[name].as_str().expect("text").to_owned()).join(" ")
        })
        .collect();
    assert_eq!(groups, ["a1 ada openai m session", "a1 u1 openai m session"]);
    assert_eq!((&rows[0]["runs"], &rows[0]["cost"]), (&json!(2), &json!("0.000184000")));
    let days = test.rows("boss", "groupBy=day").await;
    // Midnight may have passed meanwhile.
    let dates = [first_day, today()];
    assert!(days.iter().all(|row| dates.iter().any(|date| row["day"] == *date)), "{dates:?}: {days:?}");
    let calls_of_days: u64 = days.iter().filter_map(|row| row["calls"].as_u64()).sum();
    assert_eq!(calls_of_days, 3, "{days:?}");

    for query in ["userId=u1", "userId=u1&agentId=other"] {
        let request = test.app.request("GET", &format!("/api/usage?{query}"));
        let response = request.bearer_auth(session_token("ada", "c1")).send().await.expect("an answer");
        expect_problem(response, 403, "FORBIDDEN").await;
    }
    let run = test.chat("u1", "Mine").await;
    test.booked(&run, 1).await;
    for (user, status) in [("u1", 200), ("boss", 200), ("ada", 404)] {
        assert_eq!(test.get(user, &format!("/api/usage/runs/{run}")).await.0, status, "{user}");
    }
    let elsewhere = test.app.request("GET", &format!("/api/usage/runs/{run}"));
    let response = elsewhere.bearer_auth(session_token("boss", "c2")).send().await.expect("an answer");
    expect_problem(response, 404, "NOT_FOUND").await;
    assert_eq!(test.get("boss", "/api/usage/runs/none").await.0, 404);
}

/// Identifiers of runs are the clients' choice, and unique among the runs of a user only.
#[tokio::test]
async fn runs_of_two_users_with_the_same_id_are_two() {
    let test = UsageApp::start().await;
    for (user, booked) in [("ada", 1), ("u1", 2)] {
        let body = json!({"agentId": "a1", "message": "Hello", "runId": "1", "store": false});
        let response = test.app.chat_as(&session_token(user, "c1"), "", &body).await;
        let events = parse_events(&response.text().await.expect("a whole body"));
        assert_eq!(events[0]["runId"], "1", "{user}: {events:?}");
        let count = async || {
            test.stores.usage.run_usage(&"c1".into(), &"1".into()).await.expect("the run is read").len()
        };
        poll_until(count, |count| *count == booked).await;
    }
    for (user, shown) in [("ada", "ada"), ("u1", "u1"), ("boss", "ada")] {
        let (status, usage) = test.get(user, "/api/usage/runs/1").await;
        let shown = (200, &json!(shown), &json!(1));
        assert_eq!((status, &usage["userId"], &usage["calls"]), shown, "{user}: {usage}");
        assert_eq!(usage["entries"].as_array().map(Vec::len), Some(1), "{user}: {usage}");
    }
    let entries = test.stores.usage.run_usage(&"c1".into(), &"1".into()).await.expect("the run is read");
    let call = entries.into_iter().find(|entry| *entry.scope.user_id == *"ada").expect("a call");
    let many = (0..MAX_RUN_ENTRIES).map(|n| UsageEntry { id: format!("more {n}"), ..call.clone() });
    test.stores.usage.book(many.collect()).await.expect("booked");
    for (user, calls, truncated) in [("ada", MAX_RUN_ENTRIES, json!(true)), ("u1", 1, Value::Null)] {
        let (_, usage) = test.get(user, "/api/usage/runs/1").await;
        assert_eq!((&usage["calls"], &usage["truncated"]), (&json!(calls), &truncated), "{user}");
    }
}

#[tokio::test]
async fn rows_are_paged_and_wrong_queries_refused() {
    let test = UsageApp::start().await;
    for user in ["ada", "u1", "zoe"] {
        let run = test.chat(user, "Hello").await;
        test.booked(&run, 1).await;
    }
    let (mut users, mut cursor) = (Vec::new(), String::new());
    loop {
        let (_, page) = test.get("boss", &format!("/api/usage?groupBy=user&limit=1{cursor}")).await;
        users.push(page["rows"][0]["userId"].as_str().expect("a user").to_owned());
        let Some(next) = page["nextCursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(users, ["ada", "u1", "zoe"]);
    for query in [
        "groupBy=company",
        "groupBy=day,day",
        "from=yesterday",
        "from=2026-13-01",
        "from=-000001-01-01",
        "from=2026-02-01&to=2026-01-01",
        "from=2024-01-01&to=2026-01-01",
        "limit=0",
        "limit=1001",
        "groupBy=day&cursor=00",
        "cursor=5b5d",
    ] {
        let request = test.app.request("GET", &format!("/api/usage?{query}"));
        let response = request.bearer_auth(session_token("boss", "c1")).send().await.expect("an answer");
        let problem = expect_problem(response, 400, "INVALID_REQUEST").await;
        if query.ends_with("5b5d") {
            assert_eq!(problem["detail"], "cursor is invalid");
        }
    }
    let response = client().get(test.app.url("/api/usage")).send().await.expect("an answer");
    expect_problem(response, 401, "UNAUTHENTICATED").await;
}

#[tokio::test]
async fn a_client_that_leaves_is_booked_by_an_estimate() {
    let test = UsageApp::start().await;
    test.vendor.on("m", [vec![stream_head(), delta(json!({"content": "12345678"})), Step::Stall]]);
    let body = json!({"agentId": "a1", "message": "Hello", "store": false, "runId": "left"});
    let mut response = test.app.chat(&body).await;
    read_until(&mut response, "12345678").await;
    drop(response);
    let usage = test.booked("left", 1).await;
    let call = &usage["entries"][0];
    assert_eq!((&call["outcome"], &call["estimated"]), (&json!("cancelled"), &json!(true)), "{usage}");
    assert_eq!(call["outputTokens"], 2, "{usage}");
    assert!(call["inputTokens"].as_u64().expect("a number") > 10, "{usage}");
    assert_eq!(usage["estimatedCost"], usage["cost"]);
}

#[tokio::test]
async fn a_refused_call_is_free_and_an_absurd_count_is_replaced() {
    let test = UsageApp::start().await;
    let refused = vec![Step::Send(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n".to_vec())];
    let mut absurd = vec![stream_head(), delta(json!({"content": "12345678"}))];
    absurd.extend(crate::support::vendor::finish("stop"));
    let count = |step: Step| match step {
        Step::Send(bytes) if String::from_utf8_lossy(&bytes).contains("prompt_tokens") => {
            crate::support::vendor::event(json!({"model": "m", "choices": [],
                "usage": {"prompt_tokens": 9_223_372_036_854_775_808_u64, "completion_tokens": -7}}))
        }
        step => step,
    };
    test.vendor.on("m", [refused, absurd.into_iter().map(count).collect()]);
    let body = json!({"agentId": "a1", "message": "Hello", "store": false, "runId": "refused"});
    assert!(test.app.chat(&body).await.status().is_server_error());
    let usage = test.booked("refused", 1).await;
    assert_eq!((&usage["cost"], &usage["inputTokens"]), (&json!("0.000000000"), &json!(0)), "{usage}");
    assert_eq!(usage["entries"][0]["outcome"], "BACKEND_FAILED");
    let run = test.chat("u1", "Hello").await;
    let usage = test.booked(&run, 1).await;
    let call = &usage["entries"][0];
    assert_eq!((&call["outcome"], &call["estimated"]), (&json!("ok"), &json!(true)), "{usage}");
    let input = call["inputTokens"].as_u64().expect("a number");
    assert!((1..1_000).contains(&input) && call["outputTokens"] == 2, "{usage}");
}

#[tokio::test]
async fn a_workflow_is_booked_as_a_whole() {
    let test = UsageApp::start_with(&[], |agent, vendor| {
        agent["children"] =
            json!([{"name": "WorkflowConnector", "content": {"webhookUrl": vendor.webhook_url()}}]);
    })
    .await;
    let run = test.chat("u1", "Hello").await;
    let usage = test.booked(&run, 1).await;
    let call = &usage["entries"][0];
    assert_eq!(
        [&call["provider"], &call["outcome"], &call["estimated"], &call["cost"]],
        [&json!("workflow"), &json!("ok"), &json!(true), &Value::Null],
        "{usage}"
    );
    assert_eq!(usage["unpricedCalls"], 1);
}

#[tokio::test]
async fn a_runtime_s_run_is_booked_by_its_report() {
    let runtime = server::runtime(&[]).await;
    let url = runtime.url("");
    let test = UsageApp::start_with(&[], |agent, vendor| {
        agent["children"] = json!([{"name": "AgentServer", "content": {"agentServerUrl": url,
            "agentServerProvider": "openai", "agentServerModel": "m", "agentServerLocalUrl": vendor.base_url(),
            "agentServerApiKey": "k"}}]);
    })
    .await;
    let run = test.chat("u1", "Hello").await;
    let usage = test.booked(&run, 1).await;
    let call = &usage["entries"][0];
    assert_eq!(
        [&call["provider"], &call["model"], &call["cost"], &call["estimated"]],
        [&json!("openai"), &json!("m"), &json!(PRICE_OF_ANSWER), &json!(false)],
        "{usage}"
    );
}

#[tokio::test]
async fn a_call_that_is_repeated_after_content_is_booked() {
    let test = UsageApp::start_with(&[("MODEL_ATTEMPTS", "2")], |_, _| {}).await;
    let lost = vec![stream_head(), delta(json!({"content": "Lost"})), Step::Reset];
    test.vendor.on("m", [lost, answer(&["Done."])]);
    let body = json!({"agentId": "a1", "message": "Hello", "store": false});
    let response = test.app.chat_as(&session_token("u1", "c1"), "?format=json", &body).await;
    let object: Value = response.json().await.expect("JSON");
    assert_eq!(object["output"], "Done.", "{object}");
    let usage = test.booked(object["runId"].as_str().expect("a run"), 2).await;
    let entries = usage["entries"].as_array().expect("entries");
    let call = |attempt: u64| entries.iter().find(|call| call["attempt"] == attempt).expect("the attempt");
    let fields = |call: &Value| {
        ["round", "outcome", "outputTokens", "estimated"].map(|name| call[name].clone()).to_vec()
    };
    assert_eq!(json!(fields(call(1))), json!([1, "BACKEND_FAILED", 1, true]), "{usage}");
    assert_eq!(json!(fields(call(2))), json!([1, "ok", 7, false]), "{usage}");
    assert_eq!(call(2)["cost"], PRICE_OF_ANSWER);
    assert_ne!(call(1)["cost"], "0.000000000", "the lost call has cost something");
}

#[tokio::test]
async fn each_attempt_at_a_runtime_is_booked() {
    let (runtime, broken) = (server::runtime(&[]).await, Vendor::start().await);
    broken.on("m", [json_response("503 Service Unavailable", "", "{}")]);
    let (url, broken_url) = (runtime.url(""), broken.ollama_url());
    let settings = [("MODEL_ATTEMPTS", "2")];
    let test = UsageApp::start_with(&settings, |agent, vendor| {
        let at = |url: &str| {
            json!({"agentServerUrl": url, "agentServerProvider": "openai", "agentServerModel": "m",
                "agentServerLocalUrl": vendor.base_url(), "agentServerApiKey": "k"})
        };
        let mut server = at(&broken_url);
        server["fallbacks"] = json!([at(&url)]);
        agent["children"] = json!([{"name": "AgentServer", "content": server}]);
    })
    .await;
    let run = test.chat("u1", "Hello").await;
    let usage = test.booked(&run, 3).await;
    let mut booked: Vec<_> = usage["entries"]
        .as_array()
        .expect("entries")
        .iter()
        .map(|call| {
            let text = |name: &str| call[name].as_str().unwrap_or_default().to_owned();
            (call["attempt"].as_u64(), text("outcome"), text("cost"), call["estimated"].as_bool())
        })
        .collect();
    booked.sort();
    let failed =
        |attempt| (Some(attempt), "BACKEND_FAILED".to_owned(), "0.000000000".to_owned(), Some(false));
    let answered = (Some(3), "ok".to_owned(), PRICE_OF_ANSWER.to_owned(), Some(false));
    assert_eq!(booked, [failed(1), failed(2), answered], "{usage}");
}

/// Returns true for a time in UTC that is written with its milliseconds.
fn is_whole_millisecond(time: &Value) -> bool {
    let text = time.as_str().unwrap_or_default();
    text.parse::<Timestamp>().is_ok_and(|time| utc_time(time) == text)
}

#[tokio::test]
async fn the_callers_limits_are_shown() {
    // Of two runs, the first one is counted for half a minute.
    let settings = [("RUNS_PER_MINUTE", "2"), ("CHANGES_PER_MINUTE", "10")];
    let test = UsageApp::start_with(&settings, |_, _| {}).await;
    let used = async |user: &str| {
        let (status, body) = test.get(user, "/api/limits").await;
        assert_eq!(status, 200, "{body}");
        assert!(is_whole_millisecond(&body["asOf"]), "{body}");
        let limits = body["limits"].as_array().expect("limits").clone();
        limits
            .iter()
            .map(|limit| {
                assert!(is_whole_millisecond(&limit["resetsAt"]) && limit["policy"] == "minute", "{limit}");
                let number = |name: &str| limit[name].as_u64().expect("a number");
                (limit["unit"].as_str().expect("text").to_owned(), number("used"), number("amount"))
            })
            .collect::<Vec<_>>()
    };
    let state = |runs| vec![("runs".to_owned(), runs, 2), ("changes".to_owned(), 0, 10)];
    assert_eq!(used("u1").await, state(0));
    test.chat("u1", "Hello").await;
    test.chat("u1", "Hello").await;
    assert_eq!(used("u1").await, state(2));
    assert_eq!(used("ada").await, state(0), "limits are a user's own");
}
