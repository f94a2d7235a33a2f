use std::sync::Arc;
use std::time::Duration;

use agent_core::ids::JobId;
use agent_jobs::job::{
    AttemptOutcome, CANCEL_BATCH_SIZE, ClaimRequest, CompanyQuota, InsertOutcome, Job, JobCounts, JobPayload,
    JobScope, JobState, JobStore, NewJob, Step, StepOutcome,
};
use agent_jobs::schedule::Schedule;
use agent_platform::records::{Precondition, Records, StoreError};
use agent_store::sqlite::{SqliteErrorKind, SqliteOptions, SqliteStore};
use futures_util::future::join_all;
use futures_util::{FutureExt, StreamExt};
use jiff::Timestamp;

use super::{TempStore, fault, impatient, json, key, other, put, uncached};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + seconds).expect("a time")
}

pub(super) fn job(company: &str, seconds: i64) -> Job {
    let payload = JobPayload::for_tool(company, "ada", "agent", "remind");
    Job::new(NewJob::new(payload, Schedule::At(at(seconds))), at(0))
}

fn of_size(company: &str, bytes: usize) -> Job {
    let mut job = job(company, 1);
    Arc::make_mut(&mut job.payload).message = Some("x".repeat(bytes));
    job
}

fn claim(now: i64, limit: usize) -> ClaimRequest {
    ClaimRequest {
        now: at(now),
        due_until: at(now),
        lease_until: at(now + 30),
        limit,
        quota: CompanyQuota::new(usize::MAX),
    }
}

async fn is_there(store: &SqliteStore, job: &Job) -> bool {
    JobStore::get(store, &JobScope::default(), &job.id).await.expect("read").is_some()
}

pub(super) fn succeeded(job: &Job) -> (JobId, Step) {
    let (outcome, duration) = (AttemptOutcome::Succeeded, Duration::from_secs(1));
    (job.id.clone(), Step::End { fence: job.fence, outcome, duration, status: None, jitter: 0 })
}

#[tokio::test]
async fn records_and_jobs_share_a_file_and_its_transactions() {
    let temp_store = TempStore::new();
    let store = temp_store.store(SqliteOptions::default());
    store.put(&key("a"), json("1"), Precondition::Absent).await.expect("put");
    let read = Records::get(&store, &key("a")).await.expect("read");
    let jobs: Vec<Job> = (0..10).map(|n| job("acme", n)).collect();
    let before = store.counters();
    for job in &jobs {
        store.insert(vec![job.clone()]).await.expect("insert");
    }
    assert_eq!(store.claim_due(claim(3, 10)).await.expect("claim").len(), 4);
    assert_eq!(store.counters().commits - before.commits, 11);
    let again = Records::get(&store, &key("a")).await.expect("read");
    assert_eq!(again.map(|record| record.version), read.map(|record| record.version));
    assert_eq!(store.counters().reads, before.reads, "a job ends nothing that is kept of records");
    assert_eq!(store.put(&key("a"), json("2"), Precondition::Any).await.expect("put"), 2);
    // Operations without an effect commit no transaction.
    let before = store.counters();
    assert_eq!(store.claim_due(claim(0, 10)).await.expect("claim"), []);
    assert_eq!(store.purge(at(0), 10).await.expect("purge"), 0);
    assert_eq!(store.counters().transactions, before.transactions);
    drop(store);
    let store = temp_store.store(uncached());
    for job in &jobs {
        assert!(is_there(&store, job).await, "the job exists when the store is opened again");
    }
    assert_eq!(store.check_integrity().await.expect("a check"), Vec::<String>::new());
}

#[tokio::test]
async fn a_file_with_records_alone_gets_its_jobs() {
    let temp_store = TempStore::new();
    {
        let store = temp_store.store(SqliteOptions::default());
        store.put(&key("a"), json("1"), Precondition::Absent).await.expect("put");
    }
    // The file as a version without jobs left it.
    let before = other(&temp_store.file());
    before
        .execute_batch(
            "DROP TABLE jobs; DROP TABLE threads; DROP TABLE nodes; DROP TABLE runs; DROP TABLE processes;
             DROP TABLE run_events; DROP TABLE signals; DROP TABLE thread_counts;
             DROP TABLE feedback; DROP TABLE usage_calls; DROP TABLE usage_days; DROP TABLE turn_contexts;
             PRAGMA user_version = 1",
        )
        .expect("changed");
    drop(before);
    let store = temp_store.store(SqliteOptions::default());
    assert_eq!(store.insert(vec![job("acme", 1)]).await.expect("insert"), [InsertOutcome::New]);
    assert!(Records::get(&store, &key("a")).await.expect("read").is_some());
}

#[tokio::test]
async fn changes_of_another_process_are_visible() {
    let temp_store = TempStore::new();
    let (one, two) = (temp_store.store(uncached()), temp_store.store(uncached()));
    let mut wakes = one.notifications();
    two.insert(vec![job("acme", 5)]).await.expect("insert");
    assert_eq!(one.next_run_at().await.expect("read"), Some(at(5)));
    assert_eq!(wakes.next().now_or_never(), None, "a store without notifications is polled");
    let claims = join_all([one.claim_due(claim(5, 1)), two.claim_due(claim(5, 1))]).await;
    let claimed: usize = claims.into_iter().map(|claimed| claimed.expect("claim").len()).sum();
    assert_eq!(claimed, 1, "exactly one claim gets the job");
}

#[tokio::test]
async fn a_lock_timeout_is_reported_by_every_operation() {
    let temp_store = TempStore::new();
    let store = temp_store.store(impatient());
    let there = job("acme", 1);
    store.insert(vec![there.clone()]).await.expect("insert");
    let lock = other(&temp_store.file());
    lock.execute_batch("BEGIN IMMEDIATE").expect("a lock");
    let new = job("acme", 1);
    let refused = [
        fault(store.insert(vec![new.clone()]).await),
        fault(store.claim_due(claim(5, 1)).await),
        fault(store.apply_steps(vec![(there.id.clone(), Step::Cancel)], at(5)).await),
        fault(store.cancel_all(&Default::default(), at(5)).await),
        fault(store.purge(at(5), 1).await),
    ];
    assert!(refused.iter().all(|fault| fault.kind() == SqliteErrorKind::Locked), "{refused:?}");
    assert!(is_there(&store, &there).await && !is_there(&store, &new).await, "readers go on");
    lock.execute_batch("ROLLBACK").expect("released");
    assert_eq!(store.claim_due(claim(5, 1)).await.expect("claim"), {
        let step = Step::Claim { until: at(5), lease: at(35) };
        [there.step(step, at(5)).expect("it is due").job]
    });
}

#[tokio::test]
async fn a_full_disk_is_reported_and_loses_no_acknowledged_write() {
    let temp_store = TempStore::new();
    let limit = SqliteOptions { max_file_bytes: Some(450_000), ..SqliteOptions::default() };
    let mut acknowledged = Vec::new();
    let mut refused = Vec::new();
    {
        let store = temp_store.store(limit);
        // Ended jobs, which a purge removes. A full disk may have no room to end others.
        let ended: Vec<Job> = (0..4).map(|_| of_size("acme", 10_000)).collect();
        store.insert(ended.clone()).await.expect("there is room");
        let cancel = |job: &Job| (job.id.clone(), Step::Cancel);
        store.apply_steps(ended.iter().map(cancel).collect(), at(2)).await.expect("cancelled");
        refused.extend(ended);
        for n in 0..40 {
            let jobs = vec![of_size("acme", 10_000), of_size("acme", 10_000)];
            match store.insert(jobs.clone()).await {
                Ok(_) => acknowledged.extend(jobs),
                Err(error) => {
                    assert_eq!(fault::<()>(Err(error)).kind(), SqliteErrorKind::Full, "insert {n}");
                    refused.extend(jobs);
                }
            }
        }
        assert!(acknowledged.len() > 10 && refused.len() > 10);
        // A purge frees space, after which inserts succeed again.
        assert_eq!(store.purge(at(3), 100).await.expect("purge"), 4);
        store.insert(vec![of_size("acme", 10_000)]).await.expect("there is room again");
    }
    let store = temp_store.store(uncached());
    for job in &acknowledged {
        assert!(is_there(&store, job).await, "an acknowledged write is stored");
    }
    for job in &refused {
        assert!(!is_there(&store, job).await, "no job is stored in part, and no removed job exists");
    }
    assert_eq!(store.check_integrity().await.expect("a check"), Vec::<String>::new());
}

#[tokio::test]
async fn a_batch_that_fails_leaves_nothing() {
    let temp_store = TempStore::new();
    let store = temp_store.store(uncached());
    let twice = job("acme", 1);
    let failed = store.insert(vec![job("acme", 1), twice.clone(), twice.clone()]).await;
    assert_eq!(fault(failed).kind(), SqliteErrorKind::Failed, "an id is one job's");
    let counts = store.count_by_state(at(5)).await.expect("counts");
    assert_eq!(counts.by_state.values().sum::<u64>(), 0);
    assert_eq!(store.next_run_at().await.expect("read"), None);
}

#[tokio::test]
async fn a_malformed_job_is_reported_without_its_content() {
    let temp_store = TempStore::new();
    let store = temp_store.store(uncached());
    let (broken, intact) = (job("acme", 1), job("acme", 2));
    store.insert(vec![broken.clone(), intact.clone()]).await.expect("insert");
    let sql = "UPDATE jobs SET body = '{\"secret\": 1}' WHERE id = ?1";
    other(&temp_store.file()).execute(sql, [broken.id.as_str()]).expect("changed");
    let error = JobStore::get(&store, &JobScope::default(), &broken.id).await.expect_err("no job");
    assert!(matches!(&error, StoreError::Malformed { id, .. } if broken.id == id.as_str()), "{error:?}");
    assert!(!format!("{error}").contains("secret"));
    // The other jobs are claimed without delay, and this one is retried later.
    let claimed = store.claim_due(claim(5, 10)).await.expect("claim");
    assert_eq!(claimed.iter().map(|job| &job.id).collect::<Vec<_>>(), [&intact.id]);
    assert_eq!(store.claim_due(claim(5, 10)).await.expect("claim"), []);
    assert_eq!(store.next_run_at().await.expect("read"), Some(at(35)), "the lease of the other");
    let sql = "UPDATE jobs SET body = ?2 WHERE id = ?1";
    let body = serde_json::to_string(&broken).expect("JSON");
    other(&temp_store.file()).execute(sql, [broken.id.as_str(), &body]).expect("mended");
    let later = store.claim_due(claim(5 + 3600, 10)).await.expect("claim");
    assert!(later.iter().any(|job| job.id == broken.id), "{later:?}");
}

#[tokio::test]
async fn one_damaged_row_hinders_no_other() {
    for damage in
        ["body = '{\"secret\": 1}'", "body = 'no JSON'", "progress = NULL", "body = CAST(x'7bff' AS TEXT)"]
    {
        let temp_store = TempStore::new();
        let store = temp_store.store(uncached());
        let jobs: Vec<Job> = (0..3).map(|n| job("acme", n)).collect();
        store.insert(jobs.clone()).await.expect("insert");
        let claimed = store.claim_due(claim(10, 10)).await.expect("claim");
        let sql = format!("UPDATE jobs SET {damage} WHERE id = ?1");
        other(&temp_store.file()).execute(&sql, [jobs[1].id.as_str()]).expect("damaged");
        super::damaged::is_set_aside(&store, &jobs, &claimed, at(11)).await;
    }
}

/// A filtered cancel takes the writer for one batch at a time, so that other writes come in between.
#[tokio::test]
async fn a_bulk_cancel_is_made_in_batches() {
    let temp_store = TempStore::new();
    let store = temp_store.store(uncached());
    let count = 5 * CANCEL_BATCH_SIZE + 1;
    store.insert((0..count).map(|_| job("acme", 1)).collect()).await.expect("insert");
    let before = store.counters();
    assert_eq!(store.cancel_all(&Default::default(), at(5)).await.expect("cancelled"), count as u64);
    assert_eq!(store.counters().transactions - before.transactions, 6);
}

/// A cached claimed job must not hide changes of its row.
#[tokio::test]
async fn changes_of_a_claimed_job_by_others_are_respected() {
    let (temp_store, cases) = (TempStore::new(), ["body", "progress"]);
    let store = temp_store.store(uncached());
    store.insert(cases.map(|_| job("acme", 1)).to_vec()).await.expect("insert");
    let claimed = store.claim_due(claim(5, 10)).await.expect("claim");
    assert_eq!(claimed.len(), cases.len());
    for (mut job, column) in claimed.into_iter().zip(cases) {
        job.max_attempts = 77;
        job.attempt = 7;
        let sql = format!("UPDATE jobs SET {column} = ?2 WHERE id = ?1");
        let all = serde_json::to_string(&job).expect("JSON");
        other(&temp_store.file()).execute(&sql, [job.id.as_str(), &all]).expect("changed");
        let ended = store.apply_steps(vec![succeeded(&job)], at(6)).await.expect("steps");
        let [StepOutcome::Applied(stepped)] = &ended[..] else { panic!("it is held: {ended:?}") };
        let found = (stepped.job.max_attempts == 77, stepped.job.attempt == 7);
        assert_eq!(found, (column == "body", column == "progress"), "{:?}", stepped.job);
    }
}

#[tokio::test]
async fn waiting_operations_share_a_transaction_and_fail_separately() {
    let temp_store = TempStore::new();
    let store = temp_store.store(SqliteOptions::default());
    let due: Vec<Job> = (0..20).map(|n| job("acme", n)).collect();
    store.insert(due.clone()).await.expect("insert");
    let before = store.counters();
    let lock = other(&temp_store.file());
    lock.execute_batch("BEGIN IMMEDIATE").expect("a lock");
    let (claims, taken, put, release) = futures_util::join!(
        join_all((0..4).map(|_| store.claim_due(claim(19, 5)))),
        store.insert(vec![due[0].clone()]),
        store.commit(vec![put("a", "1", Precondition::Any)]),
        async { lock.execute_batch("ROLLBACK") },
    );
    release.expect("released");
    put.expect("an error of another write does not fail this write");
    assert_eq!(fault(taken).kind(), SqliteErrorKind::Failed, "an id is one job's");
    let claimed: Vec<Job> = claims.into_iter().flat_map(|claimed| claimed.expect("claim")).collect();
    let ids = |jobs: &[Job]| jobs.iter().map(|job| job.id.clone()).collect::<std::collections::BTreeSet<_>>();
    assert_eq!((claimed.len(), ids(&claimed)), (20, ids(&due)), "each is claimed once");
    assert_eq!(store.counters().commits - before.commits, 5);
    let ended = store.apply_steps(claimed.iter().map(succeeded).collect(), at(20)).await.expect("steps");
    assert!(ended.iter().all(|ended| ended.is_applied()), "{ended:?}");
    let JobCounts { by_state, lag, .. } = store.count_by_state(at(100)).await.expect("counts");
    assert_eq!((by_state.get(&JobState::Completed), lag), (Some(&20), Duration::ZERO));
}

/// Many jobs of one company over its quota are skipped without reading each.
#[tokio::test]
async fn a_company_with_its_share_is_passed() {
    let temp_store = TempStore::new();
    let store = temp_store.store(uncached());
    // Most jobs are due at the same time, as with schedules at a certain minute.
    for _ in 0..20 {
        store
            .insert((0..1000).map(|n| job("greedy", 10 + i64::from(n % 50 == 0))).collect())
            .await
            .expect("insert");
    }
    store.insert(vec![job("modest", 20), job("modest", 30)]).await.expect("insert");
    let mut quota = CompanyQuota::new(1);
    assert!(quota.take("greedy"));
    let claimed = store.claim_due(ClaimRequest { quota, ..claim(100, 10) }).await.expect("claim");
    let companies: Vec<_> = claimed.iter().map(|job| (&*job.payload.company_id, job.due)).collect();
    assert_eq!(companies, [("modest", at(20))]);
}
