use std::io::{BufRead, BufReader, Write as _};
use std::sync::Arc;

use agent_jobs::job::{ClaimRequest, CompanyQuota, Job, JobScope, JobState, JobStore, StepOutcome};
use agent_store::sqlite::{SqliteOptions, SqliteStore};
use jiff::{SignedDuration, Timestamp};

use super::jobs::{job, succeeded};
use super::kill::{FILE, Killed, start};
use super::{TempStore, uncached};

const ROUNDS: usize = 10;
/// Maximum number of jobs that a child stores.
const JOBS: usize = 400;

/// Kills a process that stores and delivers jobs, repeatedly on the same file.
#[tokio::test]
async fn no_acknowledged_job_is_lost_by_a_kill() {
    let temp_store = TempStore::new();
    let (mut stored, mut done) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let mut child = Killed(start("kill_jobs::delivers_until_it_is_killed", &temp_store.file(), round));
        let stdout = child.0.stdout.take().expect("a pipe");
        let mut lines = BufReader::new(stdout).lines().map(|line| line.expect("a line"));
        let mut note = |line: String| match line.split_once(' ') {
            Some(("stored", id)) => stored.push(id.to_owned()),
            Some(("done", id)) => done.push(id.to_owned()),
            _ => {}
        };
        // Kill times fall at any point of the work: eight tasks run at any time.
        for _ in 0..20 + (round * 71) % JOBS {
            note(lines.next().expect("the child goes on"));
        }
        child.0.kill().expect("killed");
        // Acknowledgements that were written before the kill.
        lines.for_each(note);
        child.0.wait().expect("ended");
        look(&temp_store, &stored, &done).await;
    }
    assert!(stored.len() > ROUNDS && done.len() > ROUNDS, "jobs are stored and completed before the kills");

    // The next process delivers all remaining jobs.
    let store = temp_store.store(uncached());
    let later = Timestamp::now() + SignedDuration::from_secs(3600);
    loop {
        let claimed = store.claim_due(claim(later)).await.expect("claim");
        if claimed.is_empty() {
            break;
        }
        store.apply_steps(claimed.iter().map(succeeded).collect(), later).await.expect("steps");
    }
    for id in &stored {
        let job = get(&store, id).await;
        assert_eq!(job.state(), JobState::Completed, "{job:?}");
    }
}

async fn look(temp_store: &TempStore, stored: &[String], done: &[String]) {
    let store = temp_store.store(uncached());
    assert_eq!(store.check_integrity().await.expect("a check"), Vec::<String>::new());
    for id in stored {
        get(&store, id).await;
    }
    for id in done {
        assert_eq!(get(&store, id).await.state(), JobState::Completed, "completed jobs stay completed");
    }
}

async fn get(store: &SqliteStore, id: &str) -> Job {
    JobStore::get(store, &JobScope::default(), &id.into())
        .await
        .expect("read")
        .expect("an acknowledged write is stored")
}

fn claim(now: Timestamp) -> ClaimRequest {
    ClaimRequest {
        now,
        due_until: now,
        lease_until: now + SignedDuration::from_secs(1),
        limit: 3,
        quota: CompanyQuota::new(100),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the child of the test above"]
async fn delivers_until_it_is_killed() {
    let file = std::env::var_os(FILE).expect("the test above says where");
    let store = Arc::new(SqliteStore::open(file, SqliteOptions::default()).expect("open"));
    // Written directly, because the test harness may capture the output of `println!`.
    let say = |what: &str, id: &str| writeln!(std::io::stdout(), "{what} {id}").expect("the parent listens");
    let tasks = (0..8).map(|_| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for _ in 0..JOBS / 8 {
                let job = job("acme", 1);
                let id = job.id.clone();
                store.insert(vec![job]).await.expect("insert");
                say("stored", &id);
                let now = Timestamp::now();
                let claimed = store.claim_due(claim(now)).await.expect("claim");
                let ended =
                    store.apply_steps(claimed.iter().map(succeeded).collect(), now).await.expect("steps");
                for ended in ended.into_iter().filter_map(StepOutcome::applied) {
                    say("done", &ended.job.id);
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("delivered");
    }
}
