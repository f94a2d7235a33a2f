use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use agent_jobs::job::{
    AttemptOutcome, ClaimRequest, CompanyQuota, IdempotencyKey, InsertOutcome, Job, JobFilter, JobOrder,
    JobScope, JobState, JobStore, Step,
};
use agent_jobs::schedule::Schedule;
use agent_store::postgres::PostgresJobs;
use futures_util::future::join_all;
use futures_util::stream::{StreamExt, poll_fn};
use tokio_postgres::{AsyncMessage, NoTls};

use super::{Cluster, at, database, job, other, store};

const NOTIFICATION_TIMEOUT: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn processes_share_a_database() {
    let cluster = Cluster::start();
    database(&cluster, "shared").await;
    no_job_is_claimed_twice_and_none_is_lost(&cluster).await;
    keys_in_any_order_are_one_jobs_each(&cluster).await;
    steps_in_any_order_wait_and_do_not_block_one_another(&cluster).await;
    other_processes_are_notified_of_the_earliest_job_only(&cluster).await;
    others_wake(&cluster).await;
    due_jobs_behind_thousands_of_others_are_claimed(&cluster).await;
    an_unreadable_job_blocks_no_other(&cluster).await;
    a_cancelled_call_leaves_no_partial_write(&cluster).await;
}

/// Opens several stores on one empty database, like separate processes.
async fn stores<const N: usize>(cluster: &Cluster) -> [Arc<PostgresJobs>; N] {
    let url = cluster.url("shared");
    let stores = join_all((0..N).map(|_| store(&url))).await;
    other(cluster, "shared").await.batch_execute("TRUNCATE scheduler.jobs").await.expect("emptied");
    let stores: Vec<_> = stores.into_iter().map(Arc::new).collect();
    stores.try_into().expect("there are as many")
}

fn due(now: i64, limit: usize, each: usize) -> ClaimRequest {
    ClaimRequest {
        now: at(now),
        due_until: at(now),
        lease_until: at(now + 60_000),
        limit,
        quota: CompanyQuota::new(each),
    }
}

async fn no_job_is_claimed_twice_and_none_is_lost(cluster: &Cluster) {
    const JOBS: usize = 2000;
    let stores = stores::<2>(cluster).await;
    let companies = ["acme", "beta", "other"];
    let jobs: Vec<Job> = (0..JOBS).map(|n| job(companies[n % 7 % 3], (n % 50) as i64)).collect();
    stores[0].insert(jobs.clone()).await.expect("insert");
    let work = |store: Arc<PostgresJobs>| async move {
        let mut done = Vec::new();
        loop {
            let claimed = store.claim_due(due(100, 20, 9)).await.expect("claim");
            if claimed.is_empty() && store.next_run_at().await.expect("read").is_none() {
                return done;
            }
            let end = |job: &Job| {
                let duration = Duration::from_millis(1);
                let outcome = AttemptOutcome::Succeeded;
                (job.id.clone(), Step::End { fence: job.fence, outcome, duration, status: None, jitter: 0 })
            };
            let ended = store.apply_steps(claimed.iter().map(end).collect(), at(101)).await.expect("steps");
            assert!(
                ended.iter().all(|ended| ended.is_applied()),
                "the process that claimed a job can complete it"
            );
            done.extend(claimed.into_iter().map(|job| job.id));
        }
    };
    let workers: Vec<_> = (0..8).map(|n| tokio::spawn(work(Arc::clone(&stores[n % 2])))).collect();
    let mut done = Vec::new();
    for worker in workers {
        done.extend(worker.await.expect("it works to the end"));
    }
    assert_eq!(done.len(), JOBS, "each is claimed by one, and all are claimed");
    assert_eq!(done.iter().collect::<BTreeSet<_>>().len(), JOBS);
    let counts = stores[1].count_by_state(at(200)).await.expect("counts");
    assert_eq!(counts.by_state[&JobState::Completed], JOBS as u64);
}

async fn keys_in_any_order_are_one_jobs_each(cluster: &Cluster) {
    let stores = stores::<2>(cluster).await;
    for round in 0..20 {
        let batch = |rotate: usize| {
            let mut jobs: Vec<Job> = (0..20)
                .map(|n| {
                    let mut job = job("acme", 5);
                    let (key, fingerprint) = (format!("{round}-{n}"), "f".to_owned());
                    job.idempotency = Some(IdempotencyKey { key, fingerprint });
                    job
                })
                .collect();
            jobs.rotate_left(rotate);
            jobs
        };
        let tasks: Vec<_> = (0..6)
            .map(|n| {
                let (store, jobs) = (Arc::clone(&stores[n % 2]), batch(n * 3));
                tokio::spawn(async move { store.insert(jobs).await.expect("insert") })
            })
            .collect();
        let mut new = 0;
        for task in tasks {
            let inserted = task.await.expect("done");
            assert_eq!(inserted.len(), 20);
            assert!(inserted.iter().all(|inserted| !matches!(inserted, InsertOutcome::KeyConflict(_))));
            new += inserted.iter().filter(|inserted| **inserted == InsertOutcome::New).count();
        }
        assert_eq!(new, 20, "of those with a key, one is stored");
    }
}

async fn steps_in_any_order_wait_and_do_not_block_one_another(cluster: &Cluster) {
    let stores = stores::<2>(cluster).await;
    let jobs: Vec<Job> = (0..30).map(|_| job("acme", 5)).collect();
    stores[0].insert(jobs.clone()).await.expect("insert");
    let tasks: Vec<_> = (0..12)
        .map(|n| {
            let (store, mut ids) =
                (Arc::clone(&stores[n % 2]), jobs.iter().map(|job| job.id.clone()).collect::<Vec<_>>());
            ids.rotate_left(n * 5 % 30);
            tokio::spawn(async move {
                for _ in 0..5 {
                    let steps = |step: Step| ids.iter().map(|id| (id.clone(), step.clone())).collect();
                    store.apply_steps(steps(Step::Pause), at(1)).await.expect("paused");
                    store.apply_steps(steps(Step::Resume), at(1)).await.expect("resumed");
                }
                store.cancel_all(&JobFilter::default(), at(2)).await.expect("cancelled")
            })
        })
        .collect();
    let mut cancelled = 0;
    for task in tasks {
        cancelled += task.await.expect("done");
    }
    assert_eq!(cancelled, 30, "each is cancelled once");
}

async fn other_processes_are_notified_of_the_earliest_job_only(cluster: &Cluster) {
    let [store] = stores::<1>(cluster).await;
    let (listening, mut connection) =
        tokio_postgres::connect(&cluster.url("shared"), NoTls).await.expect("a connection");
    let (heard, mut notifications) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut messages = poll_fn(move |cx| connection.poll_message(cx));
        while let Some(Ok(message)) = messages.next().await {
            if let AsyncMessage::Notification(notification) = message {
                let _ = heard.send(notification.payload().to_owned());
            }
        }
    });
    listening.batch_execute("LISTEN scheduler_jobs").await.expect("it listens");
    let mut heard_until_now = async |what: &str, expected: usize| {
        // Notifications arrive in the order in which they were sent.
        listening.batch_execute("NOTIFY scheduler_jobs, 'now'").await.expect("told");
        let mut heard = 0;
        while tokio::time::timeout(NOTIFICATION_TIMEOUT, notifications.recv())
            .await
            .expect("in time")
            .expect("it goes on")
            != "now"
        {
            heard += 1;
        }
        assert_eq!(heard, expected, "{what}");
    };
    let first = job("acme", 1000);
    store.insert(vec![first.clone()]).await.expect("insert");
    heard_until_now("the first is the earliest", 1).await;
    store.insert(vec![job("acme", 2000), job("acme", 1000)]).await.expect("insert");
    heard_until_now("jobs that are not the earliest send no notification", 0).await;
    let batch: Vec<Job> = (0..50).map(|n| job("acme", 900 - n)).collect();
    store.insert(batch).await.expect("insert");
    heard_until_now("many inserts send one notification", 1).await;
    let step = async |step: Step| {
        store.apply_step(&JobScope::default(), &first.id, step, at(1)).await.expect("step")
    };
    step(Step::Pause).await.applied().expect("it is open");
    step(Step::Resume).await.applied().expect("it is open");
    heard_until_now("a job that returns to its position sends no notification", 0).await;
    step(Step::Reschedule(Schedule::At(at(10)))).await.applied().expect("it is open");
    heard_until_now("a job that moves to the front sends a notification", 1).await;
    store.claim_due(due(3000, 100, 100)).await.expect("claim");
    heard_until_now("a claim sends no notification", 0).await;
}

async fn others_wake(cluster: &Cluster) {
    let [one, two] = stores::<2>(cluster).await;
    let mut wakes = two.notifications();
    one.insert(vec![job("acme", 5)]).await.expect("insert");
    tokio::time::timeout(NOTIFICATION_TIMEOUT, wakes.next())
        .await
        .expect("a notification arrives")
        .expect("the stream continues");
}

async fn a_cancelled_call_leaves_no_partial_write(cluster: &Cluster) {
    let [store] = stores::<1>(cluster).await;
    let jobs: Vec<Job> = (0..50).map(|_| job("acme", 5)).collect();
    store.insert(jobs.clone()).await.expect("insert");
    for n in 0..40_u64 {
        let steps =
            jobs.iter().map(|job| (job.id.clone(), if n % 2 == 0 { Step::Pause } else { Step::Resume }));
        let taken = store.apply_steps(steps.collect(), at(1));
        // The timeout drops the operation at an arbitrary point; its locks must be released.
        let _ = tokio::time::timeout(Duration::from_micros(n * 150), taken).await;
        let page = store.list(&JobFilter::default(), JobOrder::OldestFirst, None, 100).await.expect("list");
        let paused = page.jobs.iter().filter(|job| job.paused).count();
        assert!([0, 50].contains(&paused), "all or none: {paused}");
    }
    assert_eq!(store.cancel_all(&JobFilter::default(), at(2)).await.expect("nothing is locked"), 50);
}

async fn due_jobs_behind_thousands_of_others_are_claimed(cluster: &Cluster) {
    let [store] = stores::<1>(cluster).await;
    let mut jobs: Vec<Job> = (0..2500).map(|n| job("greedy", n / 2)).collect();
    jobs.extend((0..3).map(|n| job("modest", 5000 - n)));
    jobs.extend((0..3).map(|n| job("small", 4000 + n)));
    jobs.push(job("later", 9000));
    store.insert(jobs).await.expect("insert");
    let mut quota = CompanyQuota::new(2);
    assert!(quota.take("greedy") && quota.take("greedy") && quota.take("small"));
    let claim = ClaimRequest { quota, ..due(6000, 10, 2) };
    let claimed = store.claim_due(claim).await.expect("claim");
    let claimed: Vec<_> =
        claimed.iter().map(|job| (job.payload.company_id.as_str(), job.position.scheduled_for)).collect();
    assert_eq!(claimed, [("small", at(4000)), ("modest", at(4998)), ("modest", at(4999))]);
    let claimed = store.claim_due(due(6000, 5, 2)).await.expect("claim");
    let companies: Vec<_> = claimed.iter().map(|job| job.payload.company_id.as_str()).collect();
    assert_eq!(companies, ["greedy", "greedy", "small", "small", "modest"]);
}

async fn an_unreadable_job_blocks_no_other(cluster: &Cluster) {
    let [store] = stores::<1>(cluster).await;
    let jobs = [job("acme", 1), job("acme", 2)];
    store.insert(jobs.to_vec()).await.expect("insert");
    let damage = "UPDATE scheduler.jobs SET body = '{\"secret\":1}' WHERE id = $1";
    other(cluster, "shared").await.execute(damage, &[&jobs[0].id.as_str()]).await.expect("damaged");
    let claimed = store.claim_due(due(5, 10, 10)).await.expect("claim");
    assert_eq!(claimed.iter().map(|job| &job.id).collect::<Vec<_>>(), [&jobs[1].id]);
    let refused = store.get(&JobScope::default(), &jobs[0].id).await.expect_err("it cannot be read");
    assert!(matches!(&refused, agent_platform::records::StoreError::Malformed { .. }), "{refused:?}");
    assert!(!format!("{refused:?} {refused}").contains("secret\":"), "{refused:?}");
    let next = store.next_run_at().await.expect("read").expect("it is kept");
    assert!(next > at(5), "an unreadable job is retried only later: {next}");
}
