//! Tool assignments: a tool that an agent runs by a schedule, and the job that this takes.
//!
//! What somebody has saved is the [`Assignment`]; what the scheduler was told of it is a [`Link`] beside it.
//! [`operations`] says, from the two, what the scheduler is yet to be told: a pure function. [`sync`] tells it.
//! An assignment whose link is of another version is out of step, and stays so until somebody syncs it:
//! whoever saved it, or a pass over all of them.

use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::pulse::{JobRequest, Pulse, PulseError, Scheduled, owner};
use crate::records::{
    Collection, Key, List, MAX_ID_BYTES, Precondition, Record, Records, RecordsExt, StoreError, Write,
    to_json,
};
use crate::workspace::{Listed, collection, view};
use agent_core::job::{JobKind, JobPayload, Scope};
use agent_core::schedule::{DstPolicy, ScheduleSpec};

/// The collection of the links.
pub const LINKS: &str = "assignmentLinks";
/// How long somebody may take to tell the scheduler. It is more than the calls take, time-outs included.
const LEASE: Duration = Duration::from_secs(5 * 60);
/// How often a change that came meanwhile is told as well.
const ROUNDS: usize = 4;

/// A tool that an agent runs for a person by a schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Assignment {
    /// The identifier, unique in the company.
    pub id: String,
    /// For whom.
    pub user_id: String,
    /// The company.
    pub company_id: String,
    /// The agent.
    pub agent_id: String,
    /// The tool's name.
    pub tool_id: String,
    /// What the tool is called with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Map<String, Value>>,
    /// The todo list that the tool works on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub todo_list_id: Option<String>,
    /// When.
    pub schedule: AssignmentSchedule,
}

/// When an assignment runs: one of `cron`, `everyMs` and `executeAt`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AssignmentSchedule {
    /// Whether it runs at all.
    pub enabled: bool,
    /// Repeatedly, by a cron expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// Repeatedly, each time so many milliseconds later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_ms: Option<u64>,
    /// Once, at an RFC 3339 time; one without an offset is meant in `timezone`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execute_at: Option<String>,
    /// The IANA zone that `cron` and an `executeAt` without an offset mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    /// What `cron` does when that zone's clock jumps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst: Option<DstPolicy>,
}

impl AssignmentSchedule {
    /// The same as the scheduler is asked.
    pub fn spec(&self) -> ScheduleSpec {
        ScheduleSpec {
            execute_at: self.execute_at.clone(),
            delay_ms: None,
            cron: self.cron.clone(),
            every_ms: self.every_ms,
            timezone: self.timezone.clone(),
            dst: self.dst,
        }
    }
}

impl Assignment {
    /// What is wrong with it at the time `now`: the field's path and the fault.
    pub fn fault(&self, now: Timestamp) -> Option<(&'static str, String)> {
        // The payload takes longer identifiers than records do.
        for (field, id) in [("id", &self.id), ("agentId", &self.agent_id), ("toolId", &self.tool_id)] {
            if id.is_empty() || id.len() > MAX_ID_BYTES {
                return Some((field, format!("must have 1 to {MAX_ID_BYTES} bytes")));
            }
        }
        if let Err(error) = self.payload().validate() {
            return Some(("", error.to_string()));
        }
        // What is switched off may be unfinished.
        let fault = self.schedule.enabled.then(|| self.schedule.spec().resolve(now).err()).flatten();
        fault.map(|fault| ("schedule", fault.to_string()))
    }

    /// What the scheduler calls back with.
    pub fn payload(&self) -> JobPayload {
        JobPayload {
            kind: JobKind::Tool,
            user_id: self.user_id.clone(),
            company_id: self.company_id.clone(),
            agent_id: self.agent_id.clone(),
            tool_id: Some(self.tool_id.clone()),
            assignment_id: Some(self.id.clone()),
            arguments: self.arguments.clone(),
            message: None,
            todo_list_id: self.todo_list_id.clone(),
            timezone: self.schedule.timezone.clone(),
        }
    }

    /// Whose jobs its own are.
    pub fn scope(&self) -> Scope {
        owner(&self.company_id, &self.user_id)
    }

    /// The job that is asked for at a version. The key is of the version, which never comes back, so that the
    /// same change asked for twice is one job, and a later one is another.
    fn request(&self, version: u64) -> JobRequest {
        JobRequest {
            idempotency_key: Some(format!("assignment:{}:{version}", self.id)),
            ..JobRequest::new(self.payload(), self.schedule.spec())
        }
    }
}

/// Where an assignment is.
///
/// # Errors
/// [`StoreError::Invalid`] for what cannot be an identifier.
pub fn key(company_id: &str, id: &str) -> Result<Key, StoreError> {
    Key::new(company_id, collection::ASSIGNMENTS, id)
}

/// One page of an agent's assignments, by their ids.
///
/// # Errors
/// The store's own troubles.
pub async fn of_agent(
    records: &dyn Records,
    company_id: &str,
    agent_id: &str,
    list: &List,
) -> Result<Listed<Record<Assignment>>, StoreError> {
    let all = Collection::new(company_id, collection::ASSIGNMENTS)?;
    let of_agent = |record: Record<Assignment>| (record.value.agent_id == agent_id).then_some(record);
    view(records, &all, list, of_agent).await
}

/// Where an assignment's link is.
///
/// # Errors
/// [`StoreError::Invalid`] for what cannot be an identifier.
pub fn link_key(company_id: &str, id: &str) -> Result<Key, StoreError> {
    Key::new(company_id, LINKS, id)
}

/// What the scheduler was told of an assignment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Link {
    /// The assignment as it was told; absent before the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<Told>,
    /// Until when somebody is telling it something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_until: Option<Timestamp>,
}

/// An assignment as the scheduler knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Told {
    /// The assignment.
    pub assignment: Assignment,
    /// The version that it had.
    pub version: u64,
    /// Its job; absent for one that is switched off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<LinkedJob>,
}

/// An assignment's job, as far as is remembered here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkedJob {
    /// The job's id.
    pub job_id: String,
    /// The number of the occurrence that is next; absent where only the scheduler knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occurrence: Option<u64>,
    /// When that is due.
    pub execute_at: Timestamp,
}

/// Something that the scheduler is told.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// Make a job.
    Schedule(Box<JobRequest>),
    /// Move the job. One that is gone or final is made anew.
    Reschedule {
        /// The job.
        job_id: String,
        /// What it is to be, for one that is made anew.
        request: Box<JobRequest>,
    },
    /// Cancel the one job that another has replaced.
    CancelJob {
        /// The job.
        job_id: String,
        /// Whose it is.
        scope: Scope,
    },
    /// Cancel all jobs of the assignment.
    CancelAll {
        /// Whose they are.
        scope: Scope,
    },
}

/// What the scheduler is yet to be told: `before` is what it knows, `after` what is saved now, with its
/// version. Pure.
///
/// A job that is replaced is cancelled after the new one is there, so that the whole can be done again from its
/// beginning wherever it was interrupted.
pub fn operations(before: Option<&Told>, after: Option<(&Assignment, u64)>) -> Vec<Operation> {
    let known = before.and_then(|told| Some((told, told.job.as_ref()?)));
    let wanted = after.filter(|(assignment, _)| assignment.schedule.enabled);
    match (known, wanted) {
        (None, None) => Vec::new(),
        (Some((told, _)), None) => vec![Operation::CancelAll { scope: told.assignment.scope() }],
        (None, Some((new, version))) => vec![Operation::Schedule(Box::new(new.request(version)))],
        (Some((told, job)), Some((new, version))) => {
            let (old, request) = (&told.assignment, Box::new(new.request(version)));
            let job_id = job.job_id.clone();
            let same_work = without_zone(old.payload()) == without_zone(new.payload());
            if old.payload() == new.payload() && old.schedule == new.schedule {
                Vec::new()
            } else if same_work && old.schedule.timezone == new.schedule.timezone {
                vec![Operation::Reschedule { job_id, request }]
            } else {
                let cancel = Operation::CancelJob { job_id, scope: old.scope() };
                vec![Operation::Schedule(request), cancel]
            }
        }
    }
}

fn without_zone(payload: JobPayload) -> JobPayload {
    JobPayload { timezone: None, ..payload }
}

/// Why the scheduler could not be told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SyncError {
    /// Somebody else is telling it.
    #[error("somebody else keeps the assignment in step at this moment")]
    Busy,
    /// The scheduler.
    #[error(transparent)]
    Pulse(#[from] PulseError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Tells the scheduler what it does not know yet of an assignment, which may be gone.
///
/// # Errors
/// Why it could not be told all; the assignment is out of step then, and this may be called again.
pub async fn sync(
    records: &dyn Records,
    pulse: &dyn Pulse,
    (company_id, id): (&str, &str),
    now: Timestamp,
) -> Result<(), SyncError> {
    let keys = [key(company_id, id)?, link_key(company_id, id)?];
    for _ in 0..ROUNDS {
        let mut found = records.get_many(&keys).await?.into_iter();
        let saved = found.next().flatten().map(|record| record.parse::<Assignment>(keys[0].collection()));
        let link = found.next().flatten().map(|record| record.parse::<Link>(keys[1].collection()));
        let (saved, link) = (saved.transpose()?, link.transpose()?);
        let told = link.as_ref().and_then(|link| link.value.told.clone());
        if is_in_step(saved.as_ref(), link.as_ref()) {
            return Ok(());
        }
        if link.as_ref().and_then(|link| link.value.busy_until).is_some_and(|until| until > now) {
            return Err(SyncError::Busy);
        }
        let lease = Link { told: told.clone(), busy_until: now.saturating_add(LEASE).ok() };
        let precondition = link.map_or(Precondition::Absent, |link| Precondition::Version(link.version));
        let version = match records.put_as(&keys[1], &lease, precondition).await {
            Err(StoreError::Conflict { .. }) => continue,
            put => put?,
        };
        let held = Precondition::Version(version);
        let job = match tell(pulse, id, told.as_ref(), saved.as_ref()).await {
            Ok(job) => job,
            Err(error) => {
                // Whoever comes next need not wait; if this fails as well, the lease ends by itself.
                let _ = records.put_as(&keys[1], &Link { told, busy_until: None }, held).await;
                return Err(error.into());
            }
        };
        let write = match saved {
            None => Write::Delete { key: keys[1].clone(), precondition: held },
            Some(Record { value: assignment, version, .. }) => {
                let told = Some(Told { assignment, version, job });
                let value = to_json(&Link { told, busy_until: None })?;
                Write::Put { key: keys[1].clone(), value, precondition: held }
            }
        };
        match records.commit(vec![write]).await {
            Ok(_) | Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(SyncError::Busy)
}

/// Whether the scheduler knows all that is saved.
pub fn is_in_step(saved: Option<&Record<Assignment>>, link: Option<&Record<Link>>) -> bool {
    let told = link.and_then(|link| link.value.told.as_ref());
    match (saved, told) {
        (Some(saved), Some(told)) => saved.version == told.version,
        (None, _) => link.is_none(),
        (Some(_), None) => false,
    }
}

async fn tell(
    pulse: &dyn Pulse,
    id: &str,
    told: Option<&Told>,
    saved: Option<&Record<Assignment>>,
) -> Result<Option<LinkedJob>, PulseError> {
    let mut job = told.and_then(|told| told.job.clone());
    for operation in operations(told, saved.map(|saved| (&saved.value, saved.version))) {
        match operation {
            Operation::Schedule(request) => job = Some(linked(pulse.schedule_job(&request).await?, Some(1))),
            Operation::Reschedule { job_id, request } => {
                let moved = pulse.reschedule_job(&request.scope(), &job_id, &request.schedule).await;
                job = Some(match moved {
                    // Which number it has now only the scheduler knows.
                    Ok(moved) => linked(moved, None),
                    Err(PulseError::NotFound | PulseError::Conflict(_)) => {
                        linked(pulse.schedule_job(&request).await?, Some(1))
                    }
                    Err(error) => return Err(error),
                });
            }
            Operation::CancelJob { job_id, scope } => match pulse.cancel_job(&scope, &job_id).await {
                Ok(_) | Err(PulseError::NotFound) => {}
                Err(error) => return Err(error),
            },
            Operation::CancelAll { scope } => {
                pulse.cancel_jobs_for_assignment(&scope, id).await?;
                job = None;
            }
        }
    }
    Ok(job)
}

fn linked(scheduled: Scheduled, occurrence: Option<u64>) -> LinkedJob {
    LinkedJob { job_id: scheduled.job_id, occurrence, execute_at: scheduled.execute_at }
}

/// Remembers that an occurrence of an assignment's job has been run, and which is next, so that it can be run
/// where the scheduler is away. What is not remembered is nobody's loss, so nothing is tried twice.
///
/// # Errors
/// The store's own troubles.
pub async fn remember_run(
    records: &dyn Records,
    (company_id, id): (&str, &str),
    (job_id, occurrence): (&str, u64),
    by_scheduler: bool,
    now: Timestamp,
) -> Result<(), StoreError> {
    let key = link_key(company_id, id)?;
    let Some(found) = records.get_as::<Link>(&key).await? else { return Ok(()) };
    let mut link = found.value;
    let Some(told) = &mut link.told else { return Ok(()) };
    let Some(job) = told.job.as_mut().filter(|job| job.job_id == job_id) else { return Ok(()) };
    if job.occurrence.is_some_and(|known| known > occurrence) {
        return Ok(());
    }
    let schedule = told.assignment.schedule.spec().resolve(now).ok();
    let next = schedule.filter(|_| told.assignment.schedule.execute_at.is_none());
    match next.and_then(|schedule| schedule.next_after(now)) {
        // How the scheduler goes on after what it did not run itself, it alone knows.
        Some(next) if by_scheduler => {
            (job.occurrence, job.execute_at) = (Some(occurrence + 1), next);
        }
        _ => job.occurrence = None,
    }
    match records.put_as(&key, &link, Precondition::Version(found.version)).await {
        Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
