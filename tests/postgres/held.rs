//! Transactions that another program holds open, and processes whose clocks differ.

use std::io::Write as _;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use agent_core::clock::{Clock, SystemClock};
use agent_core::message::Message;
use agent_platform::conversation::{CreateThreadRequest, NewThread, RunClock, ThreadKey, import_nodes};
use agent_platform::token::{Grant, NewToken, RunCapError, RunCaps, Tokens, WidgetGrant};
use futures_util::future::BoxFuture;
use jiff::{Timestamp, ToSpan};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{DATA_SECRET, PostgresFixture, document_text, finish_chat, put_document, send};
use crate::support::server::{self, Server, session_token};
use crate::support::vendor::{Step, Vendor, answer, delta, finish, stream_head};
use crate::support::{env_number, expect_problem, parse_run, poll_until, read_until, text_of, workspace};

/// Environment variable that overrides the number of writes while a transaction is open.
const WRITES_ENV: &str = "HELD_WRITES";
const DEFAULT_WRITES: usize = 60;

/// The transaction has a snapshot and a transaction id, which holds back the horizon of the change feed, and it has
/// locked one record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_held_open_by_another_program_delays_no_request() {
    let writes = env_number(WRITES_ENV, DEFAULT_WRITES);
    let vendor = Vendor::start().await;
    let fixture = PostgresFixture::start(&workspace(&vendor.base_url(), "m")).await;
    let processes = [fixture.start_app().await, fixture.start_app().await];
    put_document(&processes[0], "locked", "before").await;
    let holder = fixture.connect().await;
    let held = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_xact_id();
                SELECT FROM app.records WHERE id = 'locked' FOR UPDATE";
    holder.batch_execute(held).await.expect("held");
    let mut delays = Vec::new();
    for n in 0..writes {
        let (writer, reader, text) = (&processes[n % 2], &processes[(n + 1) % 2], n.to_string());
        put_document(writer, "free", &text).await;
        let written = Instant::now();
        poll_until(async || document_text(reader, "free").await, |found| found.as_ref() == Some(&text)).await;
        delays.push(written.elapsed());
        if n % 10 == 0 {
            finish_chat(writer, &json!({"agentId": "a1", "message": "Hello", "runId": format!("r-{n}")}))
                .await;
        }
    }
    let body = json!({"title": "locked", "text": "after"});
    let response = send(&processes[0], "PUT", "/api/documents/locked", Some(&body)).await;
    assert!(response.headers().contains_key("retry-after"), "{:?}", response.headers());
    expect_problem(response, 503, "STORE_UNAVAILABLE").await;
    assert_eq!(document_text(&processes[1], "locked").await.as_deref(), Some("before"));
    holder.batch_execute("COMMIT").await.expect("ended");
    put_document(&processes[0], "locked", "after").await;
    poll_until(
        async || document_text(&processes[1], "locked").await,
        |found| found.as_deref() == Some("after"),
    )
    .await;
    delays.sort_unstable();
    let (median, longest) = (delays[delays.len() / 2], delays[delays.len() - 1]);
    // Shown with `--no-capture`.
    let _ = writeln!(
        std::io::stderr(),
        "{writes} writes beside an open transaction are seen at the other process after {median:?}, {longest:?} at most"
    );
}

const COMPANIES: [&str; 2] = ["c1", "c2"];

/// Returns a workspace of two companies, each with the agent `a1` and a model of the company's name.
fn companies(base_url: &str) -> Value {
    let mut all = json!({"users": [], "agents": []});
    for company in COMPANIES {
        let user = json!({"id": "u1", "companyId": company});
        let agent = json!({"id": "a1", "name": "Agent", "ownerId": "u1", "companyId": company,
            "content": {"systemPrompt": "Be brief."}, "children": [{"name": "EmbeddedAI", "content":
                {"provider": "openai", "model": company, "baseUrl": base_url, "apiKey": "role-key-canary"}}]});
        all["users"].as_array_mut().expect("a list").push(user);
        all["agents"].as_array_mut().expect("a list").push(agent);
    }
    all
}

/// Sends a request of the user `u1` of a company, with a JSON body unless it is null.
async fn send_as(app: &Server, company: &str, method: &str, path: &str, body: Value) -> reqwest::Response {
    let request = app.request(method, path).bearer_auth(session_token("u1", company));
    let request = if body.is_null() { request } else { request.json(&body) };
    request.send().await.expect("the application answers")
}

/// Begins a run in a company.
async fn chat_as(app: &Server, company: &str, run: &str) -> reqwest::Response {
    let body = json!({"agentId": "a1", "message": "Hello", "runId": run, "threadId": run});
    let response = send_as(app, company, "POST", "/api/agent/chat", body).await;
    assert_eq!(response.status(), 200, "{company} {run}");
    response
}

/// Waits until a process sees the usage of a run.
async fn wait_for_usage(app: &Server, company: &str, run: &str) {
    let path = format!("/api/usage/runs/{run}");
    let usage = async || -> Value {
        send_as(app, company, "GET", &path, Value::Null).await.json().await.unwrap_or_default()
    };
    poll_until(usage, |usage| usage["entries"].as_array().is_some_and(|entries| entries.len() == 1)).await;
}

/// Run ids of two companies that are old enough to be deleted when a process starts.
const OLD_RUN_IDS: &str = "
    INSERT INTO app.records (company, collection, id, version, updated_ms, value)
    SELECT company, 'runIds/000001/u1', 'old', nextval('app.record_version'), 0, '{}'
    FROM unnest(ARRAY['c1', 'c2']) AS companies (company)";

/// A run, the ledger, an old thread and an old record of one company are locked while another company has the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locked_rows_of_one_company_delay_no_other_company() {
    let vendor = Vendor::start().await;
    let fixture = PostgresFixture::start(&companies(&vendor.base_url())).await;
    let (second, third) = (watch::Sender::new(false), watch::Sender::new(false));
    for model in COMPANIES {
        let mut live = vec![stream_head(), delta(json!({"content": "first "}))];
        live.extend([Step::Until(second.subscribe()), delta(json!({"content": "second "}))]);
        live.extend([Step::Until(third.subscribe()), delta(json!({"content": "third"}))]);
        live.extend(finish("stop"));
        vendor.on(model, [answer(&["One."]), live, answer(&["Two."])]);
    }
    let stores = fixture.open().await;
    let old_thread = |company: &str| ThreadKey::new(company, "u9", "old");
    for company in COMPANIES {
        let create = CreateThreadRequest {
            key: old_thread(company),
            agent_id: "a1".into(),
            new: NewThread::default(),
            retention: None,
            nodes: import_nodes(None, vec![Message::user("x")]),
            now: Timestamp::now() - (11_i64 * 24).hours(),
        };
        stores.conversations.create(create).await.expect("created");
    }
    let admin = fixture.connect().await;
    admin.batch_execute(OLD_RUN_IDS).await.expect("stored");
    let holder = fixture.connect().await;
    let lock = async |rows: &str| {
        holder.batch_execute(&format!("SELECT FROM app.{rows} FOR UPDATE")).await.expect("locked");
    };
    holder.batch_execute("BEGIN").await.expect("begun");
    lock("threads WHERE company = 'c1'").await;
    lock("records WHERE company = 'c1' AND collection LIKE 'runIds/%'").await;
    // The retention time of visitors is so short that threads are swept every second.
    let settings = [
        ("DATABASE_URL", fixture.url.as_str()),
        ("DATA_SECRET", DATA_SECRET),
        ("THREAD_RETENTION", "10d"),
        ("VISITOR_THREAD_RETENTION", "2s"),
    ];
    let mut processes = Vec::new();
    for _ in 0..2 {
        let config = server::app_config(&settings);
        processes.push(server::app_with_config(config, fixture.open().await).await);
    }
    let [writer, reader] = &processes[..] else { unreachable!("two were started") };
    let old_ids = async || {
        let sql = "SELECT company FROM app.records WHERE collection LIKE 'runIds/000001/%' ORDER BY company";
        let rows = admin.query(sql, &[]).await.expect("read");
        rows.iter().map(|row| row.get(0)).collect::<Vec<String>>()
    };
    poll_until(old_ids, |companies| companies[..] == ["c1"]).await;

    for company in COMPANIES {
        let events = parse_run(&chat_as(writer, company, "one").await.text().await.expect("a whole body"));
        assert_eq!(text_of(&events), "One.");
        wait_for_usage(reader, company, "one").await;
    }
    lock("usage_days WHERE company = 'c1'").await;
    let mut live = Vec::new();
    for company in COMPANIES {
        let mut response = chat_as(writer, company, "live").await;
        let begun = read_until(&mut response, "first ").await;
        live.push((response, begun));
    }
    lock("runs WHERE company = 'c1' AND id = 'live'").await;
    second.send_replace(true);
    for (response, begun) in &mut live {
        *begun += &read_until(response, "second ").await;
    }
    // The other process sees the stored state of a live run.
    let mut log = send_as(reader, "c2", "GET", "/api/runs/live/events", Value::Null).await;
    read_until(&mut log, "second ").await;
    for company in COMPANIES {
        let events = parse_run(&chat_as(writer, company, "two").await.text().await.expect("a whole body"));
        assert_eq!(text_of(&events), "Two.");
    }
    wait_for_usage(reader, "c2", "two").await;
    let is_there = async |company: &str| {
        stores.conversations.thread(&old_thread(company)).await.expect("read").is_some()
    };
    poll_until(async || is_there("c2").await, |is_there| !is_there).await;
    assert!(is_there("c1").await, "it is locked");

    holder.batch_execute("COMMIT").await.expect("released");
    wait_for_usage(reader, "c1", "two").await;
    poll_until(async || is_there("c1").await, |is_there| !is_there).await;
    third.send_replace(true);
    for (company, (response, begun)) in COMPANIES.into_iter().zip(live) {
        let events = parse_run(&(begun + &response.text().await.expect("a whole body")));
        assert_eq!(text_of(&events), "first second third", "{company}");
        let log = send_as(reader, company, "GET", "/api/runs/live/events", Value::Null).await;
        let events = parse_run(&log.text().await.expect("a whole log"));
        assert_eq!(text_of(&events), "first second third", "{company}: the log has all, in order");
        wait_for_usage(reader, company, "live").await;
    }
}

/// The system's clock, five seconds ahead.
struct AheadClock;

/// Difference of the clocks of two processes.
const CLOCK_SKEW: Duration = Duration::from_secs(5);

impl Clock for AheadClock {
    fn now(&self) -> SystemTime {
        SystemClock.now() + CLOCK_SKEW
    }

    fn monotonic(&self) -> Instant {
        SystemClock.monotonic()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        SystemClock.sleep(duration)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_five_seconds_ahead_admits_no_more_than_it_is_ahead() {
    const RUNS_PER_MINUTE: u32 = 60;
    let vendor = Vendor::start().await;
    let fixture = PostgresFixture::start(&workspace(&vendor.base_url(), "m")).await;
    let clocks: [Arc<dyn Clock>; 2] = [Arc::new(SystemClock), Arc::new(AheadClock)];
    let mut processes = Vec::new();
    for clock in clocks {
        processes.push(Tokens::new(fixture.open().await.records, clock));
    }
    let caps =
        RunCaps { runs_per_minute: NonZeroU32::new(RUNS_PER_MINUTE).expect("a cap"), runs_per_day: None };
    let grant = Grant::Widget(WidgetGrant { caps, ..WidgetGrant::default() });
    let minted = processes[0].mint(NewToken::new("c1", "a1", grant)).await.expect("minted");
    for process in &processes {
        process.find(minted.text.expose()).await.expect("it is valid at once");
    }
    let start = Instant::now();
    let mut admitted = 0;
    for n in 0..2 * RUNS_PER_MINUTE as usize {
        match processes[n % 2].count_run((&"c1".into(), minted.token.id.as_str()), &caps).await {
            Ok(()) => admitted += 1,
            Err(RunCapError::PerMinute { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    // One run a second is admitted later.
    let later = start.elapsed().as_secs() + 1;
    let most = u64::from(RUNS_PER_MINUTE) + CLOCK_SKEW.as_secs() + later;
    assert!(
        (u64::from(RUNS_PER_MINUTE)..=most).contains(&admitted),
        "{admitted} of at most {most} are admitted"
    );
    processes[1].revoke(&minted.token.id, Some(&"c1".into())).await.expect("revoked");
    processes[0].find(minted.text.expose()).await.expect_err("it is revoked at once");
}

/// Time for which a process has its runs in milliseconds, of which it extends the lease after a third.
const LEASE_MS: &str = "20000";

/// Another process looks for runs of ended ones, until the lease has been extended by more than the clocks differ.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_five_seconds_ahead_interrupts_no_run_of_another_process() {
    let vendor = Vendor::start().await;
    let gate = watch::Sender::new(false);
    let mut steps = vec![stream_head(), delta(json!({"content": "first "})), Step::Until(gate.subscribe())];
    steps.push(delta(json!({"content": "second"})));
    steps.extend(finish("stop"));
    vendor.on("m", [steps]);
    let fixture = PostgresFixture::start(&workspace(&vendor.base_url(), "m")).await;
    let url = fixture.url.as_str();
    let settings = [("DATABASE_URL", url), ("DATA_SECRET", DATA_SECRET), ("RUN_LEASE_MS", LEASE_MS)];
    let app = server::app_with_config(server::app_config(&settings), fixture.open().await).await;
    let chat = json!({"agentId": "a1", "message": "Hello", "runId": "r", "threadId": "t"});
    let mut response = app.chat(&chat).await;
    let begun = read_until(&mut response, "first ").await;
    let (client, ahead) = (fixture.connect().await, fixture.open().await);
    let lease = async || -> i64 {
        client.query_one("SELECT max(lease_ms) FROM app.processes", &[]).await.expect("read").get(0)
    };
    let first = lease().await;
    let reap = async || {
        let now = Timestamp::now() + CLOCK_SKEW;
        let interrupted = ahead.conversations.reap(RunClock { now, log_until: now }).await;
        (interrupted.expect("the leases are read"), lease().await)
    };
    poll_until(reap, |(interrupted, lease)| {
        assert_eq!(*interrupted, 0, "its process has not ended");
        *lease > first + CLOCK_SKEW.as_millis() as i64
    })
    .await;
    gate.send_replace(true);
    let events = parse_run(&(begun + &response.text().await.expect("a whole body")));
    assert_eq!(text_of(&events), "first second");
    assert_eq!(events.last().expect("an end")["type"], "RUN_FINISHED");
}
