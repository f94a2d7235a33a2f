//! Repeated `kill -9` while jobs are created and delivered.

use std::time::{Duration, Instant};

use agent_store::sqlite::{SqliteOptions, SqliteStore};

use super::TestDatabase;
use super::load::JobLoad;
use crate::support::process::SchedulerProcess;
use crate::support::random::Random;
use crate::support::sink::WebhookReceiver;
use crate::support::{env_number, report};

/// Environment variable that overrides the number of rounds.
const ROUNDS_ENV: &str = "SCHEDULER_KILL_ROUNDS";
const DEFAULT_ROUNDS: u32 = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_job_is_lost_and_no_effect_doubled_by_kills_on_sqlite() {
    let database = TestDatabase::sqlite();
    run_kill_rounds(&database).await;
    let TestDatabase::Sqlite(folder) = &database else { unreachable!("it is SQLite") };
    let store = SqliteStore::open(folder.path().join("scheduler.db"), SqliteOptions::default());
    let findings = store.expect("the store opens").check_integrity().await.expect("a check");
    assert_eq!(findings, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_job_is_lost_and_no_effect_doubled_by_kills_on_postgres() {
    run_kill_rounds(&TestDatabase::postgres()).await;
}

async fn run_kill_rounds(database: &TestDatabase) {
    let rounds = env_number(ROUNDS_ENV, DEFAULT_ROUNDS);
    let sink = WebhookReceiver::start().await;
    let (url, callback) = (database.url(), sink.url());
    let start = || SchedulerProcess::start(&url, &callback, &[]);
    let mut scheduler = start().await;
    let load = JobLoad::start(&scheduler).await;
    let (mut random, mut longest) = (Random::with_seed(1), Duration::ZERO);
    for round in 0..rounds {
        // Spreads the kills over the scheduler's work.
        load.wait_for_progress(&sink, 1 + random.below(90) as usize).await;
        scheduler.kill().await;
        if round % 3 == 2 {
            // A second kill right after the start, before the scheduler is healthy.
            SchedulerProcess::start_with(&[], &url, &callback, &[]).await.kill().await;
        }
        let killed = Instant::now();
        scheduler = start().await;
        longest = longest.max(killed.elapsed());
        load.set_scheduler(&scheduler);
    }
    let made = load.finish_and_check(&scheduler, &sink, rounds).await;
    assert!(made >= rounds as usize, "the kills come while it works: {made} jobs");
    report(&format!("{rounds} kills, {made} jobs; the scheduler was back after {longest:?} at most"));
    scheduler.kill().await;
}
