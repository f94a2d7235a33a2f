//! Wire representations of jobs exchanged between the scheduler and the application.

use std::sync::Arc;

use jiff::Timestamp;
#[cfg(feature = "schemars")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::occurrence::occurrence_key;
use super::payload::JobPayload;
use super::{Attempt, Job, JobState};
#[cfg(feature = "schemars")]
use crate::schedule::SerializedSchedule;
use crate::schedule::{Schedule, write_time};
use agent_core::ids::JobId;

/// A job and its current occurrence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct JobView {
    /// Job id.
    pub job_id: JobId,
    /// State of the job.
    pub state: JobState,
    /// Work to do, and the user for whom it is done.
    pub payload: Arc<JobPayload>,
    /// Times at which the job runs.
    #[cfg_attr(feature = "schemars", schemars(with = "SerializedSchedule"))]
    pub schedule: Schedule,
    /// Due time of the next attempt, or of the last one if the job is final: RFC 3339 in UTC with milliseconds.
    #[serde(serialize_with = "write_time")]
    #[cfg_attr(feature = "schemars", schemars(with = "String"))]
    pub execute_at: Timestamp,
    /// Number, from 1, of the occurrence that is waiting or running, or of the last one.
    pub occurrence: u64,
    /// Number of started attempts at this occurrence.
    pub attempt: u32,
    /// Error of the last attempt; absent if it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Creation time: RFC 3339 in UTC with milliseconds.
    #[serde(serialize_with = "write_time")]
    #[cfg_attr(feature = "schemars", schemars(with = "String"))]
    pub created_at: Timestamp,
    /// The latest finished attempts, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<AttemptView>,
}

/// A finished delivery attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct AttemptView {
    /// Number of the occurrence, from 1.
    pub occurrence: u64,
    /// Number of the attempt at the occurrence, from 1.
    pub attempt: u32,
    /// Time at which the attempt ended: RFC 3339 in UTC with milliseconds.
    #[serde(serialize_with = "write_time")]
    #[cfg_attr(feature = "schemars", schemars(with = "String"))]
    pub ended_at: Timestamp,
    /// Duration in milliseconds; absent if the attempt's worker never reported an outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// HTTP status of the response, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Error text; absent if the attempt succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl From<&Attempt> for AttemptView {
    fn from(attempt: &Attempt) -> Self {
        Self {
            occurrence: attempt.occurrence,
            attempt: attempt.attempt,
            ended_at: attempt.ended,
            duration_ms: attempt.duration_ms,
            status: attempt.status,
            error: attempt.error.clone(),
        }
    }
}

impl From<&Job> for JobView {
    fn from(job: &Job) -> Self {
        Self {
            job_id: job.id.clone(),
            state: job.state(),
            payload: job.payload.clone(),
            schedule: job.schedule.clone(),
            execute_at: job.due,
            occurrence: job.position.occurrence,
            attempt: job.attempt,
            last_error: job.last_error().map(str::to_owned),
            created_at: job.created,
            attempts: job.attempts.iter().map(AttemptView::from).collect(),
        }
    }
}

/// Body of the scheduler's callback: the fields of the payload, plus the job, the occurrence and the attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Delivery {
    /// Work to do, and the user for whom it is done.
    #[serde(flatten)]
    pub payload: Arc<JobPayload>,
    /// Job id.
    pub job_id: JobId,
    /// Number of the occurrence, from 1.
    pub occurrence: u64,
    /// Scheduled time of the occurrence: RFC 3339 in UTC with milliseconds.
    #[serde(serialize_with = "write_time")]
    pub scheduled_for: Timestamp,
    /// Number of the attempt at this occurrence, from 1.
    pub attempt: u32,
}

impl From<&Job> for Delivery {
    fn from(job: &Job) -> Self {
        Self {
            payload: job.payload.clone(),
            job_id: job.id.clone(),
            occurrence: job.position.occurrence,
            scheduled_for: job.position.scheduled_for,
            attempt: job.attempt,
        }
    }
}

impl Delivery {
    /// Returns the key of the occurrence, equal to [`Job::occurrence_key`].
    pub fn occurrence_key(&self) -> String {
        occurrence_key(&self.job_id, self.occurrence)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::job::NewJob;
    use crate::schedule::ScheduleSpec;

    fn job() -> Job {
        let now = "2026-03-01T12:00:00Z".parse().unwrap();
        let payload = JobPayload {
            arguments: json!({"title": "call"}).as_object().cloned(),
            ..JobPayload::for_tool("c", "u", "a", "createTodo")
        };
        let spec = ScheduleSpec { every_ms: Some(60_000), ..ScheduleSpec::default() };
        Job { id: "j".into(), ..Job::new(NewJob::new(payload, spec.resolve(now).unwrap()), now) }
    }

    #[test]
    fn a_job_view_has_the_documented_json() {
        let view = JobView::from(&job());
        let mut json = serde_json::to_value(&view).unwrap();
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
        assert_eq!(serde_json::from_value::<JobView>(json.clone()).unwrap(), view);
        // As a newer scheduler may send it.
        json["payload"]["addedLater"] = json!(true);
        assert_eq!(serde_json::from_value::<JobView>(json).unwrap(), view);
    }

    #[test]
    fn attempt_views_have_the_documented_json() {
        let ended = "2026-03-01T12:01:02.500Z".parse().unwrap();
        let failed = Attempt {
            occurrence: 1,
            attempt: 1,
            ended,
            duration_ms: Some(12),
            status: Some(503),
            error: Some("HTTP 503".to_owned()),
        };
        let lost = Attempt { attempt: 2, duration_ms: None, status: None, ..failed.clone() };
        let done = Attempt { attempt: 3, status: Some(200), error: None, ..failed.clone() };
        let view = JobView::from(&Job { attempts: vec![failed, lost, done], ..job() });
        let json = serde_json::to_value(&view).unwrap();
        let at = "2026-03-01T12:01:02.500Z";
        assert_eq!(
            json["attempts"],
            json!([
                {"occurrence": 1, "attempt": 1, "endedAt": at, "durationMs": 12, "status": 503, "error": "HTTP 503"},
                {"occurrence": 1, "attempt": 2, "endedAt": at, "error": "HTTP 503"},
                {"occurrence": 1, "attempt": 3, "endedAt": at, "durationMs": 12, "status": 200},
            ])
        );
        assert_eq!(serde_json::from_value::<JobView>(json).unwrap(), view);
    }

    #[test]
    fn a_delivery_has_the_documented_json_and_ignores_unknown_fields() {
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
