//! Claims of jobs: order, due times, leases, quotas and notifications.

use std::collections::BTreeMap;
use std::time::Duration;

use agent_core::conformance::with_timeout;
use agent_core::ids::{CompanyId, JobId};
use futures_util::future::join_all;
use futures_util::{FutureExt, StreamExt};
use jiff::Timestamp;

use super::support::{
    SharedJobStore, at, claim_job, ended, every, expect_ok, failed, get, insert, once, step,
};
use crate::job::{
    AttemptOutcome, ClaimRequest, CompanyQuota, Job, JobState, JobStore, MAX_JOBS_PER_CLAIM, Phase, Step,
    StepError,
};
use crate::schedule::{MisfirePolicy, Schedule};

/// Returns a claim of jobs due at `now`, with a lease of a second.
fn claim_due(now: i64, limit: usize) -> ClaimRequest {
    ClaimRequest {
        now: at(now),
        due_until: at(now),
        lease_until: at(now + 1000),
        limit,
        quota: CompanyQuota::new(usize::MAX),
    }
}

async fn claim(store: &dyn JobStore, claim: ClaimRequest) -> Vec<Job> {
    expect_ok("claim", store.claim_due(claim).await)
}

fn ids<'a>(jobs: impl IntoIterator<Item = &'a Job>) -> Vec<&'a str> {
    jobs.into_iter().map(|job| job.id.as_str()).collect()
}

pub(super) async fn the_earliest_are_claimed_first(store: &dyn JobStore) {
    assert_eq!(claim(store, claim_due(100, 10)).await, [], "there is nothing yet");
    let jobs = [30, 10, 50, 20, 40].map(|ms| once("acme", ms));
    insert(store, &jobs).await;
    let first = claim(store, claim_due(100, 2)).await;
    assert_eq!(ids(&first), ids([&jobs[1], &jobs[3]]), "those that have been due for longest come first");
    for job in &first {
        assert_eq!(job.phase, Phase::Running { lease: at(1100) });
        assert_eq!((job.attempt, job.fence, job.state()), (1, 1, JobState::Running));
        assert_eq!(get(store, job).await, *job, "a job is given as it is then");
    }
    assert_eq!(claim(store, claim_due(100, 0)).await, [], "nothing is given to those who want nothing");
    let rest = claim(store, claim_due(100, usize::MAX)).await;
    assert_eq!(ids(&rest), ids([&jobs[0], &jobs[4], &jobs[2]]), "what was claimed is not claimed again");
    assert_eq!(claim(store, claim_due(100, 10)).await, []);
}

pub(super) async fn nothing_is_claimed_early(store: &dyn JobStore) {
    let jobs = [10, 20, 30, 15].map(|ms| once("acme", ms));
    insert(store, &jobs).await;
    step(store, &jobs[3], Step::Pause, at(1)).await.expect("it is open");
    assert_eq!(claim(store, claim_due(9, 10)).await, [], "nothing is due yet");
    assert_eq!(ids(&claim(store, claim_due(10, 10)).await), ids([&jobs[0]]), "a job is due at its time");
    let ahead = ClaimRequest { due_until: at(20), ..claim_due(11, 10) };
    let taken = claim(store, ahead).await;
    assert_eq!(ids(&taken), ids([&jobs[1]]), "a job can be taken ahead of its time, and a paused one is not");
    assert_eq!(taken[0].place.scheduled_for, at(20));
    step(store, &jobs[3], Step::Resume, at(25)).await.expect("it is open");
    assert_eq!(
        ids(&claim(store, claim_due(25, 10)).await),
        ids([&jobs[3]]),
        "it is claimed once it is resumed"
    );
    // A failed attempt is due again only after its backoff.
    step(store, &jobs[0], ended(&get(store, &jobs[0]).await, failed()), at(26)).await.expect("it is held");
    let retry = get(store, &jobs[0]).await;
    assert!(retry.due > at(400), "an attempt that failed is not tried again at once");
    assert_eq!(ids(&claim(store, claim_due(400, 10)).await), ids([&jobs[2]]));
    assert_eq!(ids(&claim(store, claim_due(600, 10)).await), ids([&jobs[0]]), "it is tried again");
    assert_eq!(get(store, &jobs[0]).await.attempt, 2);
}

pub(super) async fn a_lease_holds_until_it_runs_out(store: &dyn JobStore) {
    let jobs = [once("acme", 10), once("acme", 500)];
    insert(store, &jobs).await;
    let held = claim(store, claim_due(10, 1)).await.remove(0);
    let ahead = |now, until| ClaimRequest { due_until: at(until), ..claim_due(now, 10) };
    assert_eq!(claim(store, claim_due(499, 10)).await, [], "whoever holds a job holds it alone");
    let taken = claim(store, ahead(499, 5000)).await;
    assert_eq!(
        ids(&taken),
        ids([&jobs[1]]),
        "a lease that runs out only later is not taken ahead of its end"
    );
    step(store, &held, Step::Extend { fence: held.fence, lease: at(1200) }, at(900))
        .await
        .expect("it is held");
    assert_eq!(claim(store, claim_due(1199, 10)).await, [], "a lease is extended");
    let again = claim(store, claim_due(1200, 10)).await;
    assert_eq!(ids(&again), ids([&jobs[0]]), "what nobody holds any more is claimed again");
    assert_eq!((again[0].fence, again[0].attempt), (held.fence + 1, 2), "by a new number");
    for late in [
        ended(&held, AttemptOutcome::Succeeded),
        Step::Extend { fence: held.fence, lease: at(9000) },
        Step::Release { fence: held.fence },
    ] {
        let refused = step(store, &held, late, at(1300)).await;
        assert_eq!(
            refused.map(|stepped| stepped.job),
            Err(StepError::Stale),
            "whoever held it before is late"
        );
    }
    assert_eq!(get(store, &held).await, again[0], "and changes nothing");
    step(store, &held, Step::Release { fence: again[0].fence }, at(1300)).await.expect("it is held");
    let released = claim(store, claim_due(1300, 10)).await;
    assert_eq!(ids(&released), ids([&jobs[0]]), "what is given back can be claimed at once");
    assert_eq!((released[0].fence, released[0].attempt), (held.fence + 2, 2), "and has not been tried");
}

pub(super) async fn a_company_has_its_share(store: &dyn JobStore) {
    let mut jobs: Vec<Job> = (0..300).map(|n| once("greedy", n / 3)).collect();
    jobs.extend((0..3).map(|n| once("modest", 200 + n)));
    jobs.extend((0..3).map(|n| once("small", 300 + n)));
    insert(store, &jobs).await;
    let of = |quota: CompanyQuota, limit| ClaimRequest { quota, ..claim_due(400, limit) };
    let shares = |jobs: &[Job]| {
        let mut shares: BTreeMap<CompanyId, usize> = BTreeMap::new();
        for job in jobs {
            *shares.entry(job.payload.company_id.clone()).or_default() += 1;
        }
        shares.into_iter().collect::<Vec<_>>()
    };
    let expect = |shares: &[(&str, usize)]| -> Vec<(CompanyId, usize)> {
        shares.iter().map(|(company, count)| ((*company).into(), *count)).collect()
    };
    let claimed = claim(store, of(CompanyQuota::new(2), 10)).await;
    let two_each = expect(&[("greedy", 2), ("modest", 2), ("small", 2)]);
    assert_eq!(shares(&claimed), two_each, "those behind many of one company get their share");
    let mut quota = CompanyQuota::new(2);
    assert!(quota.take("greedy") && quota.take("greedy") && quota.take("small"));
    let claimed = claim(store, of(quota, 10)).await;
    let rest = expect(&[("modest", 1), ("small", 1)]);
    assert_eq!(shares(&claimed), rest, "what is under way counts");
    assert_eq!(claim(store, of(CompanyQuota::new(0), 10)).await, [], "a share of nothing is nothing");
    let claimed = claim(store, of(CompanyQuota::new(50), 20)).await;
    assert_eq!(shares(&claimed), expect(&[("greedy", 20)]), "the limit is of all together");
}

pub(super) async fn what_was_missed_is_left_out(store: &dyn JobStore) {
    let mut skips = every("acme", 1_000_000);
    skips.misfire = MisfirePolicy::Skip;
    let runs = every("acme", 1_000_000);
    insert(store, &[skips.clone(), runs.clone()]).await;
    let mut quota = CompanyQuota::new(1);
    let late = |quota| ClaimRequest { quota, ..claim_due(1_500_000, 10) };
    let claimed = claim(store, late(quota.clone())).await;
    assert_eq!(ids(&claimed), ids([&runs]), "what is left out is not delivered, and takes nobody's share");
    let next = get(store, &skips).await;
    assert_eq!((next.state(), next.due), (JobState::Scheduled, at(2_000_000)), "it goes on with the next");
    assert!(quota.take("acme"));
    assert_eq!(claim(store, late(quota)).await, []);
    // A job whose last attempt lost its lease is discarded when a claim finds it.
    let mut last = once("acme", 10);
    last.max_attempts = 1;
    insert(store, std::slice::from_ref(&last)).await;
    claim_job(store, &last, at(10), at(20)).await;
    assert_eq!(claim(store, claim_due(20, 10)).await, [], "there is no attempt left");
    assert_eq!(get(store, &last).await.state(), JobState::Discarded);
}

pub(super) async fn postponed_occurrences_use_no_attempt(store: &dyn JobStore) {
    const HOUR: i64 = 3_600_000;
    const DAY: i64 = 24 * HOUR;
    let spent =
        |retry_after| AttemptOutcome::Postponed { error: "the budget is spent".to_owned(), retry_after };
    let a_month = Duration::from_secs(31 * 24 * 3600);
    let single = |job| Job { max_attempts: 1, ..job };
    let hourly = single(every("acme", HOUR.unsigned_abs()));
    let jobs = [single(once("acme", HOUR)), hourly];
    insert(store, &jobs).await;
    let mut now = HOUR;
    for _ in 0..35 {
        let held = claim(store, claim_due(now, 10)).await;
        assert_eq!(held.len(), 2, "both are delivered again after a day");
        for job in &held {
            assert_eq!(
                (job.place.occurrence, job.attempt),
                (1, 1),
                "the same occurrence, and its only attempt"
            );
            step(store, job, ended(job, spent(a_month)), at(now)).await.expect("it is held");
            let kept = get(store, job).await;
            assert_eq!((kept.state(), kept.attempt), (JobState::Retryable, 0), "no attempt is used up");
            assert_eq!((kept.attempts.len(), kept.last_error()), (1, Some("the budget is spent")));
        }
        assert_eq!(claim(store, claim_due(now + DAY - 1, 10)).await, [], "they wait meanwhile");
        now += DAY;
    }
    // What has waited for longer than any window of a budget fails: the receiver answers the same for ever.
    for job in claim(store, claim_due(now, 10)).await {
        step(store, &job, ended(&job, spent(a_month)), at(now)).await.expect("it is held");
    }
    assert_eq!(get(store, &jobs[0]).await.state(), JobState::Discarded);
    let periodic = get(store, &jobs[1]).await;
    assert_eq!((periodic.state(), periodic.dead_letters.len()), (JobState::Scheduled, 1));
    assert_eq!(periodic.place.occurrence, 2, "the occurrences of that month have not piled up");
    assert_eq!(periodic.due, at(now + HOUR));
}

pub(super) async fn a_busy_receiver_uses_no_attempt_after_a_postponement(store: &dyn JobStore) {
    const HOUR: i64 = 3_600_000;
    let job = Job { max_attempts: 1, ..once("acme", HOUR) };
    insert(store, std::slice::from_ref(&job)).await;
    let report = async |outcome: AttemptOutcome, now: i64| {
        let held = claim(store, claim_due(now, 10)).await;
        assert_eq!((held.len(), held[0].attempt), (1, 1), "it is its only attempt");
        step(store, &held[0], ended(&held[0], outcome), at(now)).await.expect("it is held");
        get(store, &job).await
    };
    let retry_after = Duration::from_secs(2 * 3600);
    let spent = AttemptOutcome::Postponed { error: "the budget is spent".to_owned(), retry_after };
    let busy = || AttemptOutcome::Deferred { error: "it is busy".to_owned(), retry_after: None };
    let waits = report(spent, HOUR).await;
    assert_eq!((waits.state(), waits.due), (JobState::Retryable, at(3 * HOUR)));
    for now in [3 * HOUR, 3 * HOUR + HOUR / 2, 4 * HOUR - 1_000] {
        let kept = report(busy(), now).await;
        assert_eq!((kept.state(), kept.attempt), (JobState::Retryable, 0), "it has an hour since then");
        assert_eq!(kept.last_error(), Some("the budget is spent"));
    }
    let over = report(busy(), 4 * HOUR).await;
    assert_eq!((over.state(), over.last_error()), (JobState::Discarded, Some("it is busy")));
}

pub(super) async fn one_call_ends(store: &dyn JobStore) {
    let jobs: Vec<Job> = (0..MAX_JOBS_PER_CLAIM as i64 + 20).map(|n| once("acme", n)).collect();
    insert(store, &jobs).await;
    let claimed = claim(store, claim_due(5000, usize::MAX)).await;
    assert_eq!(ids(&claimed), ids(&jobs[..MAX_JOBS_PER_CLAIM]), "a claim has a limit");
    assert_eq!(claim(store, claim_due(5000, usize::MAX)).await.len(), 20, "the others wait for the next one");
}

pub(super) async fn two_never_claim_the_same(store: SharedJobStore) {
    const CLAIMERS: usize = 8;
    let jobs: Vec<Job> = (0..200).map(|n| once("acme", n % 7)).collect();
    insert(&*store, &jobs).await;
    let claimers = (0..CLAIMERS).map(|_| {
        let store = store.clone();
        async move {
            let mut mine = Vec::new();
            loop {
                let claimed = claim(&*store, claim_due(100, 7)).await;
                if claimed.is_empty() {
                    return mine;
                }
                mine.extend(claimed.into_iter().map(|job| job.id));
            }
        }
    });
    let mut claimed: Vec<JobId> = join_all(claimers).await.concat();
    claimed.sort();
    assert_eq!(claimed, ids(&jobs), "each job is claimed by one, and all are claimed");
}

pub(super) async fn the_earliest_is_told(store: &dyn JobStore) {
    let earliest = async || expect_ok("earliest", store.next_run_at().await);
    assert_eq!(earliest().await, None, "there is nothing yet");
    let jobs = [once("acme", 50), once("other", 30)];
    insert(store, &jobs).await;
    assert_eq!(earliest().await, Some(at(30)), "whosever it is");
    let held = claim_job(store, &jobs[1], at(30), at(5000)).await;
    assert_eq!(earliest().await, Some(at(50)));
    step(store, &jobs[0], Step::Pause, at(40)).await.expect("it is open");
    assert_eq!(earliest().await, Some(at(5000)), "a lease is looked at when it runs out");
    step(store, &jobs[1], ended(&held, AttemptOutcome::Succeeded), at(60)).await.expect("it is held");
    assert_eq!(earliest().await, None, "what is paused or final does not wake");
    step(store, &jobs[0], Step::Resume, at(70)).await.expect("it is open");
    assert_eq!(earliest().await, Some(at(70)));
    // Fractions of a millisecond are rounded up, so that no job is early.
    let later = Timestamp::from_nanosecond(at(10).as_nanosecond() + 1).expect("a time");
    step(store, &jobs[0], Step::Cancel, at(80)).await.expect("a job can be cancelled");
    insert(store, &[Job { due: later, ..once("acme", 10) }]).await;
    let told = earliest().await.expect("there is one");
    assert!((later..=at(11)).contains(&told), "it is told to the millisecond, and not too early: {told}");
    assert_eq!(claim(store, claim_due(10, 10)).await, [], "it is not claimed before its time");
    assert_eq!(claim(store, claim_due(11, 10)).await.len(), 1);
}

pub(super) async fn who_waits_is_told_of_an_earlier_one(store: &dyn JobStore) {
    let first = once("acme", 1000);
    insert(store, std::slice::from_ref(&first)).await;
    // Each check opens a new stream, which does not report earlier events.
    let mut wakes = store.notifications();
    insert(store, &[once("acme", 500)]).await;
    with_timeout("a job that is due earlier than all others", wakes.next())
        .await
        .expect("the signal goes on");
    let mut wakes = store.notifications();
    assert!(wakes.next().now_or_never().is_none(), "what was before does not wake");
    step(store, &first, Step::Reschedule(Schedule::At(at(100))), at(1)).await.expect("it is open");
    with_timeout("a job that was moved to the front", wakes.next()).await.expect("the signal goes on");
    let mut wakes = store.notifications();
    step(store, &first, Step::Pause, at(2)).await.expect("it is open");
    step(store, &first, Step::Resume, at(3)).await.expect("it is open");
    with_timeout("a job that was resumed at the front", wakes.next()).await.expect("the signal goes on");
    let [mut one, mut two] = [store.notifications(), store.notifications()];
    insert(store, &[once("acme", 50)]).await;
    for stream in [&mut one, &mut two] {
        with_timeout("a job that is due earlier", stream.next()).await.expect("everybody who waits is told");
    }
}
