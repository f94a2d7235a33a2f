use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::FutureExt;
use serde_json::json;

use agent_jobs::schedule::ScheduleSpec;
use serde_json::Value;

use super::calls::SchedulerCall;
use super::*;
use crate::memory::MemoryRecords;
use crate::pulse::user_scope;
use crate::pulse::{CancelResult, JobControl, JobRequest, JobStatus, JobViewPage, ScheduledJob};
use crate::records::RecordsWrapper;
use crate::testing::MemoryPulse;
use agent_jobs::job::{
    AttemptOutcome, ClaimRequest, CompanyQuota, JobFilter, JobOrder, JobScope, JobState, JobView, Step,
};

/// Target of an assignment that may run, with a scheduler service.
const HERE: SyncTarget = SyncTarget { can_run: true, is_local: false };

fn assignment(change: Value) -> Assignment {
    let mut base = json!({"id": "s", "userId": "u", "companyId": "c", "agentId": "a", "toolId": "createTodo",
        "arguments": {"title": "x"}, "schedule": {"enabled": true, "cron": "0 9 * * *"}});
    for (name, value) in change.as_object().expect("an object") {
        base[name] = value.clone();
    }
    serde_json::from_value(base).expect("an assignment")
}

fn sent_state(assignment: Assignment, job: Option<&str>) -> SyncedState {
    let execute_at = Timestamp::UNIX_EPOCH;
    let job = job.map(|id| AssignedJob { job_id: id.into(), occurrence: Some(1), execute_at, paused: false });
    SyncedState { assignment, version: 1, suspensions: 0, job }
}

/// Formats the operations as short strings.
fn shown(operations: &[SchedulerCall]) -> Vec<String> {
    let show = |operation: &SchedulerCall| match operation {
        SchedulerCall::Schedule(request) => {
            format!("schedule {}", request.idempotency_key.as_deref().expect("a key"))
        }
        SchedulerCall::Reschedule { job_id, .. } => format!("reschedule {job_id}"),
        SchedulerCall::Confirm { job_id, .. } => format!("confirm {job_id}"),
        SchedulerCall::CancelJob { job_id, .. } => format!("cancel {job_id}"),
        SchedulerCall::CancelAll { .. } => "cancel all".to_owned(),
    };
    operations.iter().map(show).collect()
}

#[test]
fn calls_bring_the_scheduler_to_the_stored_assignment() {
    let on = || assignment(json!({}));
    let off = || assignment(json!({"schedule": {"enabled": false, "cron": "0 9 * * *"}}));
    let later = || assignment(json!({"schedule": {"enabled": true, "cron": "0 10 * * *"}}));
    let often = || assignment(json!({"schedule": {"enabled": true, "everyMs": 60_000}}));
    let elsewhere = || {
        assignment(json!({"schedule": {"enabled": true, "cron": "0 9 * * *", "timezone": "Europe/Berlin"}}))
    };
    let other_tool = || assignment(json!({"toolId": "remember"}));
    let other_arguments = || assignment(json!({"arguments": {"title": "y"}}));
    let other_user = || assignment(json!({"userId": "v"}));
    let replaced = ["schedule assignment:s:2", "cancel j"];
    /// Name of the case, state known to the scheduler, stored assignment, expected operations.
    type Case<'a> = (&'a str, Option<SyncedState>, Option<Assignment>, &'a [&'a str]);
    let cases: &[Case<'_>] = &[
        ("nothing", None, None, &[]),
        ("made", None, Some(on()), &["schedule assignment:s:2"]),
        ("made, switched off", None, Some(off()), &[]),
        ("the same", Some(sent_state(on(), Some("j"))), Some(on()), &["confirm j"]),
        ("switched off", Some(sent_state(on(), Some("j"))), Some(off()), &["cancel all"]),
        ("still off", Some(sent_state(off(), None)), Some(off()), &[]),
        ("switched on", Some(sent_state(off(), None)), Some(on()), &["schedule assignment:s:2"]),
        ("removed", Some(sent_state(on(), Some("j"))), None, &["cancel all"]),
        ("removed while off", Some(sent_state(off(), None)), None, &[]),
        ("another time", Some(sent_state(on(), Some("j"))), Some(later()), &["reschedule j"]),
        ("an interval", Some(sent_state(on(), Some("j"))), Some(often()), &["reschedule j"]),
        ("another zone", Some(sent_state(on(), Some("j"))), Some(elsewhere()), &replaced),
        ("another tool", Some(sent_state(on(), Some("j"))), Some(other_tool()), &replaced),
        ("other arguments", Some(sent_state(on(), Some("j"))), Some(other_arguments()), &replaced),
        ("another user", Some(sent_state(on(), Some("j"))), Some(other_user()), &replaced),
    ];
    for (case, before, after, expected) in cases {
        let operations = pending_calls(before.as_ref(), after.as_ref().map(|after| (after, 2)), HERE);
        assert_eq!(shown(&operations), *expected, "{case}");
    }
}

/// An assignment of a tool that the agent may not call counts as disabled. When the agent may call it again, its job has
/// another key than the cancelled one.
#[test]
fn an_assignment_without_its_tool_has_no_job_until_the_tool_returns() {
    let (records, pulse) = (MemoryRecords::default(), RecordingPulse::default());
    let version = save(&records, &assignment(json!({})));
    let sync = |can_run| {
        let target = SyncTarget { can_run, ..HERE };
        let company = CompanyId::from("c");
        let synced = sync_assignment(&records, &pulse, (&company, "s"), target, Timestamp::UNIX_EPOCH);
        ready(synced).expect("synchronized");
        pulse.take_calls()
    };
    let key = format!("assignment:s:{version}");
    assert_eq!(sync(true), [format!("schedule {key}")]);
    assert_eq!(sync(false), ["cancel all of s"]);
    assert!(sync(false).is_empty());
    assert_eq!(sync(true), [format!("schedule {key}:1")]);
}

#[test]
fn a_one_off_job_that_another_scheduler_has_run_is_not_run_again() {
    let once = || assignment(json!({"schedule": {"enabled": true, "executeAt": "2026-01-01T00:00:00Z"}}));
    let local = |occurrence| {
        let execute_at = Timestamp::UNIX_EPOCH;
        let job = AssignedJob { job_id: "local-j".into(), occurrence, execute_at, paused: false };
        SyncedState { assignment: once(), version: 2, suspensions: 0, job: Some(job) }
    };
    let cases: [(_, u64, &[&str]); 3] =
        [(None, 2, &[]), (Some(1), 2, &["schedule assignment:s:2"]), (None, 3, &["schedule assignment:s:3"])];
    for (occurrence, version, expected) in cases {
        let calls = pending_calls(Some(&local(occurrence)), Some((&once(), version)), HERE);
        assert_eq!(shown(&calls), expected, "{occurrence:?} at version {version}");
    }
}

#[test]
fn jobs_are_cancelled_in_the_scope_of_their_former_user() {
    let new = assignment(json!({"userId": "v"}));
    let operations =
        pending_calls(Some(&sent_state(assignment(json!({})), Some("j"))), Some((&new, 2)), HERE);
    let [SchedulerCall::Schedule(request), SchedulerCall::CancelJob { scope, .. }] = &operations[..] else {
        panic!("{operations:?}")
    };
    assert_eq!(request.scope(), user_scope(&"c".into(), &"v".into()));
    assert_eq!(*scope, user_scope(&"c".into(), &"u".into()));
}

#[test]
fn faults_name_the_field() {
    let schedule = |schedule: Value| json!({ "schedule": schedule });
    for (change, expected) in [
        (json!({}), ""),
        (schedule(json!({"enabled": false})), ""),
        (schedule(json!({"enabled": true})), "schedule needs one of executeAt, cron and everyMs"),
        (
            schedule(json!({"enabled": true, "cron": "0 9 * * *", "everyMs": 1000})),
            "schedule is not valid: cron and everyMs are both given",
        ),
        (
            schedule(json!({"enabled": true, "cron": "0 0 31 2 *"})),
            "schedule is not valid: cron \"0 0 31 2 *\" has no occurrence",
        ),
        (
            schedule(json!({"enabled": true, "cron": "0 9 * * *", "timezone": "Mars"})),
            "schedule is not valid: timezone \"Mars\" is not a name",
        ),
        (json!({"toolId": ""}), "toolId must have 1 to"),
        (json!({"toolId": null}), "toolId is missing"),
        (json!({"kind": "agent"}), "message is missing"),
        (json!({"userId": ""}), "userId must have 1 to"),
    ] {
        let fault = assignment(change.clone()).validate(Timestamp::UNIX_EPOCH);
        let shown = fault.map(|(field, fault)| format!("{field} {fault}")).unwrap_or_default();
        assert_eq!(shown.is_empty(), expected.is_empty(), "{change}: {shown}");
        assert!(shown.starts_with(expected), "{change}: {shown}");
    }
}

/// Scheduler double that records its calls and fails as scripted.
#[derive(Default)]
struct RecordingPulse {
    calls: Mutex<Vec<String>>,
    faults: Mutex<VecDeque<Option<PulseError>>>,
    /// Done during the next call.
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl RecordingPulse {
    fn failing(faults: impl IntoIterator<Item = Option<PulseError>>) -> Self {
        Self { faults: Mutex::new(faults.into_iter().collect()), ..Self::default() }
    }

    fn record(&self, text: String) -> Result<(), PulseError> {
        self.calls.lock().expect("unpoisoned").push(text);
        let meanwhile = self.meanwhile.lock().expect("unpoisoned").take();
        if let Some(change) = meanwhile {
            change();
        }
        self.faults.lock().expect("unpoisoned").pop_front().flatten().map_or(Ok(()), Err)
    }

    fn take_calls(&self) -> Vec<String> {
        std::mem::take(&mut self.calls.lock().expect("unpoisoned"))
    }
}

#[async_trait]
impl Pulse for RecordingPulse {
    async fn schedule_job(&self, job: &JobRequest) -> Result<ScheduledJob, PulseError> {
        let key = job.idempotency_key.clone().expect("a key");
        self.record(format!("schedule {key}"))?;
        Ok(ScheduledJob { job_id: format!("job of {key}").into(), execute_at: Timestamp::UNIX_EPOCH })
    }

    async fn get_job(&self, _: &JobScope, _: &JobId) -> Result<JobView, PulseError> {
        Err(PulseError::NotFound)
    }

    async fn cancel_job(&self, _: &JobScope, id: &JobId) -> Result<CancelResult, PulseError> {
        self.record(format!("cancel {id}"))?;
        Ok(CancelResult::default())
    }

    async fn reschedule_job(
        &self,
        _: &JobScope,
        id: &JobId,
        _: &ScheduleSpec,
    ) -> Result<ScheduledJob, PulseError> {
        self.record(format!("reschedule {id}"))?;
        Ok(ScheduledJob { job_id: id.into(), execute_at: Timestamp::UNIX_EPOCH })
    }

    async fn control_job(&self, _: &JobScope, _: &JobId, _: JobControl) -> Result<JobStatus, PulseError> {
        Err(PulseError::NotFound)
    }

    async fn cancel_jobs(&self, _: &JobFilter) -> Result<u64, PulseError> {
        Ok(0)
    }

    async fn count_jobs(&self, _: &JobFilter) -> Result<u64, PulseError> {
        Ok(0)
    }

    async fn cancel_jobs_for_assignment(&self, _: &JobScope, id: &str) -> Result<u64, PulseError> {
        self.record(format!("cancel all of {id}"))?;
        Ok(1)
    }

    async fn list_jobs(
        &self,
        _: &JobFilter,
        _: JobOrder,
        _: Option<&str>,
        _: usize,
    ) -> Result<JobViewPage, PulseError> {
        Ok(JobViewPage::default())
    }

    async fn check_health(&self) -> Result<(), PulseError> {
        Ok(())
    }
}

fn ready<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("no wait")
}

fn save(records: &MemoryRecords, assignment: &Assignment) -> u64 {
    let key = assignment_key(&"c".into(), "s").expect("a key");
    ready(records.put_as(&key, assignment, Precondition::Any)).expect("put")
}

fn synced(records: &MemoryRecords, pulse: &RecordingPulse, second: i64) -> Result<Vec<String>, String> {
    let now = Timestamp::from_second(second).expect("a time");
    let synced = ready(sync_assignment(records, pulse, (&"c".into(), "s"), HERE, now));
    synced.map(|()| pulse.take_calls()).map_err(|error| error.to_string())
}

#[test]
fn each_change_is_sent_to_the_scheduler_once() {
    let (records, pulse) = (MemoryRecords::default(), RecordingPulse::default());
    assert_eq!(synced(&records, &pulse, 0), Ok(vec![]));
    let version = save(&records, &assignment(json!({})));
    let first = format!("assignment:s:{version}");
    assert_eq!(synced(&records, &pulse, 0), Ok(vec![format!("schedule {first}")]));
    assert_eq!(synced(&records, &pulse, 0), Ok(vec![]));
    save(&records, &assignment(json!({"schedule": {"enabled": true, "everyMs": 5000}})));
    assert_eq!(synced(&records, &pulse, 0), Ok(vec![format!("reschedule job of {first}")]));
    ready(records.delete(&assignment_key(&"c".into(), "s").expect("a key"), Precondition::Any))
        .expect("removed");
    assert_eq!(synced(&records, &pulse, 0), Ok(vec!["cancel all of s".to_owned()]));
    assert_eq!(synced(&records, &pulse, 0), Ok(vec![]));
    assert!(ready(records.get(&sync_key(&"c".into(), "s").expect("a key"))).expect("read").is_none());
}

#[test]
fn an_interrupted_synchronization_is_repeated_from_its_beginning() {
    let records = MemoryRecords::default();
    let unavailable = || Some(PulseError::Unavailable("away".into()));
    // The third call, which cancels the replaced job, fails.
    let pulse = RecordingPulse::failing([None, None, unavailable()]);
    let first = save(&records, &assignment(json!({})));
    synced(&records, &pulse, 0).expect("synchronized");
    let second = save(&records, &assignment(json!({"toolId": "remember"})));
    assert_eq!(synced(&records, &pulse, 0), Err("the scheduler is unavailable".to_owned()));
    pulse.take_calls();
    let again =
        vec![format!("schedule assignment:s:{second}"), format!("cancel job of assignment:s:{first}")];
    assert_eq!(synced(&records, &pulse, 0), Ok(again));
}

#[test]
fn a_missing_job_is_created_again() {
    for fault in [PulseError::NotFound, PulseError::Conflict("final".to_owned())] {
        let records = MemoryRecords::default();
        let pulse = RecordingPulse::failing([None, Some(fault)]);
        save(&records, &assignment(json!({})));
        synced(&records, &pulse, 0).expect("synchronized");
        let version = save(&records, &assignment(json!({"schedule": {"enabled": true, "everyMs": 5000}})));
        let synced_assignment = synced(&records, &pulse, 0).expect("synchronized");
        assert_eq!(synced_assignment[1], format!("schedule assignment:s:{version}"));
    }
}

/// Claims the due job of a scheduler, and ends its delivery as succeeded.
async fn run_due_job(pulse: &MemoryPulse) {
    let now = Timestamp::now();
    let quota = CompanyQuota::new(usize::MAX);
    let claim = ClaimRequest { now, due_until: now, lease_until: Timestamp::MAX, limit: 1, quota };
    let claimed = pulse.jobs().claim_due(claim).await.expect("claimed");
    let job = claimed.first().expect("a due job");
    let end = Step::End {
        fence: job.fence,
        outcome: AttemptOutcome::Succeeded,
        duration: Duration::ZERO,
        status: Some(200),
        jitter: 0,
    };
    let ended = pulse.jobs().apply_steps(vec![(job.id.clone(), end)], now).await.expect("stored");
    assert!(ended[0].is_applied(), "{ended:?}");
}

#[tokio::test]
async fn an_unchanged_assignment_gets_a_job_in_place_of_a_cancelled_one() {
    let (records, pulse, company) = (MemoryRecords::default(), MemoryPulse::default(), CompanyId::from("c"));
    let save_and_sync = async |assignment: &Assignment| {
        save(&records, assignment);
        let synced = sync_assignment(&records, &pulse, (&company, "s"), HERE, Timestamp::now()).await;
        synced.expect("synchronized");
        let key = sync_key(&company, "s").expect("a key");
        let link = records.get_as::<AssignmentSync>(&key).await.expect("read").expect("a link");
        link.value.last_sent.and_then(|last_sent| last_sent.job).expect("a job").job_id
    };
    let daily = assignment(json!({}));
    let first = save_and_sync(&daily).await;
    assert_eq!(save_and_sync(&daily).await, first, "the job is there");
    // As by a request to disable the assignment whose answer was lost.
    pulse.cancel_jobs_for_assignment(&daily.scope(), "s").await.expect("cancelled");
    let second = save_and_sync(&daily).await;
    assert_ne!(second, first);
    let job = pulse.get_job(&daily.scope(), &second).await.expect("a job");
    assert_eq!(job.state, JobState::Scheduled);
    // A one-off job that has run is not run again.
    let once = assignment(json!({"schedule": {"enabled": true, "executeAt": "2020-01-01T00:00:00Z"}}));
    let third = save_and_sync(&once).await;
    run_due_job(&pulse).await;
    assert_eq!(save_and_sync(&once).await, third);
}

#[test]
fn one_process_at_a_time_synchronizes_until_its_lease_expires() {
    let (records, pulse) = (MemoryRecords::default(), RecordingPulse::default());
    save(&records, &assignment(json!({})));
    let link = AssignmentSync { last_sent: None, busy_until: Timestamp::from_second(100).ok() };
    ready(records.put_as(&sync_key(&"c".into(), "s").expect("a key"), &link, Precondition::Any))
        .expect("put");
    assert!(synced(&records, &pulse, 99).is_err());
    assert_eq!(pulse.take_calls(), Vec::<String>::new());
    assert_eq!(synced(&records, &pulse, 100).expect("synchronized").len(), 1);
}

#[test]
fn the_next_occurrence_is_remembered_as_long_as_its_number_is_known() {
    let (records, pulse) = (MemoryRecords::default(), RecordingPulse::default());
    let version = save(&records, &assignment(json!({"schedule": {"enabled": true, "everyMs": 5000}})));
    synced(&records, &pulse, 0).expect("synchronized");
    let job_id = JobId::from(format!("job of assignment:s:{version}"));
    let company = CompanyId::from("c");
    let run = |occurrence, by_scheduler, second| {
        let now = Timestamp::from_second(second).expect("a time");
        let ran = record_run(&records, (&company, "s"), (&job_id, occurrence), by_scheduler, now);
        ready(ran).expect("remembered");
        let job = linked_job(&records);
        (job.occurrence, job.execute_at.as_second())
    };
    assert_eq!(run(1, true, 10), (Some(2), 15));
    assert_eq!(run(1, true, 20), (Some(2), 15), "an older status changes nothing");
    assert_eq!(run(2, false, 20), (None, 15), "the next number is the scheduler's to give");
    assert_eq!(run(3, true, 30), (Some(4), 35));
}

/// Returns the job of the assignment as its link has it.
fn linked_job(records: &MemoryRecords) -> AssignedJob {
    let key = sync_key(&"c".into(), "s").expect("a key");
    let link = ready(records.get_as::<AssignmentSync>(&key)).expect("read").expect("a link");
    link.value.last_sent.expect("a state").job.expect("a job")
}

/// Records the state of the assignment's job at a scheduler that answers `paused`.
async fn record_state(records: &dyn Records, job_id: &JobId, paused: bool) -> Result<(), StoreError> {
    record_pause(records, (&"c".into(), "s"), job_id, || async move { Ok(paused) }).await
}

#[test]
fn a_paused_job_is_known_until_it_is_resumed() {
    let (records, pulse, company) =
        (MemoryRecords::default(), RecordingPulse::default(), CompanyId::from("c"));
    let version = save(&records, &assignment(json!({"schedule": {"enabled": true, "everyMs": 5000}})));
    synced(&records, &pulse, 0).expect("synchronized");
    let job_id = JobId::from(format!("job of assignment:s:{version}"));
    let set_paused = |job_id: &JobId, paused| {
        ready(record_state(&records, job_id, paused)).expect("recorded");
    };
    let is_paused = || linked_job(&records).paused;
    set_paused(&"another".into(), true);
    assert!(!is_paused());
    set_paused(&job_id, true);
    assert!(is_paused());
    // Neither a run that had started nor another schedule resumes it.
    let now = Timestamp::from_second(10).expect("a time");
    ready(record_run(&records, (&company, "s"), (&job_id, 1), true, now)).expect("recorded");
    save(&records, &assignment(json!({"schedule": {"enabled": true, "everyMs": 9000}})));
    assert_eq!(synced(&records, &pulse, 20), Ok(vec![format!("reschedule {job_id}")]));
    assert!(is_paused());
    set_paused(&job_id, false);
    assert!(!is_paused());
    set_paused(&job_id, true);
    // Another work is another job.
    save(&records, &assignment(json!({"toolId": "remember"})));
    synced(&records, &pulse, 30).expect("synchronized");
    assert!(!is_paused());
}

/// Store in which a run of a job ends just before the next commit.
struct RunEndingRecords {
    inner: MemoryRecords,
    ending: Mutex<Option<JobId>>,
}

#[async_trait]
impl RecordsWrapper for RunEndingRecords {
    fn inner(&self) -> &dyn Records {
        &self.inner
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Vec<Option<u64>>, StoreError> {
        let ending = self.ending.lock().expect("unpoisoned").take();
        if let Some(job_id) = ending {
            let company = CompanyId::from("c");
            record_run(&self.inner, (&company, "s"), (&job_id, 1), true, Timestamp::UNIX_EPOCH).await?;
        }
        self.inner.commit(writes).await
    }
}

#[test]
fn a_pause_is_recorded_also_if_a_run_ends_at_the_same_moment() {
    let (inner, pulse) = (MemoryRecords::default(), RecordingPulse::default());
    let version = save(&inner, &assignment(json!({"schedule": {"enabled": true, "everyMs": 5000}})));
    synced(&inner, &pulse, 0).expect("synchronized");
    let job_id = JobId::from(format!("job of assignment:s:{version}"));
    let records = RunEndingRecords { inner, ending: Mutex::new(Some(job_id.clone())) };
    ready(record_state(&records, &job_id, true)).expect("recorded");
    let job = linked_job(&records.inner);
    assert_eq!((job.paused, job.occurrence), (true, Some(2)));
}

/// Store in which another request resumes a job just before the next commit.
struct ResumingRecords {
    inner: MemoryRecords,
    resuming: Mutex<Option<JobId>>,
}

#[async_trait]
impl RecordsWrapper for ResumingRecords {
    fn inner(&self) -> &dyn Records {
        &self.inner
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Vec<Option<u64>>, StoreError> {
        let resuming = self.resuming.lock().expect("unpoisoned").take();
        if let Some(job_id) = resuming {
            record_state(&self.inner, &job_id, false).await?;
        }
        self.inner.commit(writes).await
    }
}

#[test]
fn a_pause_and_a_resume_at_the_same_moment_are_recorded_as_they_took_effect() {
    let (inner, pulse) = (MemoryRecords::default(), RecordingPulse::default());
    let version = save(&inner, &assignment(json!({"schedule": {"enabled": true, "everyMs": 5000}})));
    synced(&inner, &pulse, 0).expect("synchronized");
    let job_id = JobId::from(format!("job of assignment:s:{version}"));
    let records = ResumingRecords { inner, resuming: Mutex::new(Some(job_id.clone())) };
    // The scheduler has paused the job when it is asked, and has resumed it when the answer is recorded.
    let is_paused = || {
        let is_resumed = records.resuming.lock().expect("unpoisoned").is_none();
        async move { Ok::<_, StoreError>(!is_resumed) }
    };
    ready(record_pause(&records, (&"c".into(), "s"), &job_id, is_paused)).expect("recorded");
    assert!(!linked_job(&records.inner).paused);
}

#[test]
fn a_link_that_changes_during_a_synchronization_does_not_delay_it() {
    let (records, pulse) = (Arc::new(MemoryRecords::default()), RecordingPulse::default());
    let version = save(&records, &assignment(json!({"schedule": {"enabled": true, "everyMs": 5000}})));
    synced(&records, &pulse, 0).expect("synchronized");
    save(&records, &assignment(json!({"schedule": {"enabled": true, "everyMs": 9000}})));
    let job_id = JobId::from(format!("job of assignment:s:{version}"));
    let reschedule = format!("reschedule {job_id}");
    let of_request = records.clone();
    let pause = move || {
        ready(record_state(&*of_request, &job_id, true)).expect("recorded");
    };
    *pulse.meanwhile.lock().expect("unpoisoned") = Some(Box::new(pause));
    // The lease in the changed link is its own.
    assert_eq!(synced(&records, &pulse, 20), Ok(vec![reschedule.clone(), reschedule]));
    assert!(linked_job(&records).paused);
}
