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
    a_job_is_got_as_it_was_stored(&*make().await).await;
    nobody_reaches_out_of_a_scope(&*make().await).await;
    asking_twice_is_harmless(&*make().await).await;
    steps_are_taken_in_their_order(&*make().await).await;
    a_refused_step_hinders_no_other(&*make().await).await;
    lists::pages_join(&*make().await).await;
    lists::a_list_is_read_while_others_write(&*make().await).await;
    lists::filters_hold(&*make().await).await;
    lists::all_that_are_meant_are_cancelled(&*make().await).await;
    lists::what_is_over_is_removed(&*make().await).await;
    lists::counts_tell_states_and_lag(&*make().await).await;
    claims::the_earliest_are_claimed_first(&*make().await).await;
    claims::nothing_is_claimed_early(&*make().await).await;
    claims::a_lease_holds_until_it_runs_out(&*make().await).await;
    claims::a_company_has_its_share(&*make().await).await;
    claims::what_was_missed_is_left_out(&*make().await).await;
    claims::postponed_occurrences_use_no_attempt(&*make().await).await;
    claims::a_busy_receiver_uses_no_attempt_after_a_postponement(&*make().await).await;
    claims::one_call_ends(&*make().await).await;
    claims::two_never_claim_the_same(make().await).await;
    claims::the_earliest_is_told(&*make().await).await;
    claims::who_waits_is_told_of_an_earlier_one(&*make().await).await;
}

async fn a_job_is_got_as_it_was_stored(store: &dyn JobStore) {
    let none = expect_ok("get", store.get(&JobScope::default(), &agent_core::new_id().into()).await);
    assert_eq!(none, None, "what was never stored is absent");
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
        assert_eq!(get(store, job).await, *job, "a job is as it was stored");
    }

    // Steps that change every stored field of a job.
    let held = claim_job(store, &every, at(1500), at(9000)).await;
    assert_eq!(get(store, &every).await, held, "a claim is stored");
    let extended = step(store, &every, Step::Extend { fence: held.fence, lease: at(9500) }, at(1600)).await;
    assert_eq!(
        get(store, &every).await,
        extended.expect("it is held").job,
        "a lease that is extended is stored"
    );
    let moved = step(store, &every, Step::Reschedule(Schedule::At(at(20_000))), at(1700)).await;
    let moved = moved.expect("it is open");
    assert!(moved.delivering && moved.job.then.is_some(), "what is under way is not taken back");
    assert_eq!(get(store, &every).await, moved.job, "where it goes afterwards is stored");
    let over =
        step(store, &every, ended(&held, AttemptOutcome::Succeeded), at(1800)).await.expect("it is held").job;
    assert_eq!(get(store, &every).await, over, "an attempt that has ended is stored");
    let paused = step(store, &every, Step::Pause, at(1900)).await.expect("it is open").job;
    assert_eq!(paused.state(), JobState::Paused);
    assert_eq!(get(store, &every).await, paused, "a pause is stored");
}

async fn nobody_reaches_out_of_a_scope(store: &dyn JobStore) {
    let job = once("acme", 5);
    let other = once("other", 5);
    insert(store, &[job.clone(), other.clone()]).await;
    let scope = |company: Option<&str>, user: Option<&str>| JobScope {
        company: company.map(CompanyId::from),
        user: user.map(UserId::from),
    };
    let inside = [scope(None, None), scope(Some("acme"), None), scope(Some("acme"), Some("ada"))];
    let outside = [
        scope(Some("other"), None),
        scope(Some("acme"), Some("bob")),
        scope(Some("ACME"), None),
        scope(Some(""), None),
    ];
    for scope in inside {
        let found = expect_ok("get", store.get(&scope, &job.id).await);
        assert_eq!(found.as_ref(), Some(&job), "a job is there for {scope:?}");
    }
    for scope in outside {
        let found = expect_ok("get", store.get(&scope, &job.id).await);
        assert_eq!(found, None, "a job is absent for {scope:?}");
        let stepped = expect_ok("step", store.apply_step(&scope, &job.id, Step::Cancel, at(1)).await);
        assert_eq!(stepped, StepOutcome::NotFound, "no step can be taken by {scope:?}");
        let page =
            expect_ok("list", store.list(&filter_of(scope.clone()), JobOrder::default(), None, 10).await);
        assert!(page.jobs.iter().all(|found| found.id != job.id), "a job is in no list of {scope:?}");
    }
    let theirs = JobFilter { tool: Some("remind".to_owned()), ..filter_of(company_scope("other")) };
    let cancelled = expect_ok("cancel", store.cancel_all(&theirs, at(1)).await);
    assert_eq!(cancelled, 1, "all of a company's are cancelled, and no other's");
    assert_eq!(get(store, &job).await, job, "whoever is elsewhere changes nothing");
    assert_eq!(get(store, &other).await.state(), JobState::Cancelled);
}

async fn asking_twice_is_harmless(store: &dyn JobStore) {
    let with = |company: &str, key: &str, fingerprint: &str| {
        let idempotency = IdempotencyKey { key: key.to_owned(), fingerprint: fingerprint.to_owned() };
        let mut job = once(company, 5);
        job.idempotency = Some(idempotency);
        job
    };
    let first = with("acme", "k", "1");
    insert(store, std::slice::from_ref(&first)).await;
    let fresh = with("acme", "fresh", "1");
    let again = vec![
        with("acme", "k", "1"),
        with("acme", "k", "2"),
        with("other", "k", "2"),
        with("acme", "K", "2"),
        once("acme", 5),
        fresh.clone(),
        with("acme", "fresh", "1"),
        with("acme", "fresh", "3"),
    ];
    let ids: Vec<JobId> = again.iter().map(|job| job.id.clone()).collect();
    let inserted = expect_ok("insert", store.insert(again).await);
    let expected = [
        InsertOutcome::Existing(Box::new(first.clone())),
        InsertOutcome::KeyConflict(Box::new(first.clone())),
        InsertOutcome::New,
        InsertOutcome::New,
        InsertOutcome::New,
        InsertOutcome::New,
        InsertOutcome::Existing(Box::new(fresh.clone())),
        InsertOutcome::KeyConflict(Box::new(fresh)),
    ];
    assert_eq!(inserted, expected, "a key is one job's in its company, also within one call");
    for (id, inserted) in ids.iter().zip(expected) {
        let found = expect_ok("get", store.get(&JobScope::default(), id).await);
        assert_eq!(found.is_some(), inserted == InsertOutcome::New, "what was not new is not stored");
    }
    step(store, &first, Step::Cancel, at(1)).await.expect("a job can be cancelled");
    let over = expect_ok("insert", store.insert(vec![with("acme", "k", "1")]).await);
    let there = get(store, &first).await;
    assert_eq!(over, [InsertOutcome::Existing(Box::new(there))], "a key stands as long as its job is kept");
    assert_eq!(expect_ok("purge", store.purge(at(100), 10).await), 1);
    let over = expect_ok("insert", store.insert(vec![with("acme", "k", "9")]).await);
    assert_eq!(over, [InsertOutcome::New], "a key is free once its job was removed");
    assert_eq!(expect_ok("insert", store.insert(Vec::new()).await), [], "nothing is no mistake");
}

async fn steps_are_taken_in_their_order(store: &dyn JobStore) {
    let job = every("acme", 1000);
    insert(store, std::slice::from_ref(&job)).await;
    let held = claim_job(store, &job, at(1000), at(9000)).await;
    let succeeded = ended(&held, AttemptOutcome::Succeeded);
    let steps = [succeeded.clone(), Step::Pause, succeeded, Step::Resume, Step::Cancel];
    let steps = steps.map(|step| (job.id.clone(), step)).to_vec();
    let taken = expect_ok("steps", store.apply_steps(steps, at(1100)).await);
    assert_eq!(taken.len(), 5, "each step has an outcome");
    assert_eq!(taken[2], StepOutcome::Rejected(StepError::Stale), "a step sees those before it");
    let applied: Vec<Job> =
        taken.into_iter().filter_map(StepOutcome::applied).map(|stepped| stepped.job).collect();
    let states: Vec<JobState> = applied.iter().map(Job::state).collect();
    let expected = [JobState::Scheduled, JobState::Paused, JobState::Scheduled, JobState::Cancelled];
    assert_eq!(states, expected, "a step sees those before it");
    let last = applied.into_iter().next_back().expect("the last was taken");
    assert_eq!(get(store, &job).await, last, "the last one stands");
}

async fn a_refused_step_hinders_no_other(store: &dyn JobStore) {
    let jobs = [once("acme", 10), once("acme", 20), once("other", 30)];
    insert(store, &jobs).await;
    let claim = Step::Claim { until: at(20), lease: at(9000) };
    let mut steps: Vec<_> = jobs.iter().map(|job| (job.id.clone(), claim.clone())).collect();
    steps.insert(1, (agent_core::new_id().into(), Step::Cancel));
    let taken = expect_ok("steps", store.apply_steps(steps, at(20)).await);
    let running = Phase::Running { lease: at(9000) };
    let is_running =
        |outcome: &StepOutcome| outcome.clone().applied().is_some_and(|stepped| stepped.job.phase == running);
    assert!(taken.len() == 4 && is_running(&taken[0]) && is_running(&taken[2]), "{taken:?}");
    assert_eq!(taken[1], StepOutcome::NotFound);
    assert_eq!(taken[3], StepOutcome::Rejected(StepError::NotDue));
    assert_eq!(get(store, &jobs[2]).await, jobs[2], "a refused step changes nothing");
    assert_eq!(get(store, &jobs[1]).await.phase, running, "the others are stored");
    assert_eq!(expect_ok("steps", store.apply_steps(Vec::new(), at(20)).await), [], "nothing is no mistake");
}
