//! OpenAPI operations of the job endpoints.

use agent_jobs::job::JobState;
use agent_jobs::schedule::ScheduleSpec;
use serde_json::{Value, json};

use crate::endpoint::{Operation, Schemas};
use crate::error::Code;
use crate::scheduler::wire::{CancelledJobs, CreateJobRequest, JobDetails, JobList, JobStatus, ScheduledJob};

const TAG: &str = "scheduler";

pub(in crate::scheduler) fn describe_post(schemas: &mut Schemas) -> Operation {
    let spec = schemas.schema_for::<ScheduleSpec>();
    let same = "The same was asked before, under the same idempotencyKey.";
    Operation::new("createJob", TAG, "Makes a job.")
        .body(json!({"allOf": [schemas.schema_for::<CreateJobRequest>(), spec]}))
        .json_response(201, "It is stored.", schemas.schema_for::<ScheduledJob>())
        .json_response(200, same, schemas.schema_for::<ScheduledJob>())
        .problems(&[Code::Conflict])
}

pub(in crate::scheduler) fn describe_list(schemas: &mut Schemas) -> Operation {
    let state = "Jobs in this state. `discarded` also means periodic jobs with dead letters.";
    let states = json!({"type": "string", "enum": JobState::ALL.map(JobState::as_str)});
    filtered(Operation::new("listJobs", TAG, "Jobs, in the order of their making."))
        .parameter("query", "state", state, states)
        .paged()
        .json_response(200, "One page.", schemas.schema_for::<JobList>())
}

pub(in crate::scheduler) fn describe_cancel_all(schemas: &mut Schemas) -> Operation {
    let summary = "Cancels all jobs of a user's tool or assignment, as one act.";
    filtered(Operation::new("cancelJobs", TAG, summary))
        .describe("`userId` and `companyId` are needed, and `toolId` or `assignmentId`.")
        .json_response(200, "They are cancelled.", schemas.schema_for::<CancelledJobs>())
        .problems(&[Code::InvalidRequest])
}

pub(in crate::scheduler) fn describe_get(schemas: &mut Schemas) -> Operation {
    of_one_job("getJob", "A job with its last attempts and its dead letters.").json_response(
        200,
        "The job.",
        schemas.schema_for::<JobDetails>(),
    )
}

pub(in crate::scheduler) fn describe_cancel(schemas: &mut Schemas) -> Operation {
    of_one_job("cancelJob", "Cancels a job; one that is final stays as it is.").json_response(
        200,
        "Where it stands.",
        schemas.schema_for::<JobStatus>(),
    )
}

pub(in crate::scheduler) fn describe_reschedule(schemas: &mut Schemas) -> Operation {
    of_one_job("rescheduleJob", "Gives a job another schedule.")
        .body(schemas.schema_for::<ScheduleSpec>())
        .json_response(200, "When it is due.", schemas.schema_for::<JobStatus>())
        .problems(&[Code::Conflict])
}

pub(in crate::scheduler) fn describe_pause(schemas: &mut Schemas) -> Operation {
    step(schemas, "pauseJob", "Lets nothing of a job begin until it is resumed.")
}

pub(in crate::scheduler) fn describe_resume(schemas: &mut Schemas) -> Operation {
    step(schemas, "resumeJob", "Lets a job go on where it was.")
}

pub(in crate::scheduler) fn describe_redrive(schemas: &mut Schemas) -> Operation {
    step(schemas, "redriveJob", "Runs the occurrence again that was discarded last.")
}

fn step(schemas: &mut Schemas, id: &str, summary: &str) -> Operation {
    of_one_job(id, summary)
        .json_response(200, "Where it stands.", schemas.schema_for::<JobStatus>())
        .problems(&[Code::Conflict])
}

fn of_one_job(id: &str, summary: &str) -> Operation {
    scoped(Operation::new(id, TAG, summary)).problems(&[Code::NotFound, Code::InvalidRequest])
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
