//! Conformance suite for [`Pulse`].

use std::sync::Arc;

use agent_core::conformance::{OpenWorkCounter, Scenario, drop_in_progress, wait_until_idle, with_timeout};
use agent_core::ids::JobId;
use agent_core::new_id;
use agent_jobs::job::{JobFilter, JobOrder, JobPayload, JobScope, JobState, JobView, MAX_JOBS_PER_PAGE};
use agent_jobs::schedule::ScheduleSpec;
use futures_util::future::join_all;
use serde_json::json;

use crate::pulse::{JobControl, JobRequest, JobViewPage, Pulse, PulseError, ScheduledJob, user_scope};

/// Delay of the suite's jobs in milliseconds: none of them becomes due.
const JOB_DELAY_MS: u64 = 24 * 3_600_000;

/// A scheduler client under test and a counter of its requests.
pub struct PulseSubject {
    /// The client.
    pub pulse: Arc<dyn Pulse>,
    /// Counter of the requests that the scheduler is processing, if they can be counted.
    pub open: Option<OpenWorkCounter>,
}

/// Runs the conformance suite of [`Pulse`] against schedulers that behave as the scenario says: they work, do not
/// answer, break off their answers, or are unreachable or refuse the client. The factory must provide the first scenario,
/// [`Scenario::Completes`]. The suite uses companies of its own, so the scheduler may hold other jobs; it need not
/// deliver any.
///
/// # Panics
/// If the contract is violated, with a message that describes the violation.
pub async fn pulse(make: impl AsyncFn(Scenario) -> Option<PulseSubject>) {
    let subject = make(Scenario::Completes).await.expect("the factory provides Scenario::Completes");
    let pulse = &*subject.pulse;
    expect_ok("checking a scheduler that works", pulse.check_health().await);
    a_job_is_as_requested(pulse).await;
    scopes_are_isolated(pulse).await;
    an_idempotency_key_creates_one_job(pulse).await;
    open_jobs_are_limited_after_the_key(pulse).await;
    invalid_requests_are_refused(pulse).await;
    unknown_ids_are_absent(pulse).await;
    cancelling_is_idempotent(pulse).await;
    a_job_is_rescheduled(pulse).await;
    jobs_of_a_tool_or_assignment_are_cancelled(pulse).await;
    jobs_of_an_agent_are_cancelled(pulse).await;
    a_job_is_paused_and_resumed(pulse).await;
    pages_join(pulse).await;
    filters_hold(pulse).await;
    if let Some(open) = &subject.open {
        wait_until_idle("calls that are over leave no request behind", open).await;
    }
    if let Some(subject) = make(Scenario::Hangs).await {
        let request = request(&new_id(), "ada");
        let call = subject.pulse.schedule_job(&request);
        drop_in_progress("dropping a call ends its request", call, subject.open.as_ref()).await;
    }
    for scenario in [Scenario::Truncates, Scenario::Rejects] {
        if let Some(subject) = make(scenario).await {
            an_outage_is_reported_by_every_call(&*subject.pulse, scenario).await;
        }
    }
}

fn delay(delay_ms: u64) -> ScheduleSpec {
    ScheduleSpec { delay_ms: Some(delay_ms), ..ScheduleSpec::default() }
}

/// A schedule that is valid and never fires: the 31st of February.
fn never() -> ScheduleSpec {
    ScheduleSpec { cron: Some("0 0 31 2 *".to_owned()), ..ScheduleSpec::default() }
}

fn scope_of(company: &str, user: &str) -> JobScope {
    user_scope(&company.into(), &user.into())
}

fn request(company: &str, user: &str) -> JobRequest {
    let payload = JobPayload {
        arguments: json!({"title": "tea", "n": [1, {"deep": null}]}).as_object().cloned(),
        timezone: Some("Europe/Berlin".to_owned()),
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned()),
        ..JobPayload::for_tool(company, user, "agent", "remind")
    };
    JobRequest::new(payload, delay(JOB_DELAY_MS))
}

fn expect_ok<T>(what: &str, result: Result<T, PulseError>) -> T {
    result.unwrap_or_else(|error| panic!("{what} failed: {error:?}"))
}

async fn schedule(pulse: &dyn Pulse, request: &JobRequest) -> ScheduledJob {
    expect_ok("scheduling a job", with_timeout("a new job", pulse.schedule_job(request)).await)
}

async fn get(pulse: &dyn Pulse, scope: &JobScope, id: &JobId) -> JobView {
    expect_ok("reading a job", pulse.get_job(scope, id).await)
}

fn filter(scope: &JobScope) -> JobFilter {
    JobFilter { scope: scope.clone(), ..JobFilter::default() }
}

/// Returns all jobs that match the filter, the oldest first, page by page.
async fn all(pulse: &dyn Pulse, filter: &JobFilter, limit: usize) -> Vec<JobView> {
    all_in(pulse, filter, JobOrder::OldestFirst, limit).await
}

/// Returns all jobs that match the filter, page by page.
async fn all_in(pulse: &dyn Pulse, filter: &JobFilter, order: JobOrder, limit: usize) -> Vec<JobView> {
    let (mut jobs, mut cursor): (Vec<JobView>, Option<String>) = (Vec::new(), None);
    loop {
        let page = expect_ok("listing jobs", pulse.list_jobs(filter, order, cursor.as_deref(), limit).await);
        let JobViewPage { jobs: page_jobs, next_cursor } = page;
        assert!(page_jobs.len() <= limit, "a page has at most {limit} jobs: {}", page_jobs.len());
        jobs.extend(page_jobs);
        assert!(jobs.len() <= 1_000, "a list ends");
        cursor = next_cursor;
        if cursor.is_none() {
            return jobs;
        }
    }
}

fn ids(jobs: &[JobView]) -> Vec<JobId> {
    jobs.iter().map(|job| job.job_id.clone()).collect()
}

async fn a_job_is_as_requested(pulse: &dyn Pulse) {
    let request = request(&new_id(), "ada");
    let scheduled = schedule(pulse, &request).await;
    let job = get(pulse, &request.scope(), &scheduled.job_id).await;
    assert_eq!(job.job_id, scheduled.job_id, "a job is found by its id");
    assert_eq!(*job.payload, request.payload, "a job has the payload that was requested");
    assert_eq!(job.state, JobState::Scheduled, "a new job is scheduled");
    assert_eq!((job.occurrence, job.attempt), (1, 0), "a new job waits for its first occurrence");
    assert_eq!(
        job.execute_at.as_millisecond(),
        scheduled.execute_at.as_millisecond(),
        "a job runs at the time that scheduling it returned"
    );
    let wait = job.execute_at.as_millisecond() - job.created_at.as_millisecond();
    let deviation = wait.abs_diff(JOB_DELAY_MS as i64);
    assert!(deviation <= 1_000, "a job runs after the delay that was requested, to the second: {job:?}");
    let listed = all(pulse, &filter(&request.scope()), 10).await;
    assert_eq!(listed, [job], "a job is listed as it is read");
}

async fn an_idempotency_key_creates_one_job(pulse: &dyn Pulse) {
    let company = new_id();
    let keyed =
        |company: &str| JobRequest { idempotency_key: Some("once".to_owned()), ..request(company, "ada") };
    let repeated = keyed(&company);
    let first = schedule(pulse, &repeated).await;
    let again = join_all((0..4).map(|_| schedule(pulse, &repeated))).await;
    assert!(
        again.iter().all(|job| job.job_id == first.job_id),
        "requests with the same idempotency key create one job: {again:?}"
    );
    assert!(
        again.iter().all(|job| job.execute_at.as_millisecond() == first.execute_at.as_millisecond()),
        "a repeated request does not move the job: {again:?}"
    );
    let mut traced = keyed(&company);
    traced.payload.traceparent = None;
    let same = schedule(pulse, &traced).await;
    assert_eq!(same.job_id, first.job_id, "a repeated request may have another trace");
    let mut other = keyed(&company);
    other.payload.arguments = None;
    let refused = pulse.schedule_job(&other).await;
    assert!(
        matches!(refused, Err(PulseError::Conflict(_))),
        "an idempotency key of another request is a conflict: {refused:?}"
    );
    let elsewhere = schedule(pulse, &keyed(&new_id())).await;
    assert_ne!(elsewhere.job_id, first.job_id, "idempotency keys of companies are independent");
    let scope = scope_of(&company, "ada");
    assert_eq!(all(pulse, &filter(&scope), 10).await.len(), 1, "one job was stored");
    let unkeyed = request(&company, "ada");
    let (one, two) = (schedule(pulse, &unkeyed).await, schedule(pulse, &unkeyed).await);
    assert_ne!(one.job_id, two.job_id, "requests without an idempotency key create a job each");
}

async fn open_jobs_are_limited_after_the_key(pulse: &dyn Pulse) {
    let company = new_id();
    let limited = |key: &str, user: &str| JobRequest {
        idempotency_key: Some(key.to_owned()),
        max_open_jobs: Some(1),
        ..request(&company, user)
    };
    let first = schedule(pulse, &limited("first", "ada")).await;
    let refused = pulse.schedule_job(&limited("second", "ada")).await;
    assert!(matches!(refused, Err(PulseError::LimitReached(1))), "over the limit of open jobs: {refused:?}");
    let wider = JobRequest { max_open_jobs: Some(2), ..limited("first", "ada") };
    for repeated in [limited("first", "ada"), wider] {
        let again = schedule(pulse, &repeated).await;
        assert_eq!(again.job_id, first.job_id, "a repeated request gets its job whatever the limit is");
    }
    schedule(pulse, &limited("of bob", "bob")).await;
    expect_ok("cancelling a job", pulse.cancel_job(&scope_of(&company, "ada"), &first.job_id).await);
    schedule(pulse, &limited("second", "ada")).await;
}

async fn invalid_requests_are_refused(pulse: &dyn Pulse) {
    let company = new_id();
    let with = |change: fn(&mut JobRequest)| {
        let mut request = request(&company, "ada");
        change(&mut request);
        request
    };
    for (what, request) in [
        ("a schedule that never fires", with(|request| request.schedule = never())),
        ("no schedule", with(|request| request.schedule = ScheduleSpec::default())),
        ("two schedules", with(|request| request.schedule.every_ms = Some(60_000))),
        ("no tool", with(|request| request.payload.tool_id = None)),
        ("an empty agent", with(|request| request.payload.agent_id = "".into())),
        ("an unknown time zone", with(|request| request.payload.timezone = Some("Mars/Olympus".to_owned()))),
        ("an empty idempotency key", with(|request| request.idempotency_key = Some(String::new()))),
        ("a line break in its key", with(|request| request.idempotency_key = Some("a\nb".to_owned()))),
        ("a slash in an id", with(|request| request.payload.agent_id = "a/b".into())),
        ("no attempt", with(|request| request.max_attempts = Some(0))),
    ] {
        let refused = pulse.schedule_job(&request).await;
        assert!(
            matches!(refused, Err(PulseError::Invalid(_))),
            "a request with {what} is PulseError::Invalid: {refused:?}"
        );
    }
    let stored = all(pulse, &filter(&scope_of(&company, "ada")), 10).await;
    assert!(stored.is_empty(), "a request that was refused stores nothing: {stored:?}");
}

async fn assert_absent(pulse: &dyn Pulse, scope: &JobScope, id: &JobId, what: &str) {
    let results = [
        ("reading", pulse.get_job(scope, id).await.map(drop)),
        ("cancelling", pulse.cancel_job(scope, id).await.map(drop)),
        ("rescheduling", pulse.reschedule_job(scope, id, &delay(2 * JOB_DELAY_MS)).await.map(drop)),
    ];
    for (act, result) in results {
        assert!(
            matches!(result, Err(PulseError::NotFound)),
            "{act} {what} is PulseError::NotFound: {id:?} in {scope:?}: {result:?}"
        );
    }
}

async fn scopes_are_isolated(pulse: &dyn Pulse) {
    let (company, other) = (new_id(), new_id());
    let request = request(&company, "ada");
    let job = schedule(pulse, &request).await;
    let before = get(pulse, &request.scope(), &job.job_id).await;
    for scope in [scope_of(&other, "ada"), scope_of(&company, "bob")] {
        assert_absent(pulse, &scope, &job.job_id, "a job outside the scope").await;
        let listed = all(pulse, &filter(&scope), 10).await;
        assert!(listed.is_empty(), "a list has no job outside the scope: {scope:?}: {listed:?}");
        let cancelled = expect_ok("cancelling", pulse.cancel_jobs_for_tool(&scope, "remind").await);
        assert_eq!(cancelled, 0, "no job outside the scope is cancelled with its tool: {scope:?}");
    }
    let after = get(pulse, &request.scope(), &job.job_id).await;
    assert_eq!(before, after, "calls from outside the scope change nothing");
}

async fn unknown_ids_are_absent(pulse: &dyn Pulse) {
    let scope = scope_of(&new_id(), "ada");
    for id in [&new_id(), "no-such-job", "../jobs", "a/b?c=d#e", "%2e%2e", "ü"] {
        assert_absent(pulse, &scope, &id.into(), "an unknown job").await;
    }
}

async fn cancelling_is_idempotent(pulse: &dyn Pulse) {
    let request = request(&new_id(), "ada");
    let (scope, job) = (request.scope(), schedule(pulse, &request).await);
    for _ in 0..2 {
        let cancelled = expect_ok("cancelling a job", pulse.cancel_job(&scope, &job.job_id).await);
        assert!(!cancelled.delivering, "a job that is not due is not being delivered");
        let current_job = get(pulse, &scope, &job.job_id).await;
        assert_eq!(current_job.state, JobState::Cancelled, "a job that was cancelled stays, as cancelled");
    }
    let refused = pulse.reschedule_job(&scope, &job.job_id, &delay(JOB_DELAY_MS)).await;
    assert!(
        matches!(refused, Err(PulseError::Conflict(_))),
        "rescheduling a job that is final is a conflict: {refused:?}"
    );
}

async fn a_job_is_rescheduled(pulse: &dyn Pulse) {
    let request = request(&new_id(), "ada");
    let (scope, job) = (request.scope(), schedule(pulse, &request).await);
    let moved = pulse.reschedule_job(&scope, &job.job_id, &delay(2 * JOB_DELAY_MS)).await;
    let moved = expect_ok("rescheduling a job", moved);
    assert_eq!(moved.job_id, job.job_id, "a job that was rescheduled keeps its id");
    let current_job = get(pulse, &scope, &job.job_id).await;
    assert_eq!(
        current_job.execute_at.as_millisecond(),
        moved.execute_at.as_millisecond(),
        "a job runs at the time that rescheduling it returned"
    );
    assert!(
        current_job.execute_at > job.execute_at,
        "a job that was rescheduled is due at its new time: {current_job:?}"
    );
    let refused = pulse.reschedule_job(&scope, &job.job_id, &never()).await;
    assert!(
        matches!(refused, Err(PulseError::Invalid(_))),
        "rescheduling to a schedule that never fires is PulseError::Invalid: {refused:?}"
    );
    assert_eq!(get(pulse, &scope, &job.job_id).await, current_job, "a call that was refused changes nothing");
}

async fn jobs_of_a_tool_or_assignment_are_cancelled(pulse: &dyn Pulse) {
    let company = new_id();
    let scope = scope_of(&company, "ada");
    let job = async |tool: &str, assignment: Option<&str>, user: &str| {
        let mut request = request(&company, user);
        request.payload.tool_id = Some(tool.to_owned());
        request.payload.assignment_id = assignment.map(Into::into);
        schedule(pulse, &request).await.job_id
    };
    let by_tool = [job("report", None, "ada").await, job("report", Some("daily"), "ada").await];
    let by_assignment = job("remind", Some("daily"), "ada").await;
    let kept = job("remind", Some("weekly"), "ada").await;
    let of_bob = job("report", Some("daily"), "bob").await;
    let states = async |ids: &[&_]| {
        let mut states = Vec::new();
        for id in ids {
            states.push(get(pulse, &scope, id).await.state);
        }
        states
    };
    for expected in [2, 0] {
        let cancelled = expect_ok("cancelling", pulse.cancel_jobs_for_tool(&scope, "report").await);
        assert_eq!(cancelled, expected, "the jobs of a tool that are not final are cancelled and counted");
    }
    use JobState::{Cancelled, Scheduled};
    let job_states = states(&[&by_tool[0], &by_tool[1], &by_assignment, &kept]).await;
    assert_eq!(
        job_states,
        [Cancelled, Cancelled, Scheduled, Scheduled],
        "only jobs of the tool are cancelled"
    );
    for expected in [1, 0] {
        let cancelled = expect_ok("cancelling", pulse.cancel_jobs_for_assignment(&scope, "daily").await);
        assert_eq!(
            cancelled, expected,
            "the jobs of an assignment that are not final are cancelled and counted"
        );
    }
    let job_states = states(&[&by_assignment, &kept]).await;
    assert_eq!(job_states, [Cancelled, Scheduled], "only jobs of the assignment are cancelled");
    let bobs = get(pulse, &scope_of(&company, "bob"), &of_bob).await;
    assert_eq!(bobs.state, Scheduled, "jobs of another user are not cancelled");
}

async fn jobs_of_an_agent_are_cancelled(pulse: &dyn Pulse) {
    let company = new_id();
    let job = async |agent: &str, user: &str, tool: &str| {
        let mut request = request(&company, user);
        request.payload.agent_id = agent.into();
        request.payload.tool_id = Some(tool.to_owned());
        schedule(pulse, &request).await.job_id
    };
    let of_tool = [job("agent", "ada", "remind").await, job("agent", "bob", "remind").await];
    let of_agent = job("agent", "bob", "report").await;
    let of_other = job("other", "ada", "remind").await;
    let of_company = JobScope { user: None, ..scope_of(&company, "") };
    let filter = JobFilter { agent: Some("agent".into()), ..filter(&of_company) };
    let tool = JobFilter { tool: Some("remind".to_owned()), ..filter.clone() };
    for (filter, expected) in [(&tool, 2), (&filter, 1), (&filter, 0)] {
        let cancelled = expect_ok("cancelling", pulse.cancel_jobs(filter).await);
        assert_eq!(cancelled, expected, "the jobs of an agent, of all its users, are cancelled: {filter:?}");
    }
    for id in of_tool.iter().chain([&of_agent]) {
        let state = get(pulse, &of_company, id).await.state;
        assert_eq!(state, JobState::Cancelled, "all jobs of the agent are cancelled");
    }
    let state = get(pulse, &of_company, &of_other).await.state;
    assert_eq!(state, JobState::Scheduled, "jobs of another agent are not cancelled");
}

async fn a_job_is_paused_and_resumed(pulse: &dyn Pulse) {
    let request = request(&new_id(), "ada");
    let (scope, job) = (request.scope(), schedule(pulse, &request).await);
    for (control, expected) in [
        (JobControl::Pause, JobState::Paused),
        (JobControl::Pause, JobState::Paused),
        (JobControl::Resume, JobState::Scheduled),
    ] {
        let status = pulse.control_job(&scope, &job.job_id, control).await;
        let status = expect_ok("controlling a job", status);
        assert_eq!((&status.job_id, status.state), (&job.job_id, expected), "{control:?} gives the state");
        assert_eq!(get(pulse, &scope, &job.job_id).await.state, expected, "{control:?} is applied");
    }
    let refused = pulse.control_job(&scope, &job.job_id, JobControl::Redrive).await;
    assert!(
        matches!(refused, Err(PulseError::Conflict(_))),
        "redriving a job without a discarded occurrence is a conflict: {refused:?}"
    );
    let elsewhere = pulse.control_job(&scope_of(&new_id(), "ada"), &job.job_id, JobControl::Pause).await;
    assert!(
        matches!(elsewhere, Err(PulseError::NotFound)),
        "a job outside the scope is absent: {elsewhere:?}"
    );
}

async fn pages_join(pulse: &dyn Pulse) {
    let scope = scope_of(&new_id(), "ada");
    let company = scope.company.as_ref().map(ToString::to_string).unwrap_or_default();
    assert!(all(pulse, &filter(&scope), 3).await.is_empty(), "a new company has no jobs");
    let mut expected = Vec::new();
    for _ in 0..7 {
        expected.push(schedule(pulse, &request(&company, "ada")).await.job_id.clone());
    }
    expected.sort();
    for limit in [1, 2, 3, 7, MAX_JOBS_PER_PAGE] {
        let job_ids = ids(&all(pulse, &filter(&scope), limit).await);
        assert_eq!(job_ids, expected, "pages of {limit} cover the list in the order of ids");
        let mut job_ids = ids(&all_in(pulse, &filter(&scope), JobOrder::NewestFirst, limit).await);
        job_ids.reverse();
        assert_eq!(job_ids, expected, "pages of {limit} cover the list, the newest first");
    }
    for cursor in ["", "zzz", "01A1FF61-C9E6-701E-AD68-2ADF832E7177", "%01a1ff61-c9e6-701e-ad68-2adf832e7177"]
    {
        let page = pulse.list_jobs(&filter(&scope), JobOrder::OldestFirst, Some(cursor), 3).await;
        assert!(
            matches!(page, Err(PulseError::Invalid(_))),
            "a cursor that no page returned is PulseError::Invalid: {cursor:?}: {page:?}"
        );
    }
}

async fn filters_hold(pulse: &dyn Pulse) {
    let company = new_id();
    let mut created = Vec::new();
    for (user, tool, assignment) in [
        ("ada", "remind", None),
        ("ada", "report", Some("daily")),
        ("bob", "remind", Some("daily")),
        ("bob", "report", None),
    ] {
        let mut request = request(&company, user);
        request.payload.tool_id = Some(tool.to_owned());
        request.payload.assignment_id = assignment.map(Into::into);
        created.push(schedule(pulse, &request).await.job_id);
    }
    let first = &created[0];
    expect_ok("cancelling a job", pulse.cancel_job(&scope_of(&company, "ada"), first).await);
    let of_company = JobScope { user: None, ..scope_of(&company, "") };
    let tool = |tool: &str| JobFilter { tool: Some(tool.to_owned()), ..filter(&of_company) };
    for (filter, expected) in [
        (filter(&of_company), &[0, 1, 2, 3][..]),
        (filter(&scope_of(&company, "bob")), &[2, 3]),
        (tool("remind"), &[0, 2]),
        (tool("none"), &[]),
        (JobFilter { assignment: Some("daily".into()), ..filter(&of_company) }, &[1, 2]),
        (JobFilter { state: Some(JobState::Cancelled), ..filter(&of_company) }, &[0]),
        (JobFilter { state: Some(JobState::Scheduled), ..tool("remind") }, &[2]),
        (JobFilter { open: true, ..filter(&of_company) }, &[1, 2, 3]),
        (JobFilter { agent: Some("agent".into()), ..tool("remind") }, &[0, 2]),
        (JobFilter { agent: Some("other".into()), ..tool("remind") }, &[]),
    ] {
        let mut expected: Vec<JobId> = expected.iter().map(|at| created[*at].clone()).collect();
        expected.sort();
        let count = expect_ok("counting jobs", pulse.count_jobs(&filter).await);
        assert_eq!(count, expected.len() as u64, "a count is of the jobs that match its filter: {filter:?}");
        let job_ids = ids(&all(pulse, &filter, 2).await);
        assert_eq!(job_ids, expected, "a list has the jobs that match its filter: {filter:?}");
    }
}

async fn an_outage_is_reported_by_every_call(pulse: &dyn Pulse, scenario: Scenario) {
    let request = request(&new_id(), "ada");
    let (scope, id) = (request.scope(), JobId::from(new_id()));
    let results = [
        ("schedule_job", pulse.schedule_job(&request).await.map(drop)),
        ("get_job", pulse.get_job(&scope, &id).await.map(drop)),
        ("cancel_job", pulse.cancel_job(&scope, &id).await.map(drop)),
        ("reschedule_job", pulse.reschedule_job(&scope, &id, &delay(JOB_DELAY_MS)).await.map(drop)),
        ("cancel_jobs_for_tool", pulse.cancel_jobs_for_tool(&scope, "remind").await.map(drop)),
        ("cancel_jobs_for_assignment", pulse.cancel_jobs_for_assignment(&scope, "daily").await.map(drop)),
        ("list_jobs", pulse.list_jobs(&filter(&scope), JobOrder::default(), None, 10).await.map(drop)),
        ("count_jobs", pulse.count_jobs(&filter(&scope)).await.map(drop)),
        ("control_job", pulse.control_job(&scope, &id, JobControl::Pause).await.map(drop)),
        ("check_health", pulse.check_health().await),
    ];
    // A scheduler's health endpoint may be public, so a wrong credential need not fail it.
    let is_checked = |call: &str| call != "check_health" || scenario != Scenario::Rejects;
    for (call, result) in results.into_iter().filter(|(call, _)| is_checked(call)) {
        assert!(
            matches!(
                result,
                Err(PulseError::Unavailable(_) | PulseError::Refused(_) | PulseError::NotConfigured)
            ),
            "{call} of a scheduler that fails is an error that tells so ({scenario:?}): {result:?}"
        );
    }
}
