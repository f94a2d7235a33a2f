use std::collections::HashMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use agent_core::ids::JobId;
use agent_jobs::job::{
    AttemptOutcome, ClaimRequest, CompanyQuota, IdempotencyKey, InsertOutcome, Job, JobFilter, JobOrder,
    JobScope, JobState, JobStore, Step, StepOutcome,
};
use agent_store::postgres::{PostgresErrorKind, PostgresJobs, PostgresOptions};
use futures_util::StreamExt;

use super::{Cluster, at, database, fault, impatient, is_there, job, other, store, wait_until};

const RECOVERY_TIMEOUT: Duration = Duration::from_secs(60);

/// Waits until the store has recovered.
async fn recovered(store: &PostgresJobs) {
    let begun = Instant::now();
    while let Err(error) = store.count_by_state(at(0)).await {
        assert!(begun.elapsed() < RECOVERY_TIMEOUT, "the store does not recover: {error:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn acknowledged_writes_survive_a_server_crash() {
    let mut cluster = Cluster::start();
    let url = database(&cluster, "jobs").await;
    // The store must override this database setting.
    let sql = "ALTER DATABASE jobs SET synchronous_commit = off";
    other(&cluster, "postgres").await.batch_execute(sql).await.expect("set");
    let store = Arc::new(store(&url).await);
    let mut stored = HashMap::new();
    for round in 0..4 {
        let wait = Duration::from_millis(150 + 130 * round);
        let acknowledged = work_while(&store, async {
            tokio::time::sleep(wait).await;
            cluster.crash();
        })
        .await;
        stored.extend(acknowledged);
        let down = fault(store.get(&JobScope::default(), &"any".into()).await);
        assert_eq!(down.kind(), PostgresErrorKind::Unreachable, "{down:?}");
        cluster.restart();
        recovered(&store).await;
        check(&store, &stored).await;
    }
    the_listener_reconnects(&store, &url).await;
    a_killed_server_backend_affects_no_other_operation(&cluster, &store).await;
}

/// Inserts and delivers jobs, and runs `fault` once some are acknowledged. Returns the acknowledged state of each job.
async fn work_while(store: &Arc<PostgresJobs>, fault: impl Future<Output = ()>) -> HashMap<JobId, JobState> {
    let (over, inserted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let tasks: Vec<_> = (0..6)
        .map(|_| {
            let (store, over, inserted) = (Arc::clone(store), Arc::clone(&over), Arc::clone(&inserted));
            tokio::spawn(async move {
                let mut acknowledged = HashMap::new();
                while !over.load(Ordering::Relaxed) {
                    let new = vec![job("acme", 1), job("acme", 1)];
                    if store.insert(new.clone()).await.is_ok() {
                        acknowledged.extend(new.iter().map(|job| (job.id.clone(), JobState::Scheduled)));
                        inserted.fetch_add(1, Ordering::Relaxed);
                    }
                    deliver(&store, &mut acknowledged).await;
                }
                acknowledged
            })
        })
        .collect();
    wait_until("some jobs are acknowledged", async || inserted.load(Ordering::Relaxed) > 0).await;
    fault.await;
    over.store(true, Ordering::Relaxed);
    let mut acknowledged: HashMap<JobId, JobState> = HashMap::new();
    for task in tasks {
        for (id, state) in task.await.expect("it ends") {
            // Another task may have acknowledged a later state.
            let known = acknowledged.entry(id.to_string().into()).or_insert(state);
            *known = (*known).max(state);
        }
    }
    acknowledged
}

async fn deliver(store: &PostgresJobs, acknowledged: &mut HashMap<JobId, JobState>) {
    let quota = CompanyQuota::new(100);
    let claim = ClaimRequest { now: at(5), due_until: at(5), lease_until: at(60_000), limit: 1, quota };
    let Ok(claimed) = store.claim_due(claim).await else { return };
    acknowledged.extend(claimed.iter().map(|job| (job.id.clone(), JobState::Running)));
    for job in claimed {
        let (fence, duration) = (job.fence, Duration::ZERO);
        let end = Step::End { fence, outcome: AttemptOutcome::Succeeded, duration, status: None, jitter: 0 };
        if let Ok(ended) = store.apply_step(&JobScope::default(), &job.id, end, at(6)).await {
            assert!(ended.is_applied(), "it is held: {ended:?}");
            acknowledged.insert(job.id.clone(), JobState::Completed);
        }
    }
}

/// Asserts that every acknowledged job exists, in its acknowledged state or a later one.
async fn check(store: &PostgresJobs, acknowledged: &HashMap<JobId, JobState>) {
    let mut states_by_id = HashMap::new();
    let mut after: Option<JobId> = None;
    loop {
        let page = store
            .list(&JobFilter::default(), JobOrder::OldestFirst, after.as_ref(), 500)
            .await
            .expect("list");
        states_by_id.extend(page.jobs.iter().map(|job| (job.id.clone(), job.state())));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    for (id, state) in acknowledged {
        let current_state =
            states_by_id.get(id).unwrap_or_else(|| panic!("{id} was acknowledged as {state:?} and is lost"));
        let ranks = [JobState::Scheduled, JobState::Running, JobState::Completed];
        let rank = |state| ranks.iter().position(|ranked| *ranked == state).expect("no other state is made");
        assert!(
            rank(*current_state) >= rank(*state),
            "{id} was acknowledged as {state:?} and is {current_state:?}"
        );
    }
}

async fn the_listener_reconnects(store: &PostgresJobs, url: &str) {
    let mut wakes = store.notifications();
    let elsewhere = super::store(url).await;
    // If the listener is not connected yet, it gives the signal when it is.
    elsewhere.insert(vec![job("early", -1000)]).await.expect("insert");
    tokio::time::timeout(RECOVERY_TIMEOUT, wakes.next())
        .await
        .expect("a notification arrives")
        .expect("the stream continues");
}

/// Kills one server process. The server then closes all connections, because its shared memory may be
/// corrupt.
async fn a_killed_server_backend_affects_no_other_operation(cluster: &Cluster, store: &PostgresJobs) {
    let made = job("acme", 5);
    store.insert(vec![made.clone()]).await.expect("insert");
    let asked =
        "SELECT pid FROM pg_stat_activity WHERE datname = 'jobs' AND application_name = 'agentd' LIMIT 1";
    let row = other(cluster, "postgres").await.query_one(asked, &[]).await.expect("a process");
    let pid: i32 = row.get(0);
    let killed = Command::new("kill").args(["-9", &pid.to_string()]).status().expect("kill");
    assert!(killed.success());
    recovered(store).await;
    let begun = Instant::now();
    while let Err(error) = store.insert(vec![job("acme", 6)]).await {
        fault::<()>(Err(error));
        assert!(begun.elapsed() < RECOVERY_TIMEOUT, "the store does not recover");
    }
    assert!(is_there(store, &made).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn refused_writes_are_reported_and_not_stored() {
    // Half a page more than a WAL segment, which the server creates in one piece.
    let cluster = Cluster::start_with_small_files((16 << 20) + 4096);
    a_full_disk_is_reported_and_recovers(&cluster).await;
    a_read_only_server_is_reported_and_recovers(&cluster).await;
    a_lock_timeout_is_reported_and_recovers(&cluster).await;
    a_locked_job_delays_no_step_on_another(&cluster).await;
    exhausted_connections_are_reported_and_recover(&cluster).await;
    writes_that_wait_for_locks_leave_connections_to_others(&cluster).await;
    identifiers_with_nul_are_refused(&cluster).await;
}

async fn a_full_disk_is_reported_and_recovers(cluster: &Cluster) {
    let store = store(&database(cluster, "packed").await).await;
    let large = |n: usize| {
        let mut job = job("acme", n as i64);
        // Random text, which the server cannot compress.
        let letters = (0..1200).map(|_| agent_core::new_id()).collect::<String>();
        Arc::make_mut(&mut job.payload).message = Some(letters);
        job
    };
    let mut stored: Vec<Job> = Vec::new();
    let refused = loop {
        let jobs: Vec<Job> = (0..20).map(large).collect();
        match store.insert(jobs.clone()).await {
            Ok(_) => stored.extend(jobs),
            Err(error) => break (fault::<()>(Err(error)), jobs),
        }
        assert!(stored.len() < 5000, "the disk becomes full");
    };
    // Newer servers allocate space in another way and do not report a distinct error for it.
    let is_told = matches!(refused.0.kind(), PostgresErrorKind::Full | PostgresErrorKind::Failed);
    assert!(is_told && std::error::Error::source(&refused.0).is_some(), "{:?}", refused.0);
    for job in &refused.1 {
        assert!(!is_there(&store, job).await, "no part of a refused write is stored");
    }
    for job in &stored {
        assert!(is_there(&store, job).await, "an acknowledged write is stored");
    }
    let client = other(cluster, "packed").await;
    let cancelled = store.cancel_all(&JobFilter::default(), at(1)).await;
    if let Err(error) = cancelled {
        fault::<()>(Err(error));
    }
    client.batch_execute("TRUNCATE scheduler.jobs").await.expect("there is room again");
    store.insert(vec![large(0)]).await.expect("it goes on");
}

async fn a_read_only_server_is_reported_and_recovers(cluster: &Cluster) {
    let store = store(&database(cluster, "frozen").await).await;
    let made = job("acme", 5);
    store.insert(vec![made.clone()]).await.expect("insert");
    let admin = other(cluster, "postgres").await;
    // The setting applies to new connections, so existing ones are terminated.
    let set = async |value: &str| {
        let sql = format!(
            "ALTER DATABASE frozen SET default_transaction_read_only = {value};
             SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'frozen'"
        );
        admin.batch_execute(&sql).await.expect("set");
        recovered(&store).await;
    };
    set("on").await;
    let refused = job("acme", 6);
    for _ in 0..3 {
        let fault = fault(store.insert(vec![refused.clone()]).await);
        assert_eq!(fault.kind(), PostgresErrorKind::ReadOnly, "{fault:?}");
    }
    let step = store.apply_step(&JobScope::default(), &made.id, Step::Cancel, at(1)).await;
    assert_eq!(fault(step).kind(), PostgresErrorKind::ReadOnly);
    assert!(is_there(&store, &made).await, "it can be read");
    assert!(!is_there(&store, &refused).await);
    set("off").await;
    store.insert(vec![refused.clone()]).await.expect("it goes on");
    assert!(is_there(&store, &refused).await);
}

async fn a_lock_timeout_is_reported_and_recovers(cluster: &Cluster) {
    let url = database(cluster, "locked").await;
    let options = PostgresOptions { lock_timeout: Duration::from_millis(50), ..impatient() };
    let store = PostgresJobs::open(&url, options).await.expect("open");
    let jobs = [job("acme", 5), job("acme", 6)];
    store.insert(jobs.to_vec()).await.expect("insert");
    let holder = other(cluster, "locked").await;
    let sql = format!("BEGIN; SELECT FROM scheduler.jobs WHERE id = '{}' FOR UPDATE", jobs[0].id);
    holder.batch_execute(&sql).await.expect("locked");
    let cancel = |job: &Job| (job.id.clone(), Step::Cancel);
    let refused = store.apply_steps(jobs.iter().map(cancel).collect(), at(1)).await;
    assert_eq!(fault(refused).kind(), PostgresErrorKind::Locked);
    let claim = ClaimRequest {
        now: at(9),
        due_until: at(9),
        lease_until: at(99),
        limit: 9,
        quota: CompanyQuota::new(9),
    };
    let claimed = store.claim_due(claim.clone()).await.expect("claims do not wait for locks");
    assert_eq!(
        claimed.iter().map(|job| &job.id).collect::<Vec<_>>(),
        [&jobs[1].id],
        "a job that waits for a lock is not cancelled"
    );
    holder.batch_execute("ROLLBACK").await.expect("released");
    assert_eq!(store.claim_due(claim).await.expect("claim").len(), 1);
}

/// Another program has locked one of the jobs of several companies.
async fn a_locked_job_delays_no_step_on_another(cluster: &Cluster) {
    let url = database(cluster, "beside").await;
    let options = PostgresOptions { lock_timeout: RECOVERY_TIMEOUT, ..impatient() };
    let store = PostgresJobs::open(&url, options).await.expect("open");
    let jobs = [job("acme", 5), job("other", 6)];
    store.insert(jobs.to_vec()).await.expect("insert");
    let holder = other(cluster, "beside").await;
    let sql = format!("BEGIN; SELECT FROM scheduler.jobs WHERE id = '{}' FOR UPDATE", jobs[0].id);
    holder.batch_execute(&sql).await.expect("locked");
    let pause = |id: &JobId| (id.clone(), Step::Pause);
    let steps = [pause(&jobs[0].id), pause(&"missing".into()), pause(&jobs[1].id)];
    let outcomes =
        store.apply_steps_unlocked(steps.to_vec(), at(1)).await.expect("steps of unlocked jobs do not wait");
    assert_eq!(outcomes[..2], [None, Some(StepOutcome::NotFound)]);
    assert!(outcomes[2].as_ref().is_some_and(StepOutcome::is_applied), "{outcomes:?}");
    let is_paused = async |job: &Job| {
        store.get(&JobScope::default(), &job.id).await.expect("read").expect("it is there").paused
    };
    assert_eq!((is_paused(&jobs[0]).await, is_paused(&jobs[1]).await), (false, true));
    holder.batch_execute("ROLLBACK").await.expect("released");
    let outcomes = store.apply_steps_unlocked(steps[..1].to_vec(), at(1)).await.expect("it is free");
    assert!(outcomes[0].as_ref().is_some_and(StepOutcome::is_applied), "{outcomes:?}");
    assert!(is_paused(&jobs[0]).await);
}

async fn exhausted_connections_are_reported_and_recover(cluster: &Cluster) {
    let url = database(cluster, "busy").await;
    let wait_timeout = Duration::from_millis(50);
    let options =
        PostgresOptions { connections: 1, wait_timeout, lock_timeout: RECOVERY_TIMEOUT, ..impatient() };
    let store = Arc::new(PostgresJobs::open(&url, options).await.expect("open"));
    let made = job("acme", 5);
    store.insert(vec![made.clone()]).await.expect("insert");
    let holder = other(cluster, "busy").await;
    holder.batch_execute("BEGIN; LOCK TABLE scheduler.jobs").await.expect("locked");
    // A read holds its connection while it waits; a write would return it.
    let waiting = tokio::spawn({
        let store = Arc::clone(&store);
        async move { is_there(&store, &made).await }
    });
    let waits = "SELECT FROM pg_stat_activity WHERE datname = 'busy' AND wait_event_type = 'Lock'";
    let admin = other(cluster, "postgres").await;
    wait_until("a statement waits", async || !admin.query(waits, &[]).await.expect("read").is_empty()).await;
    assert_eq!(fault(store.count_by_state(at(1)).await).kind(), PostgresErrorKind::Busy);
    holder.batch_execute("ROLLBACK").await.expect("released");
    assert!(waiting.await.expect("done"), "it is read");
    store.count_by_state(at(1)).await.expect("it goes on");
}

/// Another program has locked the jobs, the idempotency keys and the users of more companies than the store has connections.
async fn writes_that_wait_for_locks_leave_connections_to_others(cluster: &Cluster) {
    let url = database(cluster, "shared").await;
    let options = PostgresOptions {
        connections: 4,
        wait_timeout: RECOVERY_TIMEOUT,
        lock_timeout: 2 * RECOVERY_TIMEOUT,
        statement_timeout: 2 * RECOVERY_TIMEOUT,
        ..impatient()
    };
    let store = Arc::new(PostgresJobs::open(&url, options).await.expect("open"));
    let companies = ["c1", "c2", "c3", "c4", "c5", "c6"];
    let locked = companies.map(|company| job(company, 5));
    let small = job("small", 5);
    store.insert([locked.as_slice(), std::slice::from_ref(&small)].concat()).await.expect("insert");
    let holder = other(cluster, "shared").await;
    holder
        .batch_execute("BEGIN; SELECT FROM scheduler.jobs WHERE company <> 'small' FOR UPDATE")
        .await
        .expect("locked");
    let keyed = |company: &str| {
        let mut job = job(company, 6);
        job.idempotency = Some(IdempotencyKey { key: "key".to_owned(), fingerprint: "same".to_owned() });
        job
    };
    let mut writes = tokio::task::JoinSet::new();
    for (company, job) in companies.into_iter().zip(locked) {
        let others = format!(
            "INSERT INTO scheduler.jobs (id, company, user_id, idempotency, state, dead, body)
             VALUES ('{company}', '{company}', 'ada', 'key', 'scheduled', false, '');
             SELECT pg_advisory_xact_lock(hashtextextended('{company}' || chr(31) || 'ada', 13))"
        );
        holder.batch_execute(&others).await.expect("locked");
        let scope = JobScope { company: Some(company.into()), user: None };
        let (stepping, inserting, limited) = (store.clone(), store.clone(), store.clone());
        writes.spawn(async move {
            stepping.apply_step(&scope, &job.id, Step::Cancel, at(1)).await.map(|step| step.is_applied())
        });
        let new = keyed(company);
        writes.spawn(async move {
            inserting.insert(vec![new]).await.map(|inserted| inserted == [InsertOutcome::New])
        });
        let new = self::job(company, 7);
        writes.spawn(async move {
            limited.insert_within_limit(new, 100).await.map(|inserted| inserted == InsertOutcome::New)
        });
    }
    let waits = "SELECT FROM pg_stat_activity WHERE datname = 'shared' AND wait_event_type = 'Lock'";
    let admin = other(cluster, "postgres").await;
    let are_waiting = async || admin.query(waits, &[]).await.expect("read").len() > 1;
    wait_until("writes wait for locks", are_waiting).await;
    let scope = JobScope { company: Some("small".into()), user: None };
    for n in 0..8 {
        assert!(store.get(&scope, &small.id).await.expect("read").is_some());
        store.insert(vec![job("small", n)]).await.expect("insert");
        store.count_by_state(at(1)).await.expect("the process goes on");
    }
    assert!(writes.try_join_next().is_none(), "their rows are locked");
    holder.batch_execute("ROLLBACK").await.expect("released");
    while let Some(written) = writes.join_next().await {
        assert!(written.expect("done").expect("the lock is free in time"));
    }
}

async fn identifiers_with_nul_are_refused(cluster: &Cluster) {
    let store = store(&database(cluster, "nul").await).await;
    let nul = job("ac\0me", 5);
    let refused = store.insert(vec![job("acme", 5), nul.clone()]).await;
    assert!(matches!(refused, Err(agent_platform::records::StoreError::Invalid(_))), "{refused:?}");
    let scope = JobScope { company: Some("ac\0me".into()), user: None };
    let filter = JobFilter { scope: scope.clone(), ..JobFilter::default() };
    assert!(
        store
            .list(&filter, JobOrder::OldestFirst, Some(&"a\0".into()), 5)
            .await
            .expect("list")
            .jobs
            .is_empty()
    );
    assert_eq!(store.cancel_all(&filter, at(1)).await.expect("cancel"), 0);
    assert_eq!(store.get(&JobScope::default(), &"a\0".into()).await.expect("get"), None);
    assert_eq!(
        store.apply_step(&scope, &"a".into(), Step::Cancel, at(1)).await.expect("step"),
        StepOutcome::NotFound
    );
    let steps = vec![("a\0".into(), Step::Cancel)];
    assert_eq!(store.apply_steps(steps, at(1)).await.expect("steps"), [StepOutcome::NotFound]);
}
