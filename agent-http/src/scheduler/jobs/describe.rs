//! OpenAPI operations of the job endpoints.

use agent_jobs::job::{JobFilter, JobState};
use agent_jobs::schedule::ScheduleSpec;
use serde_json::{Value, json};

use crate::endpoint::{Operation, Schemas};
use crate::error::Code;
use crate::scheduler::wire::{
    CancelledJobs, CreateJobRequest, JobCount, JobDetails, JobList, JobStatus, ScheduledJob,
};

const TAG: &str = "scheduler";

pub(in crate::scheduler) fn describe_post(schemas: &mut Schemas) -> Operation {
    let spec = schemas.schema_for::<ScheduleSpec>();
    let existing_job = "The job that an earlier request with the same idempotencyKey created.";
    Operation::new("createJob", TAG, "Creates a job.")
        .body(json!({"allOf": [schemas.schema_for::<CreateJobRequest>(), spec]}))
        .json_response(201, "The job was created.", schemas.schema_for::<ScheduledJob>())
        .json_response(200, existing_job, schemas.schema_for::<ScheduledJob>())
        .problems(&[Code::Conflict])
}

pub(in crate::scheduler) fn describe_list(schemas: &mut Schemas) -> Operation {
    let order = json!({"type": "string", "enum": ["asc", "desc"], "default": "desc"});
    with_state(filtered(Operation::new("listJobs", TAG, "Lists jobs, the newest first by default.")))
        .parameter("query", "order", "`asc`: the oldest first; `desc`: the newest first.", order)
        .paged()
        .json_response(200, "One page of jobs.", schemas.schema_for::<JobList>())
}

pub(in crate::scheduler) fn describe_count(schemas: &mut Schemas) -> Operation {
    with_state(filtered(Operation::new("countJobs", TAG, "Counts the jobs that match a filter.")))
        .json_response(200, "The number of jobs.", schemas.schema_for::<JobCount>())
        .problems(&[Code::InvalidRequest])
}

fn with_state(operation: Operation) -> Operation {
    let state = "Only jobs in this state. `open` means all states that are not final; `discarded` includes periodic \
                 jobs with dead letters.";
    let names: Vec<&str> =
        JobState::ALL.into_iter().map(JobState::as_str).chain([JobFilter::OPEN_STATES]).collect();
    operation.parameter("query", "state", state, json!({"type": "string", "enum": names}))
}

pub(in crate::scheduler) fn describe_cancel_all(schemas: &mut Schemas) -> Operation {
    let summary = "Cancels all jobs of a user's tool or assignment, or of an agent.";
    with_state(filtered(Operation::new("cancelJobs", TAG, summary)))
        .describe(
            "Requires `companyId` and `agentId`, or `companyId`, `userId` and one of `toolId` and `assignmentId`. Jobs \
             are cancelled in batches; after an error the request can be repeated.",
        )
        .json_response(200, "The number of cancelled jobs.", schemas.schema_for::<CancelledJobs>())
        .problems(&[Code::InvalidRequest])
}

pub(in crate::scheduler) fn describe_get(schemas: &mut Schemas) -> Operation {
    of_one_job("getJob", "Returns a job with its latest attempts and its dead letters.").json_response(
        200,
        "The job.",
        schemas.schema_for::<JobDetails>(),
    )
}

pub(in crate::scheduler) fn describe_cancel(schemas: &mut Schemas) -> Operation {
    of_one_job("cancelJob", "Cancels a job. A job in a final state is not changed.").json_response(
        200,
        "The job's state.",
        schemas.schema_for::<JobStatus>(),
    )
}

pub(in crate::scheduler) fn describe_reschedule(schemas: &mut Schemas) -> Operation {
    of_one_job("rescheduleJob", "Replaces the schedule of a job.")
        .body(schemas.schema_for::<ScheduleSpec>())
        .json_response(200, "The job's state with its new due time.", schemas.schema_for::<JobStatus>())
        .problems(&[Code::Conflict])
}

pub(in crate::scheduler) fn describe_pause(schemas: &mut Schemas) -> Operation {
    step(schemas, "pauseJob", "Pauses a job: no delivery begins until it is resumed.")
}

pub(in crate::scheduler) fn describe_resume(schemas: &mut Schemas) -> Operation {
    step(schemas, "resumeJob", "Resumes a paused job.")
}

pub(in crate::scheduler) fn describe_redrive(schemas: &mut Schemas) -> Operation {
    step(schemas, "redriveJob", "Redrives the last discarded occurrence.")
}

fn step(schemas: &mut Schemas, id: &str, summary: &str) -> Operation {
    of_one_job(id, summary)
        .json_response(200, "The job's state.", schemas.schema_for::<JobStatus>())
        .problems(&[Code::Conflict])
}

fn of_one_job(id: &str, summary: &str) -> Operation {
    scoped(Operation::new(id, TAG, summary)).problems(&[Code::NotFound, Code::InvalidRequest])
}

fn scoped(operation: Operation) -> Operation {
    [("userId", "Only jobs of this user."), ("companyId", "Only jobs of this company.")]
        .into_iter()
        .fold(operation, |operation, (name, text)| operation.parameter("query", name, text, parameter()))
}

fn filtered(operation: Operation) -> Operation {
    let filters = [
        ("agentId", "Only jobs of this agent."),
        ("toolId", "Only jobs that call this tool."),
        ("assignmentId", "Only jobs of this assignment."),
    ];
    filters.into_iter().fold(scoped(operation), |operation, (name, text)| {
        operation.parameter("query", name, text, parameter())
    })
}

fn parameter() -> Value {
    json!({"type": "string", "minLength": 1})
}
