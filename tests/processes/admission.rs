//! Commits that admit a run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent_core::clock::SystemClock;
use agent_platform::records::{Collection, ListQuery, Record};
use agent_platform::token::{Grant, NewToken, Tokens, WidgetGrant};
use futures_util::future::join_all;
use reqwest::Response;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{SharedDatabase, over_both};
use crate::support::commit_log::CommitLog;
use crate::support::server::{self, Server, session_token};
use crate::support::vendor::{Step, delta, finish, stream_head};
use crate::support::{expect_problem, poll_until};

/// Collections of what a run takes before it begins.
const ADMISSION: &[&str] = &["tokenDays", "runIds", "userRates", "budgetMeters", "budgetReservations"];

/// Mints a widget token of the agent `a1`, and returns its text and id.
async fn mint(database: &SharedDatabase) -> (String, String) {
    let tokens = Tokens::new(database.open().await.records, Arc::new(SystemClock));
    let grant = Grant::Widget(WidgetGrant::default());
    let minted = tokens.mint(NewToken::new("c1", "a1", grant)).await.expect("minted");
    (minted.text.expose().to_owned(), minted.token.id)
}

async fn ask(process: &Server, token: &str, run_id: &str) -> Response {
    let request = process.request("POST", "/api/agent/chat").header("x-widget-token", token);
    request.json(&json!({"message": "Hello", "runId": run_id})).send().await.expect("an answer")
}

/// Lets the vendor end its answers once the returned value is true.
fn hold_answers(database: &SharedDatabase) -> watch::Sender<bool> {
    let gate = watch::Sender::new(false);
    let mut steps = vec![stream_head(), delta(json!({"content": "Hi."})), Step::Until(gate.subscribe())];
    steps.extend(finish("stop"));
    database.vendor.on_all(steps);
    gate
}

/// Starts an application with further settings and a log of its commits that admit runs.
async fn start_logged(database: &SharedDatabase, settings: &[(&str, &str)]) -> (Server, Arc<CommitLog>) {
    let url = database.test_database.url();
    let own = [("DATABASE_URL", url.as_str()), ("DATA_SECRET", "data-secret-canary")];
    let mut stores = database.open().await;
    let log = CommitLog::new(stores.records.clone(), ADMISSION);
    stores.records = log.clone();
    let config = server::app_config(&[&own[..], settings].concat());
    (server::app_with_config(config, stores).await, log)
}

/// Returns the collections of each commit since the last call.
fn commits(log: &CommitLog) -> Vec<Vec<String>> {
    log.take().into_iter().map(|names| names.into_iter().collect()).collect()
}

#[tokio::test]
async fn two_commits_admit_a_visitors_run_with_an_id_beyond_what_a_process_counts() {
    over_both(two_commits_admit_a_run_over).await;
}

async fn two_commits_admit_a_run_over(database: SharedDatabase) {
    let gate = hold_answers(&database);
    let (token, _) = mint(&database).await;
    // A process admits an eighth of the limit without a commit.
    let (app, log) = start_logged(&database, &[("CONCURRENT_RUNS_COMPANY", "8")]).await;
    let mut begun = Vec::new();
    let expected: [&[&[&str]]; 3] = [
        &[&["runIds", "tokenDays"]],
        &[&["runIds", "tokenDays"], &["budgetMeters", "budgetReservations"]],
        &[&["runIds", "tokenDays"], &["budgetMeters", "budgetReservations"]],
    ];
    for (number, expected) in expected.into_iter().enumerate() {
        let response = ask(&app, &token, &format!("r-{number}")).await;
        assert_eq!(response.status(), 200);
        begun.push(response);
        assert_eq!(commits(&log), expected, "run {number}");
    }
    gate.send_replace(true);
    for response in begun {
        response.text().await.expect("a whole body");
    }
}

#[tokio::test]
async fn two_commits_admit_a_run_with_an_id_above_half_of_the_limits_per_minute() {
    over_both(two_commits_admit_a_run_above_half_over).await;
}

async fn two_commits_admit_a_run_above_half_over(database: SharedDatabase) {
    let gate = hold_answers(&database);
    let (token, _) = mint(&database).await;
    // Half of each limit is admitted without a commit: one run of the user and two of the company.
    let settings =
        [("CONCURRENT_RUNS_COMPANY", "8"), ("RUNS_PER_MINUTE", "2"), ("RUNS_PER_MINUTE_COMPANY", "4")];
    let (app, log) = start_logged(&database, &settings).await;
    let ask_as_user = async |run_id: &str| {
        let body = json!({"agentId": "a1", "message": "Hello", "store": false, "runId": run_id});
        app.chat_as(&session_token("u1", "c1"), "", &body).await
    };
    let began = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let mut begun = vec![ask_as_user("r-0").await, ask(&app, &token, "v-0").await];
    let records = database.open().await.records;
    let counts = Collection::of_platform("userRates").and_then(|rates| rates.within("c1")).expect("a name");
    let counted = async || {
        let page = records.list(&counts, &ListQuery::default()).await.expect("the store works");
        let arrival = |record: &Record| {
            let state: Value = serde_json::from_str(record.value.get()).expect("JSON");
            (record.id.clone(), state["arrivalMicros"].as_u64().expect("a time"))
        };
        page.records.iter().map(arrival).collect::<BTreeMap<String, u64>>()
    };
    // Both are counted in the background: the company has used two intervals of a quarter of a minute.
    let of_both = u64::try_from((began + Duration::from_secs(25)).as_micros()).expect("a time");
    let is_counted = |found: &BTreeMap<String, u64>| {
        found.contains_key("u1/runs") && found.get("runs").is_some_and(|arrival| *arrival > of_both)
    };
    poll_until(counted, is_counted).await;
    commits(&log);

    begun.push(ask_as_user("r-1").await);
    let admitted = ["budgetMeters", "budgetReservations", "userRates"];
    assert_eq!(commits(&log), [&["runIds", "userRates"][..], &admitted[..]]);
    begun.push(ask(&app, &token, "v-1").await);
    assert_eq!(commits(&log), [&["runIds", "tokenDays"][..], &admitted[..]]);
    gate.send_replace(true);
    for response in begun {
        assert_eq!(response.status(), 200);
        response.text().await.expect("a whole body");
    }
    expect_problem(ask_as_user("r-2").await, 429, "RATE_LIMITED").await;
}

#[tokio::test]
async fn an_id_of_a_visitors_run_is_accepted_once_and_each_attempt_is_counted() {
    over_both(a_visitors_id_is_accepted_once_over).await;
}

async fn a_visitors_id_is_accepted_once_over(database: SharedDatabase) {
    let (one, other) = (database.start().await, database.start().await);
    let (token, id) = mint(&database).await;
    let asked = join_all([&one, &other, &one, &other].map(|process| ask(process, &token, "r-1"))).await;
    let mut statuses: Vec<u16> = asked.iter().map(|response| response.status().as_u16()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409, 409, 409]);
    let different = join_all((0..4).map(|number| {
        let process = if number % 2 == 0 { &one } else { &other };
        let run_id = format!("r-1-{number}");
        let token = &token;
        async move { ask(process, token, &run_id).await.status().as_u16() }
    }))
    .await;
    assert_eq!(different, [200; 4]);
    let records = database.open().await.records;
    let counts = Collection::of_platform("tokenDays").and_then(|days| days.key(id)).expect("a key");
    let counted = async || {
        let record = records.get(&counts).await.expect("the store works").expect("a count");
        serde_json::from_str::<Value>(record.value.get()).expect("JSON")["runs"].clone()
    };
    assert_eq!(counted().await, 8);

    // A run that is refused before it starts leaves its id for another attempt.
    let missing = json!({"type": "image", "source": {"type": "file", "value": agent_core::new_id()}});
    let content = json!([{"type": "text", "text": "What is it?"}, missing]);
    let body = json!({"runId": "r-2", "messages": [{"id": "m1", "role": "user", "content": content}]});
    let request = one.request("POST", "/api/agent/chat").header("x-widget-token", &token);
    let refused = request.json(&body).send().await.expect("an answer");
    expect_problem(refused, 400, "INVALID_REQUEST").await;
    expect_problem(ask(&one, &token, "r-1").await, 409, "CONFLICT").await;
    assert_eq!(ask(&other, &token, "r-2").await.status(), 200);
}
