//! Jobs as they travel between the scheduler and the application.

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Job, JobPayload, JobState};
use crate::schedule::{Schedule, write_time};

/// A job as the scheduler shows it: an entry of `GET /jobs`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobView {
    /// The job's id.
    pub job_id: String,
    /// Where it stands.
    pub state: JobState,
    /// What is to be done, and for whom.
    pub payload: Arc<JobPayload>,
    /// When.
    pub schedule: Schedule,
    /// When the next attempt is due, or was for a job that is final: RFC 3339 in UTC with milliseconds.
    #[serde(serialize_with = "write_time")]
    pub execute_at: Timestamp,
    /// The occurrence that waits, runs or was the last, from 1.
    pub occurrence: u64,
    /// How many attempts at it have begun.
    pub attempt: u32,
    /// Why the last attempt failed; absent where it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// When it was made: RFC 3339 in UTC with milliseconds.
    #[serde(serialize_with = "write_time")]
    pub created_at: Timestamp,
}

impl From<&Job> for JobView {
    fn from(job: &Job) -> Self {
        Self {
            job_id: job.id.clone(),
            state: job.state(),
            payload: job.payload.clone(),
            schedule: job.schedule.clone(),
            execute_at: job.due,
            occurrence: job.place.occurrence,
            attempt: job.attempt,
            last_error: job.last_error().map(str::to_owned),
            created_at: job.created,
        }
    }
}

/// What the scheduler calls back with: the payload's fields, and beside them which attempt at which occurrence
/// of which job this is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Delivery {
    /// What is to be done, and for whom.
    #[serde(flatten)]
    pub payload: Arc<JobPayload>,
    /// The job's id.
    pub job_id: String,
    /// Which occurrence of it, from 1.
    pub occurrence: u64,
    /// The time that the occurrence is for: RFC 3339 in UTC with milliseconds.
    #[serde(serialize_with = "write_time")]
    pub scheduled_for: Timestamp,
    /// Which attempt at it, from 1.
    pub attempt: u32,
}

impl From<&Job> for Delivery {
    fn from(job: &Job) -> Self {
        Self {
            payload: job.payload.clone(),
            job_id: job.id.clone(),
            occurrence: job.place.occurrence,
            scheduled_for: job.place.scheduled_for,
            attempt: job.attempt,
        }
    }
}

impl Delivery {
    /// What the occurrence is known by, as [`Job::occurrence_key`] has it.
    pub fn occurrence_key(&self) -> String {
        occurrence_key(&self.job_id, self.occurrence)
    }
}

/// What an occurrence is known by, the same in every attempt and for whoever runs it.
pub fn occurrence_key(job: &str, occurrence: u64) -> String {
    format!("{job}:{occurrence}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::job::{JobKind, NewJob};
    use crate::schedule::ScheduleSpec;

    fn job() -> Job {
        let now = "2026-03-01T12:00:00Z".parse().unwrap();
        let payload = JobPayload {
            kind: JobKind::Tool,
            user_id: "u".to_owned(),
            company_id: "c".to_owned(),
            agent_id: "a".to_owned(),
            tool_id: Some("createTodo".to_owned()),
            assignment_id: None,
            arguments: json!({"title": "call"}).as_object().cloned(),
            message: None,
            todo_list_id: None,
            timezone: None,
        };
        let spec = ScheduleSpec { every_ms: Some(60_000), ..ScheduleSpec::default() };
        Job { id: "j".to_owned(), ..Job::new(NewJob::new(payload, spec.resolve(now).unwrap()), now) }
    }

    #[test]
    fn a_job_is_shown_as_the_contract_has_it_and_read_back() {
        let view = JobView::from(&job());
        let json = serde_json::to_value(&view).unwrap();
        assert_eq!(
            json,
            json!({
                "jobId": "j", "state": "scheduled", "occurrence": 1, "attempt": 0,
                "payload": {"kind": "tool", "userId": "u", "companyId": "c", "agentId": "a",
                    "toolId": "createTodo", "arguments": {"title": "call"}},
                "schedule": {"everyMs": 60_000, "anchor": "2026-03-01T12:00:00.000Z"},
                "executeAt": "2026-03-01T12:01:00.000Z", "createdAt": "2026-03-01T12:00:00.000Z",
            })
        );
        assert_eq!(serde_json::from_value::<JobView>(json).unwrap(), view);
    }

    #[test]
    fn a_delivery_has_the_payloads_fields_beside_its_own_and_may_have_more() {
        let job = job();
        let delivery = Delivery::from(&job);
        let mut json = serde_json::to_value(&delivery).unwrap();
        assert_eq!(
            json,
            json!({
                "kind": "tool", "userId": "u", "companyId": "c", "agentId": "a", "toolId": "createTodo",
                "arguments": {"title": "call"}, "jobId": "j", "occurrence": 1,
                "scheduledFor": "2026-03-01T12:01:00.000Z", "attempt": 0,
            })
        );
        json["addedLater"] = json!(true);
        assert_eq!(serde_json::from_value::<Delivery>(json).unwrap(), delivery);
        assert_eq!(delivery.occurrence_key(), job.occurrence_key());
    }
}
