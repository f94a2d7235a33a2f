//! The contract of [`JobStore`] as a suite that every implementation runs, an integrator's own included.
//!
//! A suite is an async function that is given a factory and panics with a message that describes the violation of the
//! contract. It needs no particular runtime.
//!
//! ```
//! use std::sync::Arc;
//!
//! use agent_jobs::conformance;
//! use agent_jobs::job::MemoryJobStore;
//!
//! # futures_executor::block_on(async {
//! conformance::jobs(async || Arc::new(MemoryJobStore::default()) as _).await;
//! # });
//! ```

use agent_core::ids::{CompanyId, JobId, UserId};
use futures_util::future::join_all;
use serde_json::json;

use crate::job::{
    AttemptOutcome, IdempotencyKey, InsertOutcome, Job, JobFilter, JobOrder, JobScope, JobState, JobStore,
    NewJob, Phase, Step, StepError, StepOutcome,
};
use crate::schedule::{CronSchedule, DstPolicy, MisfirePolicy, OverlapPolicy, Schedule};

mod claims;
mod lists;
mod model;
mod support;
#[cfg(test)]
mod tests;

pub use model::jobs_against_reference;

use support::{
    SharedJobStore, at, claim_job, company_scope, ended, every, expect_ok, filter_of, get, insert, once,
    payload, step,
};

/// Runs the conformance suite of [`JobStore`] against stores from `make`, which must return an empty one at every call.
///
/// # Panics
/// If the contract is violated, with a message that describes the violation.
pub async fn jobs(make: impl AsyncFn() -> SharedJobStore) {
    get_returns_jobs_as_they_were_stored(&*make().await).await;
    access_is_limited_to_the_scope(&*make().await).await;
    inserts_are_idempotent_by_key(&*make().await).await;
    open_jobs_are_limited_after_the_key(&*make().await).await;
    steps_are_applied_in_order(&*make().await).await;
    a_rejected_step_does_not_affect_others(&*make().await).await;
    lists::pages_cover_the_list(&*make().await).await;
    lists::lists_are_complete_during_concurrent_writes(&*make().await).await;
    lists::filters_apply_to_lists_and_counts(&*make().await).await;
    lists::cancel_all_cancels_the_matching_open_jobs(&*make().await).await;
    lists::purge_removes_ended_jobs(&*make().await).await;
    lists::counts_report_states_and_lag(&*make().await).await;
    claims::the_earliest_jobs_are_claimed_first(&*make().await).await;
    claims::no_job_is_claimed_before_it_is_due(&*make().await).await;
    claims::a_lease_excludes_other_claims_until_it_expires(&*make().await).await;
    claims::claims_respect_company_quotas(&*make().await).await;
    claims::skipped_occurrences_are_not_delivered(&*make().await).await;
    claims::postponed_occurrences_use_no_attempt(&*make().await).await;
    claims::a_busy_receiver_uses_no_attempt_after_a_postponement(&*make().await).await;
    claims::one_claim_is_bounded(&*make().await).await;
    claims::concurrent_claims_are_disjoint(make().await).await;
    claims::next_run_at_is_the_earliest_time(&*make().await).await;
    claims::subscribers_are_notified_of_an_earlier_job(&*make().await).await;
}

async fn get_returns_jobs_as_they_were_stored(store: &dyn JobStore) {
    let unknown = expect_ok("get", store.get(&JobScope::default(), &agent_core::new_id().into()).await);
    assert_eq!(unknown, None, "an unknown id has no job");
    let mut new = NewJob::new(payload("acme 😀", "o'ada;--"), Schedule::At(at(5)));
    new.payload.message = Some("\u{0}\"quoted\" \\ ü".to_owned());
    // Numbers that many JSON parsers round to a neighbouring value.
    let numbers = [31.245270191439438, 121.48791951161945, -2.5, f64::MIN_POSITIVE];
    let arguments = json!({"b": [1, null, true], "a": {"deep": "é"}, "": u64::MAX, "n": numbers});
    new.payload.arguments = arguments.as_object().cloned();
    new.payload.assignment_id = Some("daily".to_owned());
    new.idempotency = Some(IdempotencyKey { key: "k".to_owned(), fingerprint: "00ff".to_owned() });
    let once = Job::new(new, at(0));
    let cron = CronSchedule::new("30 2 * * *", "Europe/Berlin", DstPolicy::default())
        .expect("the suite's cron fires");
    let mut new = NewJob::new(payload("acme", "ada"), Schedule::Cron(cron));
    (new.misfire, new.overlap, new.max_attempts) = (MisfirePolicy::Skip, OverlapPolicy::Queue, 3);
    let cron = Job::new(new, at(0));
    let every = every("acme", 1500);
    insert(store, &[once.clone(), cron.clone(), every.clone()]).await;
    for job in [&once, &cron, &every] {
        assert_eq!(get(store, job).await, *job, "a job is returned as it was stored");
    }

    // Steps that change every stored field of a job.
    let claimed = claim_job(store, &every, at(1500), at(9000)).await;
    assert_eq!(get(store, &every).await, claimed, "a claim is stored");
    let extended =
        step(store, &every, Step::Extend { fence: claimed.fence, lease: at(9500) }, at(1600)).await;
    assert_eq!(
        get(store, &every).await,
        extended.expect("the claim is current").job,
        "an extended lease is stored"
    );
    let moved = step(store, &every, Step::Reschedule(Schedule::At(at(20_000))), at(1700)).await;
    let moved = moved.expect("the job is open");
    assert!(moved.delivering && moved.job.next_position.is_some(), "a delivery in progress continues");
    assert_eq!(get(store, &every).await, moved.job, "the position after the delivery is stored");
    let finished = step(store, &every, ended(&claimed, AttemptOutcome::Succeeded), at(1800))
        .await
        .expect("the claim is current")
        .job;
    assert_eq!(get(store, &every).await, finished, "a finished attempt is stored");
    let paused = step(store, &every, Step::Pause, at(1900)).await.expect("the job is open").job;
    assert_eq!(paused.state(), JobState::Paused);
    assert_eq!(get(store, &every).await, paused, "a pause is stored");
}

async fn access_is_limited_to_the_scope(store: &dyn JobStore) {
    let job = once("acme", 5);
    let other = once("other", 5);
    insert(store, &[job.clone(), other.clone()]).await;
    let scope = |company: Option<&str>, user: Option<&str>| JobScope {
        company: company.map(CompanyId::from),
        user: user.map(UserId::from),
    };
    let permitted = [scope(None, None), scope(Some("acme"), None), scope(Some("acme"), Some("ada"))];
    let forbidden = [
        scope(Some("other"), None),
        scope(Some("acme"), Some("bob")),
        scope(Some("ACME"), None),
        scope(Some(""), None),
    ];
    for scope in permitted {
        let stored = expect_ok("get", store.get(&scope, &job.id).await);
        assert_eq!(stored.as_ref(), Some(&job), "a job is visible in {scope:?}");
    }
    for scope in forbidden {
        let stored = expect_ok("get", store.get(&scope, &job.id).await);
        assert_eq!(stored, None, "a job is absent outside of its scope, in {scope:?}");
        let outcome = expect_ok("step", store.apply_step(&scope, &job.id, Step::Cancel, at(1)).await);
        assert_eq!(outcome, StepOutcome::NotFound, "no step is applied in {scope:?}");
        let page =
            expect_ok("list", store.list(&filter_of(scope.clone()), JobOrder::default(), None, 10).await);
        assert!(page.jobs.iter().all(|listed| listed.id != job.id), "a job is in no list in {scope:?}");
    }
    let other_company = JobFilter { tool: Some("remind".to_owned()), ..filter_of(company_scope("other")) };
    let cancelled = expect_ok("cancel", store.cancel_all(&other_company, at(1)).await);
    assert_eq!(cancelled, 1, "cancel_all cancels the jobs of the scope only");
    assert_eq!(get(store, &job).await, job, "a call in another scope changes nothing");
    assert_eq!(get(store, &other).await.state(), JobState::Cancelled);
}

async fn inserts_are_idempotent_by_key(store: &dyn JobStore) {
    let job_with_key = |company: &str, key: &str, fingerprint: &str| {
        let idempotency = IdempotencyKey { key: key.to_owned(), fingerprint: fingerprint.to_owned() };
        let mut job = once(company, 5);
        job.idempotency = Some(idempotency);
        job
    };
    let existing = job_with_key("acme", "k", "1");
    insert(store, std::slice::from_ref(&existing)).await;
    let new_job = job_with_key("acme", "fresh", "1");
    let jobs = vec![
        job_with_key("acme", "k", "1"),
        job_with_key("acme", "k", "2"),
        job_with_key("other", "k", "2"),
        job_with_key("acme", "K", "2"),
        once("acme", 5),
        new_job.clone(),
        job_with_key("acme", "fresh", "1"),
        job_with_key("acme", "fresh", "3"),
    ];
    let ids: Vec<JobId> = jobs.iter().map(|job| job.id.clone()).collect();
    let inserted = expect_ok("insert", store.insert(jobs).await);
    let expected = [
        InsertOutcome::Existing(Box::new(existing.clone())),
        InsertOutcome::KeyConflict(Box::new(existing.clone())),
        InsertOutcome::New,
        InsertOutcome::New,
        InsertOutcome::New,
        InsertOutcome::New,
        InsertOutcome::Existing(Box::new(new_job.clone())),
        InsertOutcome::KeyConflict(Box::new(new_job)),
    ];
    assert_eq!(inserted, expected, "a key belongs to one job of its company, also within one call");
    for (id, inserted) in ids.iter().zip(expected) {
        let stored_job = expect_ok("get", store.get(&JobScope::default(), id).await);
        assert_eq!(stored_job.is_some(), inserted == InsertOutcome::New, "only new jobs are stored");
    }
    step(store, &existing, Step::Cancel, at(1)).await.expect("a job can be cancelled");
    let over = expect_ok("insert", store.insert(vec![job_with_key("acme", "k", "1")]).await);
    let there = get(store, &existing).await;
    assert_eq!(over, [InsertOutcome::Existing(Box::new(there))], "a key is in use until its job is deleted");
    assert_eq!(expect_ok("purge", store.purge(at(100), 10).await), 1);
    let over = expect_ok("insert", store.insert(vec![job_with_key("acme", "k", "9")]).await);
    assert_eq!(over, [InsertOutcome::New], "a key is free after its job was deleted");
    assert_eq!(expect_ok("insert", store.insert(Vec::new()).await), [], "an empty call is not an error");
}

async fn open_jobs_are_limited_after_the_key(store: &dyn JobStore) {
    let mut keyed = once("acme", 5);
    keyed.idempotency = Some(IdempotencyKey { key: "k".to_owned(), fingerprint: "1".to_owned() });
    let insert_one = async |job: Job| expect_ok("insert", store.insert_within_limit(job, 2).await);
    assert_eq!(insert_one(keyed.clone()).await, InsertOutcome::New, "a job below the limit is stored");
    let concurrent = join_all((0..4).map(|_| store.insert_within_limit(once("acme", 5), 2))).await;
    let outcomes: Vec<_> = concurrent.into_iter().map(|outcome| expect_ok("insert", outcome)).collect();
    let new = outcomes.iter().filter(|outcome| **outcome == InsertOutcome::New).count();
    assert_eq!(new, 1, "concurrent calls do not exceed the limit of open jobs: {outcomes:?}");
    assert_eq!(insert_one(once("acme", 5)).await, InsertOutcome::LimitReached);
    let repeated = Job { id: agent_core::new_id().into(), ..keyed.clone() };
    let existing = InsertOutcome::Existing(Box::new(keyed.clone()));
    assert_eq!(insert_one(repeated).await, existing, "a key is looked up before the limit");
    assert_eq!(insert_one(once("other", 5)).await, InsertOutcome::New, "the limit is that of one user");
    step(store, &keyed, Step::Cancel, at(1)).await.expect("a job can be cancelled");
    assert_eq!(insert_one(once("acme", 5)).await, InsertOutcome::New, "a final job does not count");
}

async fn steps_are_applied_in_order(store: &dyn JobStore) {
    let job = every("acme", 1000);
    insert(store, std::slice::from_ref(&job)).await;
    let claimed = claim_job(store, &job, at(1000), at(9000)).await;
    let succeeded = ended(&claimed, AttemptOutcome::Succeeded);
    let steps = [succeeded.clone(), Step::Pause, succeeded, Step::Resume, Step::Cancel];
    let steps = steps.map(|step| (job.id.clone(), step)).to_vec();
    let outcomes = expect_ok("steps", store.apply_steps(steps, at(1100)).await);
    assert_eq!(outcomes.len(), 5, "each step has an outcome");
    assert_eq!(outcomes[2], StepOutcome::Rejected(StepError::Stale), "a step follows those before it");
    let applied: Vec<Job> =
        outcomes.into_iter().filter_map(StepOutcome::applied).map(|result| result.job).collect();
    let states: Vec<JobState> = applied.iter().map(Job::state).collect();
    let expected = [JobState::Scheduled, JobState::Paused, JobState::Scheduled, JobState::Cancelled];
    assert_eq!(states, expected, "a step follows those before it");
    let last = applied.into_iter().next_back().expect("the last step was applied");
    assert_eq!(get(store, &job).await, last, "the last state is stored");
}

async fn a_rejected_step_does_not_affect_others(store: &dyn JobStore) {
    let jobs = [once("acme", 10), once("acme", 20), once("other", 30)];
    insert(store, &jobs).await;
    let claim = Step::Claim { until: at(20), lease: at(9000) };
    let mut steps: Vec<_> = jobs.iter().map(|job| (job.id.clone(), claim.clone())).collect();
    steps.insert(1, (agent_core::new_id().into(), Step::Cancel));
    let outcomes = expect_ok("steps", store.apply_steps(steps, at(20)).await);
    let running = Phase::Running { lease: at(9000) };
    let is_running =
        |outcome: &StepOutcome| outcome.clone().applied().is_some_and(|result| result.job.phase == running);
    assert!(outcomes.len() == 4 && is_running(&outcomes[0]) && is_running(&outcomes[2]), "{outcomes:?}");
    assert_eq!(outcomes[1], StepOutcome::NotFound);
    assert_eq!(outcomes[3], StepOutcome::Rejected(StepError::NotDue));
    assert_eq!(get(store, &jobs[2]).await, jobs[2], "a rejected step changes nothing");
    assert_eq!(get(store, &jobs[1]).await.phase, running, "the other steps are stored");
    assert_eq!(
        expect_ok("steps", store.apply_steps(Vec::new(), at(20)).await),
        [],
        "an empty call is not an error"
    );
    let steps = vec![(agent_core::new_id().into(), Step::Cancel), (jobs[2].id.clone(), Step::Pause)];
    let outcomes = expect_ok("steps", store.apply_steps_unlocked(steps, at(20)).await);
    assert_eq!(outcomes[0], Some(StepOutcome::NotFound));
    let is_applied = outcomes[1].as_ref().is_some_and(StepOutcome::is_applied);
    assert!(is_applied && get(store, &jobs[2]).await.paused, "no job is locked: {outcomes:?}");
}
