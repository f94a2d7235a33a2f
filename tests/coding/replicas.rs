//! Application processes over one database that are killed or stopped while they refresh users' tokens, and that refresh
//! at the same moment. The issuer ends a sign-in when a refresh token of it is presented twice.

mod fixture;
mod issuer;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use tokio::task::JoinSet;

use self::fixture::{Installation, Replica, RunOutcome, User, in_order};
use self::issuer::{MAX_LATENCY, Reuse, TokenFamily};
use crate::processes::TestDatabase;
use crate::support::cluster::Cluster;
use crate::support::random::Random;
use crate::support::{TEST_TIMEOUT, env_number, report};

/// Environment variables with the number of rounds of a test.
const KILL_ROUNDS: &str = "CODING_KILL_ROUNDS";
const STOP_ROUNDS: &str = "CODING_STOP_ROUNDS";
const REFRESH_ROUNDS: &str = "CODING_REFRESH_ROUNDS";
/// Environment variable that lets leases end in their own time, which is half a minute per round. Otherwise a lease of a
/// process that is killed or stopped is ended in the database.
const REAL_LEASES: &str = "CODING_REAL_LEASES";

/// Users of a round of kills or stops.
const USERS: usize = 12;
/// Time within which the runs of a round begin.
const SPREAD: Duration = Duration::from_millis(40);
/// Time after which a record counts as locked by a stopped process.
const WRITE_LIMIT: Duration = Duration::from_millis(500);
/// Runs of each process at the moment of expiry.
const CROWD: usize = 64;

fn has_real_leases() -> bool {
    std::env::var_os(REAL_LEASES).is_some()
}

fn sqlite() -> TestDatabase {
    TestDatabase::Sqlite(TempDir::new().expect("a folder"))
}

fn postgres() -> TestDatabase {
    TestDatabase::Postgres(Cluster::start())
}

/// Progress of a refresh when its process is killed or stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RefreshPhase {
    /// No lease is taken.
    Idle,
    /// The lease is taken; no request has arrived.
    Leased,
    /// The request has arrived; the token was not exchanged.
    Sent,
    /// The token was exchanged; the new ones are not stored.
    Answered,
    Stored,
}

/// State of a user's tokens before a refresh.
struct Before {
    family: TokenFamily,
    generation: Value,
}

impl Before {
    async fn read(installation: &Installation, user: &User) -> Self {
        let generation = installation.stored(user).await["generation"].clone();
        Self { family: installation.family(user), generation }
    }

    fn phase(&self, family: &TokenFamily, stored: &Value) -> RefreshPhase {
        if stored["generation"] != self.generation {
            RefreshPhase::Stored
        } else if family.refreshed_by.len() > self.family.refreshed_by.len() {
            RefreshPhase::Answered
        } else if family.received > self.family.received {
            RefreshPhase::Sent
        } else if stored["lease"].is_object() {
            RefreshPhase::Leased
        } else {
            RefreshPhase::Idle
        }
    }
}

/// Lets the tokens of all users expire, and returns their state.
async fn expire_all(installation: &Installation, users: &[User]) -> Vec<Before> {
    for user in users {
        installation.expire(user).await;
    }
    installation.settle().await;
    let mut before = Vec::new();
    for user in users {
        before.push(Before::read(installation, user).await);
    }
    before
}

/// Starts a run of each user, and waits until a random moment of their refreshes.
async fn start_refreshes(
    installation: &Installation,
    replica: &Replica,
    users: &[User],
    random: &mut Random,
) -> JoinSet<(usize, RunOutcome)> {
    let arrived = replica.endpoint.refreshes();
    let runs = installation.start_runs(replica, users, SPREAD, random);
    replica.endpoint.wait_for_refreshes(arrived + random.below(users.len() as u64) as usize).await;
    tokio::time::sleep(random.up_to(2 * MAX_LATENCY)).await;
    runs
}

async fn phases(installation: &Installation, users: &[User], before: &[Before]) -> Vec<RefreshPhase> {
    installation.settle().await;
    let mut phases = Vec::new();
    for (user, before) in users.iter().zip(before) {
        phases.push(before.phase(&installation.family(user), &installation.stored(user).await));
    }
    phases
}

/// Checks the outcome of the run at process `second` that follows after `phase` was reached at process `first`. Returns
/// false if the user has to sign in.
fn check_next_run(
    phase: RefreshPhase,
    outcome: &RunOutcome,
    (before, now): (&TokenFamily, &TokenFamily),
    (first, second): (usize, usize),
) -> bool {
    let refreshes = now.refreshed_by.len() - before.refreshed_by.len();
    assert_eq!(refreshes, 1, "{phase:?}: one refresh is enough: {now:?}");
    if phase == RefreshPhase::Answered && !now.reuses.is_empty() {
        // The only case in which a token is presented again: its answer existed in the process alone. It does not if the
        // answer was on its way to the database.
        assert_eq!(now.reuses, [Reuse { first, second }], "{phase:?}: {outcome:?} {now:?}");
        let RunOutcome::SignInRequired(detail) = outcome else { panic!("{phase:?}: {outcome:?}") };
        assert!(detail.contains("was interrupted while its tokens were being refreshed"), "{detail}");
        return false;
    }
    assert_eq!(now.reuses, [], "{phase:?}: no token is presented twice: {outcome:?} {now:?}");
    assert_eq!(*outcome, RunOutcome::Finished, "{phase:?}");
    true
}

/// Removes the users who are not kept.
fn retain(users: &mut Vec<User>, is_kept: &[bool]) {
    let mut is_kept = is_kept.iter();
    users.retain(|_| *is_kept.next().expect("one flag for each user"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_processes_lose_no_sign_in_over_sqlite() {
    kill_processes(sqlite(), env_number(KILL_ROUNDS, 6)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_processes_lose_no_sign_in_over_postgres() {
    kill_processes(postgres(), env_number(KILL_ROUNDS, 6)).await;
}

/// Kills a process in each round at a random moment of its users' refreshes. Only users whose answer was on its way to
/// the store have to sign in again.
async fn kill_processes(database: TestDatabase, rounds: usize) {
    let mut installation = Installation::open(database).await;
    let (mut users, mut random) = (Vec::new(), Random::with_seed(1));
    let mut replicas = [installation.start().await, installation.start().await];
    let mut reached = BTreeMap::<RefreshPhase, usize>::new();
    let mut longest = Duration::ZERO;
    for round in 0..rounds {
        installation.fill(&mut users, USERS).await;
        let before = expire_all(&installation, &users).await;
        let runs = start_refreshes(&installation, &replicas[0], &users, &mut random).await;
        let [Replica { process, endpoint: killed }, next] = replicas;
        process.kill().await;
        killed.closed().await;
        let outcomes = in_order(runs.join_all().await);
        if !has_real_leases() {
            for user in &users {
                assert!(installation.end_lease(user, TEST_TIMEOUT).await, "{user:?}");
            }
        }
        let phases = phases(&installation, &users, &before).await;
        let start = Instant::now();
        let next_outcomes = installation.run_all(&next, &users).await;
        longest = longest.max(start.elapsed());
        let mut kept = Vec::new();
        for (index, phase) in phases.into_iter().enumerate() {
            *reached.entry(phase).or_default() += 1;
            assert!(
                outcomes[index] == RunOutcome::Cut || phase == RefreshPhase::Stored,
                "round {round}: a run that has ended has stored its tokens: {phase:?} {:?}",
                outcomes[index]
            );
            let now = installation.family(&users[index]);
            let families = (&before[index].family, &now);
            let processes = (killed.process, next.endpoint.process);
            kept.push(check_next_run(phase, &next_outcomes[index], families, processes));
        }
        retain(&mut users, &kept);
        replicas = [next, installation.start().await];
    }
    installation.check_end(&users).await;
    report(&format!("{rounds} kills; refreshes by phase: {reached:?}; the next run took up to {longest:?}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_processes_overwrite_nothing_over_sqlite() {
    stop_processes(sqlite(), env_number(STOP_ROUNDS, 4)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_processes_overwrite_nothing_over_postgres() {
    stop_processes(postgres(), env_number(STOP_ROUNDS, 2)).await;
}

/// Stops a process in each round at a random moment of its users' refreshes, lets another process refresh the tokens
/// after the end of the leases, and continues the first one.
async fn stop_processes(database: TestDatabase, rounds: usize) {
    let mut installation = Installation::open(database).await;
    let (mut users, mut random) = (Vec::new(), Random::with_seed(2));
    let (stopped, other) = (installation.start().await, installation.start().await);
    let mut reached = BTreeMap::<RefreshPhase, usize>::new();
    let mut blocked_rounds = 0;
    for _ in 0..rounds {
        installation.fill(&mut users, USERS).await;
        let before = expire_all(&installation, &users).await;
        let runs = start_refreshes(&installation, &stopped, &users, &mut random).await;
        stopped.process.set_suspended(true).await;
        stopped.endpoint.idle().await;
        if installation.check_writable().await.is_err() {
            // It was stopped within a write, during which a database may refuse writes of other processes.
            blocked_rounds += 1;
            stopped.process.set_suspended(false).await;
            let outcomes = in_order(runs.join_all().await);
            assert!(outcomes.iter().all(|outcome| *outcome == RunOutcome::Finished), "{outcomes:?}");
            continue;
        }
        let (overtaken, phases) = overtaken_users(&installation, &users, &before).await;
        let outcomes = installation.run_all(&other, &overtaken).await;
        installation.settle().await;
        let mut newer = Vec::new();
        for user in &overtaken {
            newer.push(installation.stored(user).await);
        }
        stopped.process.set_suspended(false).await;
        let late_outcomes = in_order(runs.join_all().await);
        installation.settle().await;
        let mut others = outcomes.iter().zip(newer);
        let mut kept = Vec::new();
        for (index, phase) in phases.into_iter().enumerate() {
            *reached.entry(phase).or_default() += 1;
            let (user, late) = (&users[index], &late_outcomes[index]);
            let now = installation.family(user);
            let families = (&before[index].family, &now);
            let processes = (stopped.endpoint.process, other.endpoint.process);
            let is_overtaken = overtaken.iter().any(|overtaken| overtaken.id == user.id);
            let (outcome, newer) = match is_overtaken {
                true => others
                    .next()
                    .map(|(outcome, newer)| (outcome, Some(newer)))
                    .expect("one outcome for each user"),
                false => (late, None),
            };
            let phase = if is_overtaken { phase } else { RefreshPhase::Stored };
            let is_kept = check_stopped_run(phase, (outcome, late), families, processes);
            kept.push(is_kept);
            if let Some(newer) = newer.filter(|_| is_kept) {
                assert_eq!(installation.stored(user).await, newer, "{phase:?}: nothing is overwritten");
            }
        }
        retain(&mut users, &kept);
    }
    installation.check_end(&users).await;
    report(&format!(
        "{rounds} stops, {blocked_rounds} of them within a write; refreshes by phase: {reached:?}"
    ));
}

/// Checks the outcomes of the runs of a user at the process that went on meanwhile, and at the stopped one. Returns false
/// if the user's tokens are not to be used any longer.
fn check_stopped_run(
    phase: RefreshPhase,
    (outcome, late): (&RunOutcome, &RunOutcome),
    families: (&TokenFamily, &TokenFamily),
    processes: (usize, usize),
) -> bool {
    if *outcome == RunOutcome::StoreFailed {
        // A transaction of the stopped process was open.
        assert_eq!(families.1.reuses, [], "{phase:?}");
        return false;
    }
    let is_kept = check_next_run(phase, outcome, families, processes);
    let is_expected = match late {
        RunOutcome::StoreFailed => true,
        RunOutcome::Finished => is_kept,
        RunOutcome::SignInRequired(_) => !is_kept,
        RunOutcome::Cut => false,
    };
    assert!(is_expected, "{phase:?}: {late:?} after {outcome:?}");
    is_kept
}

/// Ends leases of a stopped process, and returns the users whose tokens another process may refresh, and the phases of
/// all users.
async fn overtaken_users(
    installation: &Installation,
    users: &[User],
    before: &[Before],
) -> (Vec<User>, Vec<RefreshPhase>) {
    let first = phases(installation, users, before).await;
    let limit = if has_real_leases() { 2 * TEST_TIMEOUT } else { WRITE_LIMIT };
    let mut is_free = Vec::new();
    for (user, phase) in users.iter().zip(&first) {
        is_free.push(match phase {
            RefreshPhase::Answered if !has_real_leases() => installation.end_lease(user, limit).await,
            // A process whose lease is valid by its own clock goes on to send the token.
            RefreshPhase::Leased if !has_real_leases() => false,
            _ => installation.is_writable(user, limit).await,
        });
    }
    // A request that the process sent before its stop may arrive after the first look.
    let second = phases(installation, users, before).await;
    let mut overtaken = Vec::new();
    for (index, user) in users.iter().enumerate() {
        if is_free[index] && (has_real_leases() || first[index] == second[index]) {
            overtaken.push(user.clone());
        }
    }
    (overtaken, second)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_processes_refresh_once_at_expiry_over_sqlite() {
    refresh_at_expiry(sqlite(), env_number(REFRESH_ROUNDS, 2)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_processes_refresh_once_at_expiry_over_postgres() {
    refresh_at_expiry(postgres(), env_number(REFRESH_ROUNDS, 2)).await;
}

/// Lets the tokens of one user expire in each round, and runs that user many times at each of three processes.
async fn refresh_at_expiry(database: TestDatabase, rounds: usize) {
    let mut installation = Installation::open(database).await;
    let (mut users, mut random) = (Vec::new(), Random::with_seed(3));
    installation.fill(&mut users, 1).await;
    let replicas = [installation.start().await, installation.start().await, installation.start().await];
    let crowd = vec![users[0].clone(); CROWD];
    let mut finished = 0;
    for round in 1..=rounds {
        installation.expire(&users[0]).await;
        installation.settle().await;
        let runs = replicas
            .each_ref()
            .map(|replica| installation.start_runs(replica, &crowd, Duration::ZERO, &mut random));
        for runs in runs {
            for (_, outcome) in runs.join_all().await {
                assert_eq!(outcome, RunOutcome::Finished, "round {round}");
                finished += 1;
            }
        }
        let family = installation.family(&users[0]);
        assert_eq!(
            (family.received, family.refreshed_by.len()),
            (round, round),
            "the token is refreshed once per round"
        );
        assert_eq!(family.reuses, [], "round {round}");
    }
    installation.check_end(&users).await;
    report(&format!("{rounds} expiries: {rounds} refreshes, {finished} runs finished, 0 failed"));
}
