//! Operations of the scheduler.

use agent_jobs::job::JobState;
use agent_jobs::schedule::ScheduleSpec;
use http::Method;
use serde_json::{Value, json};

use super::operation::{DescribedService, Operation};
use super::schemas::Schemas;
use crate::error::Code;
use crate::scheduler::{CancelledJobs, CreateJobRequest, JobDetails, JobList, JobStatus, ScheduledJob};

pub(super) fn operations(schemas: &mut Schemas) -> Vec<Operation> {
    let acted = schemas.schema_for::<JobStatus>();
    let spec = schemas.schema_for::<ScheduleSpec>();
    let mut all = vec![
        operation(Method::POST, "/jobs", "createJob", "Makes a job.")
            .body(json!({"allOf": [schemas.schema_for::<CreateJobRequest>(), spec.clone()]}))
            .json_response(201, "It is stored.", schemas.schema_for::<ScheduledJob>())
            .json_response(
                200,
                "The same was asked before, under the same idempotencyKey.",
                schemas.schema_for::<ScheduledJob>(),
            )
            .problems(&[Code::Conflict]),
        filtered(operation(Method::GET, "/jobs", "listJobs", "Jobs, in the order of their making."))
            .parameter(
                "query",
                "state",
                "Jobs in this state. `discarded` also means periodic jobs with dead letters.",
                json!({"type": "string", "enum": JobState::ALL.map(JobState::as_str)}),
            )
            .paged()
            .json_response(200, "One page.", schemas.schema_for::<JobList>()),
        filtered(operation(
            Method::DELETE,
            "/jobs",
            "cancelJobs",
            "Cancels all jobs of a user's tool or assignment, as one act.",
        ))
        .describe("`userId` and `companyId` are needed, and `toolId` or `assignmentId`.")
        .json_response(200, "They are cancelled.", schemas.schema_for::<CancelledJobs>())
        .problems(&[Code::InvalidRequest]),
        one(Method::GET, "/jobs/{id}", "getJob", "A job with its last attempts and its dead letters.")
            .json_response(200, "The job.", schemas.schema_for::<JobDetails>()),
        one(Method::DELETE, "/jobs/{id}", "cancelJob", "Cancels a job; one that is final stays as it is.")
            .json_response(200, "Where it stands.", acted.clone()),
        one(Method::POST, "/jobs/{id}/reschedule", "rescheduleJob", "Gives a job another schedule.")
            .body(spec)
            .json_response(200, "When it is due.", acted.clone())
            .problems(&[Code::Conflict]),
    ];
    for (pattern, id, summary) in [
        ("/jobs/{id}/pause", "pauseJob", "Lets nothing of a job begin until it is resumed."),
        ("/jobs/{id}/resume", "resumeJob", "Lets a job go on where it was."),
        ("/jobs/{id}/redrive", "redriveJob", "Runs the occurrence again that was discarded last."),
    ] {
        all.push(
            one(Method::POST, pattern, id, summary)
                .json_response(200, "Where it stands.", acted.clone())
                .problems(&[Code::Conflict]),
        );
    }
    all
}

fn operation(method: Method, pattern: &'static str, id: &str, summary: &str) -> Operation {
    Operation::new(method, pattern, id, "scheduler", summary)
        .services(&[DescribedService::Scheduler])
        .credentials(&["pulseSecret"])
}

fn one(method: Method, pattern: &'static str, id: &str, summary: &str) -> Operation {
    scoped(operation(method, pattern, id, summary)).problems(&[Code::NotFound, Code::InvalidRequest])
}

fn scoped(operation: Operation) -> Operation {
    [("userId", "This user's jobs alone."), ("companyId", "This company's jobs alone.")]
        .into_iter()
        .fold(operation, |operation, (name, text)| operation.parameter("query", name, text, parameter()))
}

fn filtered(operation: Operation) -> Operation {
    [("toolId", "Jobs that call this tool."), ("assignmentId", "Jobs of this assignment.")]
        .into_iter()
        .fold(scoped(operation), |operation, (name, text)| {
            operation.parameter("query", name, text, parameter())
        })
}

fn parameter() -> Value {
    json!({"type": "string", "minLength": 1})
}
