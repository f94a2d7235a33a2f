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
    AttemptOutcome, ClaimRequest, CompanyQuota, Job, JobState, JobStore, MAX_ABANDONED, MAX_JOBS_PER_CLAIM,
    Phase, Step, StepError,
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

pub(super) async fn the_earliest_jobs_are_claimed_first(store: &dyn JobStore) {
    assert_eq!(claim(store, claim_due(100, 10)).await, [], "the store is empty");
    let jobs = [30, 10, 50, 20, 40].map(|ms| once("acme", ms));
    insert(store, &jobs).await;
    let first = claim(store, claim_due(100, 2)).await;
    assert_eq!(
        ids(&first),
        ids([&jobs[1], &jobs[3]]),
        "the jobs that have been due for longest are claimed first"
    );
    for job in &first {
        assert_eq!(job.phase, Phase::Running { lease: at(1100) });
        assert_eq!((job.attempt, job.fence, job.state()), (1, 1, JobState::Running));
        assert_eq!(get(store, job).await, *job, "a claim returns the job in its new state");
    }
    assert_eq!(claim(store, claim_due(100, 0)).await, [], "a limit of zero claims no job");
    let remaining_jobs = claim(store, claim_due(100, usize::MAX)).await;
    assert_eq!(
        ids(&remaining_jobs),
        ids([&jobs[0], &jobs[4], &jobs[2]]),
        "a claimed job is not claimed again"
    );
    assert_eq!(claim(store, claim_due(100, 10)).await, []);
}

pub(super) async fn no_job_is_claimed_before_it_is_due(store: &dyn JobStore) {
    let jobs = [10, 20, 30, 15].map(|ms| once("acme", ms));
    insert(store, &jobs).await;
    step(store, &jobs[3], Step::Pause, at(1)).await.expect("the job is open");
    assert_eq!(claim(store, claim_due(9, 10)).await, [], "nothing is due yet");
    assert_eq!(ids(&claim(store, claim_due(10, 10)).await), ids([&jobs[0]]), "a job is due at its time");
    let ahead = ClaimRequest { due_until: at(20), ..claim_due(11, 10) };
    let claimed = claim(store, ahead).await;
    assert_eq!(
        ids(&claimed),
        ids([&jobs[1]]),
        "a job can be claimed ahead of its time, and a paused one is not"
    );
    assert_eq!(claimed[0].position.scheduled_for, at(20));
    step(store, &jobs[3], Step::Resume, at(25)).await.expect("the job is open");
    assert_eq!(ids(&claim(store, claim_due(25, 10)).await), ids([&jobs[3]]), "a resumed job is claimed");
    // A failed attempt is due again only after its backoff.
    step(store, &jobs[0], ended(&get(store, &jobs[0]).await, failed()), at(26))
        .await
        .expect("the claim is current");
    let retry = get(store, &jobs[0]).await;
    assert!(retry.due > at(400), "a failed attempt is retried only after a delay");
    assert_eq!(ids(&claim(store, claim_due(400, 10)).await), ids([&jobs[2]]));
    assert_eq!(ids(&claim(store, claim_due(600, 10)).await), ids([&jobs[0]]), "a failed attempt is retried");
    assert_eq!(get(store, &jobs[0]).await.attempt, 2);
}

pub(super) async fn a_lease_excludes_other_claims_until_it_expires(store: &dyn JobStore) {
    let jobs = [once("acme", 10), once("acme", 500)];
    insert(store, &jobs).await;
    let claimed = claim(store, claim_due(10, 1)).await.remove(0);
    let ahead = |now, until| ClaimRequest { due_until: at(until), ..claim_due(now, 10) };
    assert_eq!(claim(store, claim_due(499, 10)).await, [], "a job under a lease is not claimed");
    let claimed_ahead = claim(store, ahead(499, 5000)).await;
    assert_eq!(ids(&claimed_ahead), ids([&jobs[1]]), "a lease is not reclaimed before it expires");
    step(store, &claimed, Step::Extend { fence: claimed.fence, lease: at(1200) }, at(900))
        .await
        .expect("the claim is current");
    assert_eq!(claim(store, claim_due(1199, 10)).await, [], "an extended lease is not reclaimed");
    let reclaimed = claim(store, claim_due(1200, 10)).await;
    assert_eq!(ids(&reclaimed), ids([&jobs[0]]), "a job with an expired lease is claimed again");
    assert_eq!((reclaimed[0].fence, reclaimed[0].attempt), (claimed.fence + 1, 1), "a claim has a new fence");
    for stale_step in [
        ended(&claimed, AttemptOutcome::Succeeded),
        Step::Extend { fence: claimed.fence, lease: at(9000) },
        Step::Release { fence: claimed.fence },
    ] {
        let result = step(store, &claimed, stale_step, at(1300)).await;
        assert_eq!(
            result.map(|step_result| step_result.job),
            Err(StepError::Stale),
            "a step with an older fence is stale"
        );
    }
    assert_eq!(get(store, &claimed).await, reclaimed[0], "a stale step changes nothing");
    step(store, &claimed, Step::Release { fence: reclaimed[0].fence }, at(1300))
        .await
        .expect("the claim is current");
    let released = claim(store, claim_due(1300, 10)).await;
    assert_eq!(ids(&released), ids([&jobs[0]]), "a released job can be claimed at once");
    assert_eq!(
        (released[0].fence, released[0].attempt),
        (claimed.fence + 2, 1),
        "a released attempt does not count"
    );
}

pub(super) async fn claims_respect_company_quotas(store: &dyn JobStore) {
    let mut jobs: Vec<Job> = (0..300).map(|n| once("greedy", n / 3)).collect();
    jobs.extend((0..3).map(|n| once("modest", 200 + n)));
    jobs.extend((0..3).map(|n| once("small", 300 + n)));
    insert(store, &jobs).await;
    let claim_with_quota = |quota: CompanyQuota, limit| ClaimRequest { quota, ..claim_due(400, limit) };
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
    let claimed = claim(store, claim_with_quota(CompanyQuota::new(2), 10)).await;
    let two_each = expect(&[("greedy", 2), ("modest", 2), ("small", 2)]);
    assert_eq!(shares(&claimed), two_each, "jobs behind many of another company are claimed");
    let mut quota = CompanyQuota::new(2);
    assert!(quota.take("greedy") && quota.take("greedy") && quota.take("small"));
    let claimed = claim(store, claim_with_quota(quota, 10)).await;
    let remaining = expect(&[("modest", 1), ("small", 1)]);
    assert_eq!(shares(&claimed), remaining, "slots in use count");
    assert_eq!(
        claim(store, claim_with_quota(CompanyQuota::new(0), 10)).await,
        [],
        "a quota of zero claims no job"
    );
    let claimed = claim(store, claim_with_quota(CompanyQuota::new(50), 20)).await;
    assert_eq!(shares(&claimed), expect(&[("greedy", 20)]), "the limit applies to all companies together");
}

pub(super) async fn skipped_occurrences_are_not_delivered(store: &dyn JobStore) {
    let mut skipping = every("acme", 1_000_000);
    skipping.misfire = MisfirePolicy::Skip;
    let running = every("acme", 1_000_000);
    insert(store, &[skipping.clone(), running.clone()]).await;
    let mut quota = CompanyQuota::new(1);
    let late_claim = |quota| ClaimRequest { quota, ..claim_due(1_500_000, 10) };
    let claimed = claim(store, late_claim(quota.clone())).await;
    assert_eq!(ids(&claimed), ids([&running]), "a skipped occurrence is not delivered and uses no slot");
    let next = get(store, &skipping).await;
    assert_eq!(
        (next.state(), next.due),
        (JobState::Scheduled, at(2_000_000)),
        "the job waits for its next occurrence"
    );
    assert!(quota.take("acme"));
    assert_eq!(claim(store, late_claim(quota)).await, []);
    // A job that loses its lease again and again is discarded when a claim finds it.
    let last = Job { max_attempts: 1, ..once("acme", 10) };
    insert(store, std::slice::from_ref(&last)).await;
    claim_job(store, &last, at(10), at(20)).await;
    for number in 1..=MAX_ABANDONED {
        let now = 1000 * i64::from(number);
        let again = claim(store, claim_due(now, 10)).await;
        assert_eq!(ids(&again), ids([&last]), "a lease that expires uses up no attempt");
        assert_eq!((again[0].attempt, again[0].abandoned), (1, number));
    }
    let end = 1000 * i64::from(MAX_ABANDONED) + 1000;
    assert_eq!(claim(store, claim_due(end, 10)).await, [], "there is no attempt left");
    assert_eq!(get(store, &last).await.state(), JobState::Discarded);
}

pub(super) async fn postponed_occurrences_use_no_attempt(store: &dyn JobStore) {
    const HOUR: i64 = 3_600_000;
    const DAY: i64 = 24 * HOUR;
    let postponed =
        |retry_after| AttemptOutcome::Postponed { error: "the budget is spent".to_owned(), retry_after };
    let a_month = Duration::from_secs(31 * 24 * 3600);
    let single = |job| Job { max_attempts: 1, ..job };
    let hourly = single(every("acme", HOUR.unsigned_abs()));
    let jobs = [single(once("acme", HOUR)), hourly];
    insert(store, &jobs).await;
    let mut now = HOUR;
    for _ in 0..35 {
        let claimed = claim(store, claim_due(now, 10)).await;
        assert_eq!(claimed.len(), 2, "both jobs are delivered again after a day");
        for job in &claimed {
            assert_eq!(
                (job.position.occurrence, job.attempt),
                (1, 1),
                "the same occurrence, and its only attempt"
            );
            step(store, job, ended(job, postponed(a_month)), at(now)).await.expect("the claim is current");
            let stored = get(store, job).await;
            assert_eq!(
                (stored.state(), stored.attempt),
                (JobState::Retryable, 0),
                "a postponed delivery does not count as an attempt"
            );
            assert_eq!((stored.attempts.len(), stored.last_error()), (1, Some("the budget is spent")));
        }
        assert_eq!(claim(store, claim_due(now + DAY - 1, 10)).await, [], "postponed jobs are not due before");
        now += DAY;
    }
    // An occurrence that was postponed for longer than any window of a budget fails.
    for job in claim(store, claim_due(now, 10)).await {
        step(store, &job, ended(&job, postponed(a_month)), at(now)).await.expect("the claim is current");
    }
    assert_eq!(get(store, &jobs[0]).await.state(), JobState::Discarded);
    let periodic = get(store, &jobs[1]).await;
    assert_eq!((periodic.state(), periodic.dead_letters.len()), (JobState::Scheduled, 1));
    assert_eq!(periodic.position.occurrence, 2, "the occurrences of that month have not piled up");
    assert_eq!(periodic.due, at(now + HOUR));
}

pub(super) async fn a_busy_receiver_uses_no_attempt_after_a_postponement(store: &dyn JobStore) {
    const HOUR: i64 = 3_600_000;
    let job = Job { max_attempts: 1, ..once("acme", HOUR) };
    insert(store, std::slice::from_ref(&job)).await;
    let report = async |outcome: AttemptOutcome, now: i64| {
        let claimed = claim(store, claim_due(now, 10)).await;
        assert_eq!(
            (claimed.len(), claimed[0].attempt),
            (1, 1),
            "a postponed delivery does not count as an attempt"
        );
        step(store, &claimed[0], ended(&claimed[0], outcome), at(now)).await.expect("the claim is current");
        get(store, &job).await
    };
    let retry_after = Duration::from_secs(2 * 3600);
    let spent = AttemptOutcome::Postponed { error: "the budget is spent".to_owned(), retry_after };
    let busy = || AttemptOutcome::Deferred { error: "it is busy".to_owned(), retry_after: None };
    let postponed = report(spent, HOUR).await;
    assert_eq!((postponed.state(), postponed.due), (JobState::Retryable, at(3 * HOUR)));
    for now in [3 * HOUR, 3 * HOUR + HOUR / 2, 4 * HOUR - 1_000] {
        let stored = report(busy(), now).await;
        assert_eq!(
            (stored.state(), stored.attempt),
            (JobState::Retryable, 0),
            "deliveries to a busy receiver do not count for an hour after the postponement"
        );
        assert_eq!(stored.last_error(), Some("the budget is spent"));
    }
    let discarded = report(busy(), 4 * HOUR).await;
    assert_eq!((discarded.state(), discarded.last_error()), (JobState::Discarded, Some("it is busy")));
}

pub(super) async fn one_claim_is_bounded(store: &dyn JobStore) {
    let jobs: Vec<Job> = (0..MAX_JOBS_PER_CLAIM as i64 + 20).map(|n| once("acme", n)).collect();
    insert(store, &jobs).await;
    let claimed = claim(store, claim_due(5000, usize::MAX)).await;
    assert_eq!(ids(&claimed), ids(&jobs[..MAX_JOBS_PER_CLAIM]), "a claim has a limit");
    assert_eq!(
        claim(store, claim_due(5000, usize::MAX)).await.len(),
        20,
        "the remaining jobs are left for the next claim"
    );
}

pub(super) async fn concurrent_claims_are_disjoint(store: SharedJobStore) {
    const CLAIMERS: usize = 8;
    let jobs: Vec<Job> = (0..200).map(|n| once("acme", n % 7)).collect();
    insert(&*store, &jobs).await;
    let claimers = (0..CLAIMERS).map(|_| {
        let store = store.clone();
        async move {
            let mut claimed_ids = Vec::new();
            loop {
                let claimed = claim(&*store, claim_due(100, 7)).await;
                if claimed.is_empty() {
                    return claimed_ids;
                }
                claimed_ids.extend(claimed.into_iter().map(|job| job.id));
            }
        }
    });
    let mut claimed: Vec<JobId> = join_all(claimers).await.concat();
    claimed.sort();
    assert_eq!(claimed, ids(&jobs), "each job is claimed once");
}

pub(super) async fn next_run_at_is_the_earliest_time(store: &dyn JobStore) {
    let earliest = async || expect_ok("earliest", store.next_run_at().await);
    assert_eq!(earliest().await, None, "the store is empty");
    let jobs = [once("acme", 50), once("other", 30)];
    insert(store, &jobs).await;
    assert_eq!(earliest().await, Some(at(30)), "the earliest job of all companies counts");
    let claimed = claim_job(store, &jobs[1], at(30), at(5000)).await;
    assert_eq!(earliest().await, Some(at(50)));
    step(store, &jobs[0], Step::Pause, at(40)).await.expect("the job is open");
    assert_eq!(earliest().await, Some(at(5000)), "a running job counts with the expiry of its lease");
    step(store, &jobs[1], ended(&claimed, AttemptOutcome::Succeeded), at(60))
        .await
        .expect("the claim is current");
    assert_eq!(earliest().await, None, "paused and final jobs do not count");
    step(store, &jobs[0], Step::Resume, at(70)).await.expect("the job is open");
    assert_eq!(earliest().await, Some(at(70)));
    // Fractions of a millisecond are rounded up, so that no job is early.
    let later = Timestamp::from_nanosecond(at(10).as_nanosecond() + 1).expect("a time");
    step(store, &jobs[0], Step::Cancel, at(80)).await.expect("a job can be cancelled");
    insert(store, &[Job { due: later, ..once("acme", 10) }]).await;
    let reported = earliest().await.expect("a job is open");
    assert!((later..=at(11)).contains(&reported), "the time is rounded up to the millisecond: {reported}");
    assert_eq!(claim(store, claim_due(10, 10)).await, [], "a job is not claimed before it is due");
    assert_eq!(claim(store, claim_due(11, 10)).await.len(), 1);
}

pub(super) async fn subscribers_are_notified_of_an_earlier_job(store: &dyn JobStore) {
    let first = once("acme", 1000);
    insert(store, std::slice::from_ref(&first)).await;
    // Each check opens a new stream, which does not report earlier events.
    let mut notifications = store.notifications();
    insert(store, &[once("acme", 500)]).await;
    with_timeout("a job that is due earlier than all others", notifications.next())
        .await
        .expect("the stream does not end");
    let mut notifications = store.notifications();
    assert!(notifications.next().now_or_never().is_none(), "a new stream does not report earlier changes");
    step(store, &first, Step::Reschedule(Schedule::At(at(100))), at(1)).await.expect("the job is open");
    with_timeout("a job that was moved to the front", notifications.next())
        .await
        .expect("the stream does not end");
    let mut notifications = store.notifications();
    step(store, &first, Step::Pause, at(2)).await.expect("the job is open");
    step(store, &first, Step::Resume, at(3)).await.expect("the job is open");
    with_timeout("a job that was resumed at the front", notifications.next())
        .await
        .expect("the stream does not end");
    let [mut first_stream, mut second_stream] = [store.notifications(), store.notifications()];
    insert(store, &[once("acme", 50)]).await;
    for stream in [&mut first_stream, &mut second_stream] {
        with_timeout("a job that is due earlier", stream.next()).await.expect("every subscriber is notified");
    }
}
