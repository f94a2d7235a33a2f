//! Processes whose `DATABASE_URL` leads through PgBouncer, which gives each transaction another connection of the
//! server.

use std::num::NonZeroU32;

use agentd::stores::Stores;
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{PostgresFixture, document_text, finish_chat, note_todos, put_document, send};
use crate::support::cluster::Cluster;
use crate::support::pooler::{Pooler, SERVER_CONNECTIONS};
use crate::support::process::SchedulerProcess;
use crate::support::server::Server;
use crate::support::server::todo_titles;
use crate::support::sink::WebhookReceiver;
use crate::support::vendor::Vendor;
use crate::support::{env_number, expect_problem, poll_until, workspace};

/// Environment variable that overrides the number of rounds.
const ROUNDS_ENV: &str = "POOLER_ROUNDS";
const DEFAULT_ROUNDS: usize = 6;
/// Number of chats at a time.
const CHATS: usize = 12;
/// Cap of the widget token per minute.
const RUNS_PER_MINUTE: u32 = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_share_a_database_through_a_pooler_of_transactions() {
    let rounds = env_number(ROUNDS_ENV, DEFAULT_ROUNDS);
    let vendor = Vendor::start().await;
    note_todos(&vendor);
    let cluster = Cluster::start();
    let pooler = Pooler::start(&cluster);
    let url = pooler.url("postgres");
    // The tables are created through the pooler, too.
    let mut all = workspace(&vendor.base_url(), "m");
    let list = |n| json!({"id": format!("l{n}"), "ownerId": "u1", "companyId": "c1", "todos": []});
    all["todoLists"] = (0..CHATS).map(list).collect();
    let fixture = PostgresFixture::create(cluster, url, &all).await;
    let processes = [fixture.start_app().await, fixture.start_app().await];
    for round in 0..rounds {
        writes_are_seen_at_the_other_process(&processes, round).await;
        chats_lose_no_effect(&processes, round).await;
    }
    all_effects_are_there(&fixture.open().await, rounds).await;
    a_run_id_is_accepted_once(&processes).await;
    a_token_is_capped_and_revoked_everywhere(&processes).await;
    jobs_are_delivered_once(&fixture).await;
    let query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'agentd'";
    let connections: i64 = fixture.connect().await.query_one(query, &[]).await.expect("read").get(0);
    assert!(connections <= SERVER_CONNECTIONS as i64, "{connections} connections");
}

#[tokio::test]
async fn a_pooler_that_is_not_named_prevents_the_start() {
    let cluster = Cluster::start();
    let pooler = Pooler::start(&cluster);
    let url = pooler.url_without_mode("postgres");
    let fixture = PostgresFixture { cluster, url };
    let refused = Stores::open(&fixture.config()).await.err().expect("refused").to_string();
    assert!(refused.contains("pool_mode=transaction"), "{refused}");
}

async fn writes_are_seen_at_the_other_process([one, other]: &[Server; 2], round: usize) {
    for (writer, reader) in [(one, other), (other, one)] {
        // The first text is cached at the reader when the second one is written.
        for n in 0..2 {
            let text = format!("round {round}, {n}");
            put_document(writer, "shared", &text).await;
            assert_eq!(document_text(writer, "shared").await.as_ref(), Some(&text), "its own write");
            poll_until(async || document_text(reader, "shared").await, |found| found.as_ref() == Some(&text))
                .await;
        }
    }
}

async fn chats_lose_no_effect(processes: &[Server; 2], round: usize) {
    let chat = async |n: usize| {
        let body =
            json!({"agentId": "a1", "message": format!("t-{round}-{n}"), "todoListId": format!("l{n}")});
        finish_chat(&processes[(n + round) % 2], &body).await;
    };
    join_all((0..CHATS).map(chat)).await;
}

async fn all_effects_are_there(stores: &Stores, rounds: usize) {
    for n in 0..CHATS {
        let expected: Vec<_> = (0..rounds).map(|round| format!("t-{round}-{n}")).collect();
        assert_eq!(todo_titles(stores, &format!("l{n}")).await, expected);
    }
}

async fn a_run_id_is_accepted_once(processes: &[Server; 2]) {
    let body = json!({"agentId": "a1", "message": "t-once", "runId": "r-1", "todoListId": "l1"});
    let responses = join_all((0..6).map(|n| processes[n % 2].chat(&body))).await;
    let mut statuses: Vec<u16> = responses.iter().map(|response| response.status().as_u16()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409, 409, 409, 409, 409]);
}

async fn a_token_is_capped_and_revoked_everywhere(processes: &[Server; 2]) {
    let cap = NonZeroU32::new(RUNS_PER_MINUTE).expect("a cap");
    let token_request = json!({"kind": "widget", "caps": {"runsPerMinute": cap}});
    let response = send(&processes[0], "POST", "/api/agents/a1/tokens", Some(&token_request)).await;
    assert_eq!(response.status(), 201);
    let created: Value = response.json().await.expect("JSON");
    let token = created["token"].as_str().expect("a text");
    let ask = |number: usize| {
        let request =
            processes[number % 2].request("POST", "/api/agent/chat").header("x-widget-token", token);
        request.json(&json!({"message": "Hello"})).send()
    };
    let start = std::time::Instant::now();
    let responses = join_all((0..40).map(ask)).await;
    // One more run is admitted every three seconds.
    let later = usize::try_from(start.elapsed().as_secs() / 3).expect("few");
    let admitted = responses.into_iter().filter(|response| {
        let status = response.as_ref().expect("an answer").status();
        assert!(status == 200 || status == 429, "{status}");
        status == 200
    });
    let (admitted, cap) = (admitted.count(), RUNS_PER_MINUTE as usize);
    assert!((cap..=cap + later).contains(&admitted), "{admitted} admitted");
    let path = format!("/api/agents/a1/tokens/{}", created["id"].as_str().expect("an id"));
    assert!(send(&processes[1], "DELETE", &path, None).await.status().is_success());
    for number in 0..4 {
        expect_problem(ask(number).await.expect("an answer"), 401, "UNAUTHENTICATED").await;
    }
}

/// Two schedulers, without notifications of each other's jobs, share the jobs through the pooler.
async fn jobs_are_delivered_once(fixture: &PostgresFixture) {
    let receiver = WebhookReceiver::start().await;
    let schedulers = [
        SchedulerProcess::start(&fixture.url, &receiver.url(), &[]).await,
        SchedulerProcess::start(&fixture.url, &receiver.url(), &[]).await,
    ];
    let mut ids = Vec::new();
    for number in 0..6 {
        let payload = json!({"kind": "tool", "userId": "u1", "companyId": "c1", "agentId": "a1",
            "toolId": "createTodo", "arguments": {"title": "Later"}});
        let job = json!({"payload": payload, "delayMs": 200});
        ids.push(schedulers[number % 2].create_job(&job).await);
    }
    for (number, id) in ids.iter().enumerate() {
        schedulers[(number + 1) % 2].wait_for_state(id, "completed").await;
    }
    let effects = receiver.effects();
    assert!(ids.iter().all(|id| effects.get(id).is_some_and(|times| times.len() == 1)), "{effects:?}");
}
