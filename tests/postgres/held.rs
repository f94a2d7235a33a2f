//! Transactions that another program holds open, and processes whose clocks differ.

use std::io::Write as _;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use agent_core::clock::{Clock, SystemClock};
use agent_platform::token::{Caps, Grant, NewToken, RunCapError, Tokens, WidgetGrant};
use futures_util::future::BoxFuture;
use serde_json::json;

use super::{PostgresFixture, document_text, finish_chat, put_document, send};
use crate::support::vendor::Vendor;
use crate::support::{env_number, expect_problem, poll_until, workspace};

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
    let caps = Caps { runs_per_minute: NonZeroU32::new(RUNS_PER_MINUTE).expect("a cap"), runs_per_day: None };
    let grant = Grant::Widget(WidgetGrant { caps, ..WidgetGrant::default() });
    let minted = processes[0].mint(NewToken::new("c1", "a1", grant)).await.expect("minted");
    for process in &processes {
        process.find(minted.text.expose()).await.expect("it is valid at once");
    }
    let start = Instant::now();
    let mut admitted = 0;
    for n in 0..2 * RUNS_PER_MINUTE as usize {
        match processes[n % 2].count_run(&minted.token.id, &caps).await {
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
