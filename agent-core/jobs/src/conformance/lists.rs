//! Lists, filters, counts and bulk operations on jobs.

use std::collections::BTreeSet;
use std::sync::Arc;

use agent_core::ids::{CompanyId, JobId, UserId};
use futures_util::future::join;
use jiff::Timestamp;

use super::support::{
    at, claim_job, company_scope, ended, every, expect_ok, failed, filter_of, get, insert, once, rejected,
    step,
};
use crate::job::{
    AttemptOutcome, Job, JobCounts, JobFilter, JobOrder, JobScope, JobState, JobStore, MAX_JOBS_PER_PAGE,
    Step,
};

/// Returns all jobs that match the filter, the oldest first, page by page.
async fn all(store: &dyn JobStore, filter: &JobFilter, limit: usize) -> Vec<Job> {
    all_in(store, filter, JobOrder::OldestFirst, limit).await
}

/// Returns all jobs that match the filter, page by page.
async fn all_in(store: &dyn JobStore, filter: &JobFilter, order: JobOrder, limit: usize) -> Vec<Job> {
    let mut jobs: Vec<Job> = Vec::new();
    let mut after: Option<JobId> = None;
    loop {
        let page = expect_ok("list", store.list(filter, order, after.as_ref(), limit).await);
        assert!(
            page.jobs.len() <= limit.clamp(1, MAX_JOBS_PER_PAGE),
            "a page has no more jobs than its limit"
        );
        jobs.extend(page.jobs);
        assert!(jobs.len() <= 10_000, "a list ends");
        match page.next {
            Some(next) => {
                assert_eq!(
                    Some(&next),
                    jobs.last().map(|job| &job.id),
                    "the next page begins after this one"
                );
                after = Some(next);
            }
            None => return jobs,
        }
    }
}

fn ids<'a>(jobs: impl IntoIterator<Item = &'a Job>) -> Vec<&'a str> {
    jobs.into_iter().map(|job| job.id.as_str()).collect()
}

pub(super) async fn pages_cover_the_list(store: &dyn JobStore) {
    let filters = [filter_of(company_scope("acme")), filter_of(JobScope::default())];
    assert_eq!(all(store, &filters[0], 10).await, [], "the store is empty");
    let mut jobs: Vec<Job> = (0..10).map(|n| once("acme", 1000 - n)).collect();
    jobs.extend((0..3).map(|n| once("other", n)));
    let mut shuffled = jobs.clone();
    shuffled.rotate_left(5);
    insert(store, &shuffled).await;
    for limit in [0, 1, 3, 5, 9, 10, 11, 13, usize::MAX] {
        for (filter, count) in filters.iter().zip([10, 13]) {
            let listed = all(store, filter, limit).await;
            assert_eq!(
                ids(&listed),
                ids(&jobs[..count]),
                "pages of {limit} cover the list in the order of ids"
            );
            let listed = all_in(store, filter, JobOrder::NewestFirst, limit).await;
            let expected = ids(jobs[..count].iter().rev());
            assert_eq!(ids(&listed), expected, "pages of {limit} cover the list, the newest first");
        }
    }
    let page = expect_ok("list", store.list(&filters[0], JobOrder::OldestFirst, Some(&jobs[9].id), 5).await);
    assert_eq!((page.jobs.len(), page.next), (0, None), "no job follows the last");
    let page = store.list(&filters[0], JobOrder::NewestFirst, Some(&jobs[0].id), 5).await;
    let page = expect_ok("list", page);
    assert_eq!((page.jobs.len(), page.next), (0, None), "no job precedes the first");
    let crowded: Vec<Job> = (0..MAX_JOBS_PER_PAGE + 1).map(|_| once("many", 1)).collect();
    insert(store, &crowded).await;
    let page = expect_ok(
        "list",
        store.list(&filter_of(company_scope("many")), JobOrder::OldestFirst, None, usize::MAX).await,
    );
    assert_eq!(page.jobs.len(), MAX_JOBS_PER_PAGE, "a page has a limit");
    assert_eq!(page.next, Some(crowded[MAX_JOBS_PER_PAGE - 1].id.clone()));
}

pub(super) async fn lists_are_complete_during_concurrent_writes(store: &dyn JobStore) {
    let jobs: Vec<Job> = (0..60).map(|n| once("acme", n)).collect();
    insert(store, &jobs).await;
    let write = async {
        for (n, job) in jobs.iter().enumerate().rev() {
            if n % 2 == 0 {
                step(store, job, Step::Cancel, at(1)).await.expect("a job can be cancelled");
            }
            insert(store, &[once("acme", 5)]).await;
        }
    };
    let filter = filter_of(company_scope("acme"));
    let (listed, ()) = join(all(store, &filter, 3), write).await;
    let listed = ids(&listed);
    assert!(listed.is_sorted_by(|a, b| a < b), "no job is listed twice during concurrent writes");
    let listed: BTreeSet<&str> = listed.into_iter().collect();
    assert!(
        jobs.iter().all(|job| listed.contains(job.id.as_str())),
        "jobs stored before the list began are listed"
    );
}

/// Stores jobs in every state; the second one is periodic and has a dead letter.
async fn in_all_states(store: &dyn JobStore, company: &str) -> Vec<Job> {
    let jobs: Vec<Job> =
        (0..9).map(|n| if n == 1 { every(company, 10) } else { once(company, 10) }).collect();
    insert(store, &jobs).await;
    let mut claimed = Vec::new();
    for job in &jobs[1..7] {
        claimed.push(claim_job(store, job, at(10), at(9000)).await);
    }
    let steps = [
        (0, ended(&claimed[0], rejected())),
        (2, ended(&claimed[2], failed())),
        (3, Step::Pause),
        (4, ended(&claimed[4], AttemptOutcome::Succeeded)),
        (5, ended(&claimed[5], rejected())),
        (7, Step::Cancel),
        (8, Step::Pause),
    ];
    for (n, transition) in steps {
        // `claimed` begins with the second job; its entries serve the steps below 6.
        let job = if n < 6 { &claimed[n] } else { &jobs[n] };
        step(store, job, transition, at(20)).await.expect("the step is accepted");
    }
    let mut stored = Vec::new();
    for job in &jobs {
        stored.push(get(store, job).await);
    }
    let states: Vec<JobState> = stored.iter().map(Job::state).collect();
    let expected = {
        use JobState::{Cancelled, Completed, Discarded, Paused, Retryable, Running, Scheduled};
        [Scheduled, Scheduled, Running, Retryable, Paused, Completed, Discarded, Cancelled, Paused]
    };
    assert_eq!(states, expected);
    stored
}

pub(super) async fn filters_apply_to_lists_and_counts(store: &dyn JobStore) {
    let mut jobs = in_all_states(store, "acme").await;
    jobs.extend(in_all_states(store, "other").await);
    let mut distinct: Vec<Job> = (0..4).map(|_| once("acme", 10)).collect();
    Arc::make_mut(&mut distinct[0].payload).user_id = "bob".into();
    Arc::make_mut(&mut distinct[1].payload).tool_id = Some("report".to_owned());
    Arc::make_mut(&mut distinct[2].payload).assignment_id = Some("daily".to_owned());
    Arc::make_mut(&mut distinct[3].payload).assignment_id = Some("daily".to_owned());
    Arc::make_mut(&mut distinct[3].payload).user_id = "bob".into();
    Arc::make_mut(&mut distinct[3].payload).tool_id = None;
    Arc::make_mut(&mut distinct[3].payload).agent_id = "other".into();
    insert(store, &distinct).await;
    jobs.extend(distinct);

    let scopes = [(None, None), (Some("acme"), None), (Some("acme"), Some("bob")), (None, Some("bob"))];
    let tools = [None, Some("remind"), Some("report"), Some("none")];
    let assignments = [None, Some("daily"), Some("none")];
    let states = || std::iter::once(None).chain(JobState::ALL.map(Some));
    for (company, user) in scopes {
        for tool in tools {
            for assignment in assignments {
                for state in states() {
                    let owned = |text: Option<&str>| text.map(str::to_owned);
                    let scope =
                        JobScope { company: company.map(CompanyId::from), user: user.map(UserId::from) };
                    let filter = JobFilter {
                        scope,
                        tool: owned(tool),
                        assignment: owned(assignment),
                        state,
                        ..JobFilter::default()
                    };
                    is_applied_to(store, &filter, &jobs).await;
                }
            }
        }
    }
    for agent in ["agent", "other", "none"] {
        for open in [false, true] {
            let scope = company_scope("acme");
            let filter = JobFilter { agent: Some(agent.into()), open, ..filter_of(scope) };
            is_applied_to(store, &filter, &jobs).await;
        }
    }
    let discarded = JobFilter { state: Some(JobState::Discarded), ..filter_of(company_scope("acme")) };
    let listed = all(store, &discarded, 10).await;
    assert_eq!(ids(&listed), ids([&jobs[1], &jobs[6]]), "open jobs with dead letters count as discarded");
}

/// Asserts that a list and a count contain the jobs that match the filter.
async fn is_applied_to(store: &dyn JobStore, filter: &JobFilter, jobs: &[Job]) {
    let expected = ids(jobs.iter().filter(|job| filter.matches(job)));
    assert_eq!(ids(&all(store, filter, 4).await), expected, "the jobs that match {filter:?}");
    let count = expect_ok("count", store.count(filter).await);
    assert_eq!(count, expected.len() as u64, "the number of jobs that match {filter:?}");
}

pub(super) async fn cancel_all_cancels_the_matching_open_jobs(store: &dyn JobStore) {
    let jobs = in_all_states(store, "acme").await;
    let others = in_all_states(store, "other").await;
    let mut other_tool = once("acme", 10);
    Arc::make_mut(&mut other_tool.payload).tool_id = Some("report".to_owned());
    insert(store, std::slice::from_ref(&other_tool)).await;
    let filter = JobFilter { tool: Some("remind".to_owned()), ..filter_of(company_scope("acme")) };
    let cancelled = expect_ok("cancel", store.cancel_all(&filter, at(50)).await);
    assert_eq!(cancelled, 6, "final jobs are not counted");
    for job in &jobs {
        let expected = if job.state().is_final() { job.state() } else { JobState::Cancelled };
        let stored = get(store, job).await;
        assert_eq!(stored.state(), expected, "a matching open job is cancelled");
        let ended = if job.state().is_final() { job.ended_at() } else { Some(at(50)) };
        assert_eq!(stored.ended_at(), ended, "a job ends once");
    }
    for job in others.iter().chain([&other_tool]) {
        assert_eq!(get(store, job).await, *job, "other jobs are unchanged");
    }
    assert_eq!(expect_ok("cancel", store.cancel_all(&filter, at(60)).await), 0, "no open job is left");
    // More jobs than fit on a page.
    let many: Vec<Job> = (0..MAX_JOBS_PER_PAGE + 10).map(|_| once("many", 10)).collect();
    insert(store, &many).await;
    let cancelled = expect_ok("cancel", store.cancel_all(&filter_of(company_scope("many")), at(60)).await);
    assert_eq!(cancelled, many.len() as u64, "all are cancelled");
    let in_state = |state| JobFilter { state: Some(state), ..filter_of(company_scope("other")) };
    let cancelled = expect_ok("cancel", store.cancel_all(&in_state(JobState::Paused), at(60)).await);
    assert_eq!(cancelled, 2, "cancel_all filters by state");
}

pub(super) async fn purge_removes_ended_jobs(store: &dyn JobStore) {
    let jobs: Vec<Job> = (0..6).map(|_| once("acme", 10)).collect();
    insert(store, &jobs).await;
    for (n, job) in jobs[..5].iter().enumerate() {
        step(store, job, Step::Cancel, at(100 + 10 * n as i64)).await.expect("a job can be cancelled");
    }
    assert_eq!(expect_ok("purge", store.purge(at(100), 10).await), 0, "the limit in time is exclusive");
    assert_eq!(
        expect_ok("purge", store.purge(at(111), 1).await),
        1,
        "no more jobs than the limit are removed"
    );
    assert_eq!(expect_ok("purge", store.purge(at(111), 10).await), 1);
    assert_eq!(expect_ok("purge", store.purge(at(111), 10).await), 0);
    assert_eq!(expect_ok("purge", store.purge(at(200), 0).await), 0);
    let remaining = all(store, &filter_of(JobScope::default()), 10).await;
    assert_eq!(ids(&remaining), ids(&jobs[2..]), "the jobs that ended before are removed");
    assert_eq!(expect_ok("purge", store.purge(Timestamp::MAX, 10).await), 3);
    let remaining = all(store, &filter_of(JobScope::default()), 10).await;
    assert_eq!(ids(&remaining), ids(&jobs[5..]), "an open job is not removed");
}

pub(super) async fn counts_report_states_and_lag(store: &dyn JobStore) {
    let counts = async |now| counted(expect_ok("counts", store.count_by_state(now).await));
    assert_eq!(counts(at(500)).await, (vec![], 0), "the store is empty");
    let jobs = in_all_states(store, "acme").await;
    let (states, lag) = counts(at(15)).await;
    let two = [JobState::Scheduled, JobState::Paused];
    let expected: Vec<_> =
        JobState::ALL.into_iter().map(|state| (state, if two.contains(&state) { 2 } else { 1 })).collect();
    assert_eq!(states, expected, "all states are counted");
    assert_eq!(lag, 5, "the lag is that of the longest overdue job");
    assert_eq!(counts(at(5)).await.1, 0, "a job that is not due has no lag");
    step(store, &jobs[0], Step::Cancel, at(20)).await.expect("a job can be cancelled");
    let lag = jobs.iter().skip(1).map(|job| job.lag(at(90_000)).as_millis()).max();
    assert_eq!(Some(counts(at(90_000)).await.1), lag, "running and paused jobs have no lag");
}

/// Converts counts into a comparable form, with the lag in milliseconds.
pub(super) fn counted(counts: JobCounts) -> (Vec<(JobState, u64)>, u128) {
    let by_state = counts.by_state.into_iter().filter(|(_, count)| *count > 0).collect();
    (by_state, counts.lag.as_millis())
}
