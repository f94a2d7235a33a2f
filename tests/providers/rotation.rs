//! Keys and prices that change, within a run and in all processes.

use super::*;

#[tokio::test]
async fn a_wrong_key_is_replaced_without_waiting_for_its_circuit() {
    let test = ProviderApp::start(&[]).await;
    test.vendor.on("m", [json_response("401 Unauthorized", "", "{}"), answer(&["Hi."])]);
    let response = ask(&test.app, "a1").await;
    assert!(!response.status().is_success(), "{}", response.status());
    assert_eq!(test.preview().await["attempts"][0]["circuit"], "open");
    put(&test.app, "acme", &test.provider(json!({"apiKey": "k2"}))).await;
    assert_eq!(test.preview().await["attempts"][0]["circuit"], "closed");
    assert_eq!(ask(&test.app, "a1").await.status(), 200);
    assert_eq!(keys(&test.vendor), ["k1", "k2"]);
}

/// Lets the model call a tool, once the gate is open, and then say that it is done.
fn answer_behind_gate(test: &ProviderApp) -> watch::Sender<bool> {
    let gate = watch::Sender::new(false);
    let mut steps = tool_calls(&[("c1", "readTodos", "{}")]);
    steps.insert(1, Step::Until(gate.subscribe()));
    test.vendor.on("m", [steps, answer(&["Done."])]);
    gate
}

#[tokio::test]
async fn a_key_that_is_changed_within_a_run_holds_for_its_next_call() {
    let test = ProviderApp::start(&[]).await;
    let gate = answer_behind_gate(&test);
    let running = ask(&test.app, "a1").await;
    test.vendor.wait_for_requests("m", 1).await;
    put(&test.app, "acme", &test.provider(json!({"apiKey": "k2"}))).await;
    gate.send_replace(true);
    let events = parse_events(&running.text().await.expect("a body"));
    assert_eq!(events.last().expect("an end")["type"], "RUN_FINISHED", "{events:?}");
    assert_eq!(keys(&test.vendor), ["k1", "k2"]);
}

#[tokio::test]
async fn a_price_that_is_changed_within_a_run_holds_for_the_next_run() {
    let test = ProviderApp::start(&[]).await;
    let priced = |output: &str| {
        test.provider(json!({"models": [{"model": "m", "prices": {"input": "2", "output": output}}]}))
    };
    put(&test.app, "acme", &priced("10")).await;
    let path = "/api/budgets/agent/a1";
    let budget = json!({"limits": [{"unit": "cost", "amount": "50", "window": "month"}]});
    assert!(test.send(BOSS, "PUT", path, &budget).await.status().is_success());
    let gate = answer_behind_gate(&test);
    let running = ask(&test.app, "a1").await;
    test.vendor.wait_for_requests("m", 1).await;
    put(&test.app, "acme", &priced("100")).await;
    gate.send_replace(true);
    let first = parse_events(&running.text().await.expect("a body"));
    let second = parse_events(&ask(&test.app, "a1").await.text().await.expect("a body"));
    // 11 and 7 tokens a call: the run keeps the price of its beginning.
    for (events, calls, cost) in [(first, 2, "0.000184000"), (second, 1, "0.000722000")] {
        assert_eq!(events.last().expect("an end")["type"], "RUN_FINISHED", "{events:?}");
        let path = format!("/api/usage/runs/{}", events[0]["runId"].as_str().expect("a run"));
        let usage = poll_until(async || test.get(BOSS, &path).await, |usage| usage["calls"] == calls).await;
        assert_eq!(usage["cost"], cost, "{usage}");
    }
    let limit = async || test.get(BOSS, path).await["limits"][0].clone();
    let limit = poll_until(limit, |limit| limit["reserved"] == "0.000000000").await;
    assert_eq!(limit["used"], "0.000906000", "the meter counts the usage of the calls");
}

async fn start(database: &TestDatabase) -> Server {
    let url = database.url();
    let config = app_config(&[("DATABASE_URL", url.as_str()), ("DATA_SECRET", "data-secret-canary")]);
    let stores = Stores::open(&config).await.expect("the store opens");
    server::app_with_config(config, stores).await
}

/// Changes the key in one process while another one is called all the time.
async fn rotate_a_key(database: TestDatabase) {
    let vendor = Vendor::start().await;
    vendor.on_all(answer(&["Hi."]));
    let url = database.url();
    let config = app_config(&[("DATABASE_URL", url.as_str()), ("DATA_SECRET", "data-secret-canary")]);
    let stores = Stores::open(&config).await.expect("the store opens");
    let file = agent_platform::workspace::WorkspaceFile::parse_stored(&with_container(&named()).to_string());
    file.expect("a workspace").apply(&stores.roles).await.expect("imported");
    let (one, two) = (start(&database).await, start(&database).await);
    let provider = |key: &str| json!({"type": "openai", "baseUrl": vendor.base_url(), "apiKey": key});
    let call = async |app: &Server| {
        assert_eq!(ask(app, "a1").await.status(), 200);
        keys(&vendor).pop().expect("a call")
    };
    put(&one, "acme", &provider("k0")).await;
    poll_until(async || ask(&two, "a1").await.status().as_u16(), |status| *status == 200).await;
    for n in 1..=5 {
        let (writer, reader) = if n % 2 == 0 { (&one, &two) } else { (&two, &one) };
        let (old, new) = (format!("k{}", n - 1), format!("k{n}"));
        assert_eq!(call(reader).await, old);
        put(writer, "acme", &provider(&new)).await;
        assert_eq!(call(writer).await, new, "the process that changed the key uses it at once");
        let received_key = poll_until(async || call(reader).await, |key| *key == new).await;
        assert_eq!(received_key, new);
        let request_count = keys(&vendor).len();
        for _ in 0..5 {
            call(reader).await;
            call(writer).await;
        }
        assert!(
            keys(&vendor)[request_count..].iter().all(|key| *key == new),
            "no process uses the old key afterwards"
        );
    }
}

#[tokio::test]
async fn a_changed_key_holds_in_every_process_over_sqlite() {
    rotate_a_key(TestDatabase::Sqlite(TempDir::new().expect("a folder"))).await;
}

#[tokio::test]
async fn a_changed_key_holds_in_every_process_over_postgres() {
    rotate_a_key(TestDatabase::Postgres(Cluster::start())).await;
}
