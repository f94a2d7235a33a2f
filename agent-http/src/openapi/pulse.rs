//! Operations of the application's scheduler API.

use agent_jobs::schedule::ScheduleSpec;
use agent_platform::pulse::{CancelResult, ScheduledJob};
use agent_platform::workspace::Assignment;
use http::Method;
use serde_json::{Value, json};

use super::operation::Operation;
use super::schemas::Schemas;
use crate::app::{AssignmentPage, AssignmentView, CronStatus, JobPageSchema, PulseStatus};
use crate::error::Code;

const TAG: &str = "jobs";

pub(super) fn operations(schemas: &mut Schemas) -> Vec<Operation> {
    let mut all = jobs(schemas);
    all.extend(assignments(schemas));
    all.extend([callback(), cron(schemas)]);
    all
}

fn text() -> Value {
    json!({"type": "string"})
}

impl Operation {
    /// Adds the errors of operations that call the scheduler.
    fn scheduler_errors(self) -> Self {
        self.require_session().problems(&[Code::PulseNotConfigured, Code::BackendUnreachable])
    }
}

fn jobs(schemas: &mut Schemas) -> Vec<Operation> {
    let operation = |method, path, id: &str, summary: &str| Operation::new(method, path, id, TAG, summary);
    let one = "/api/pulse/jobs/{id}";
    vec![
        operation(Method::GET, "/api/pulse/status", "pulseStatus", "How it is with the scheduler.")
            .describe("It answers 200 whether or not there is a scheduler.")
            .require_session()
            .json_response(
                200,
                "What is configured, and whether it works.",
                schemas.schema_for::<PulseStatus>(),
            ),
        operation(Method::GET, "/api/pulse/jobs", "listOwnJobs", "The caller's own jobs.")
            .scheduler_errors()
            .parameter("query", "state", "Those in this state.", text())
            .parameter("query", "toolId", "Those that call this tool.", text())
            .parameter("query", "assignmentId", "Those of this assignment.", text())
            .paged()
            .json_response(200, "One page.", schemas.schema_for::<JobPageSchema>()),
        operation(
            Method::DELETE,
            one,
            "cancelOwnJob",
            "Cancels a job of the caller's own; again changes nothing.",
        )
        .scheduler_errors()
        .json_response(200, "It is cancelled.", schemas.schema_for::<CancelResult>())
        .problems(&[Code::NotFound]),
        operation(
            Method::POST,
            "/api/pulse/jobs/{id}/reschedule",
            "rescheduleOwnJob",
            "Gives a job of the caller's own another schedule.",
        )
        .scheduler_errors()
        .body(schemas.schema_for::<ScheduleSpec>())
        .json_response(200, "It waits for its new time.", schemas.schema_for::<ScheduledJob>())
        .problems(&[Code::NotFound, Code::Conflict]),
    ]
}

fn assignments(schemas: &mut Schemas) -> Vec<Operation> {
    let operation = |method, path, id: &str, summary: &str| {
        Operation::new(method, path, id, TAG, summary).require_session().problems(&[Code::NotFound])
    };
    let one = "/api/agents/{id}/assignments/{assignmentId}";
    let given = schemas.without_required::<Assignment>(&["id", "userId", "companyId", "agentId"]);
    let view = schemas.schema_for::<AssignmentView>();
    vec![
        operation(
            Method::GET,
            "/api/agents/{id}/assignments",
            "listAssignments",
            "What an agent of the caller's own runs by a schedule.",
        )
        .paged()
        .json_response(200, "One page.", schemas.schema_for::<AssignmentPage>()),
        operation(Method::GET, one, "getAssignment", "An assignment of an agent of the caller's own.")
            .conditions(&["If-None-Match"])
            .versioned_response(200, "The assignment.", view.clone())
            .empty_response(304, "The client has this version."),
        operation(Method::PUT, one, "putAssignment", "Makes an assignment, or replaces one.")
            .describe(
                "It is saved also where the scheduler cannot be told; `sync` says so, and it is told later.",
            )
            .conditions(&["If-Match", "If-None-Match"])
            .body(given)
            .versioned_response(200, "It is replaced.", view.clone())
            .versioned_response(201, "It is made.", view),
        operation(Method::DELETE, one, "deleteAssignment", "Removes an assignment and cancels its jobs.")
            .conditions(&["If-Match"])
            .empty_response(204, "It is gone."),
    ]
}

fn callback() -> Operation {
    let header =
        |operation: Operation, name| operation.parameter("header", name, "Standard Webhooks.", text());
    let operation = Operation::new(
        Method::POST,
        "/api/pulse/callback",
        "pulseCallback",
        TAG,
        "The scheduler says that an occurrence is due.",
    )
    .describe("The bearer and the signature of Standard Webhooks are both needed.")
    .credentials(&["pulseSecret"]);
    let body = json!({"type": "object", "required":
        ["kind", "userId", "companyId", "agentId", "jobId", "occurrence", "scheduledFor", "attempt"],
        "properties": {"kind": {"type": "string", "enum": ["tool", "agent"]}, "userId": text(),
            "companyId": text(), "agentId": text(), "toolId": text(), "assignmentId": text(),
            "arguments": {"type": "object"}, "message": text(), "todoListId": text(), "timezone": text(),
            "jobId": text(), "occurrence": {"type": "integer"}, "scheduledFor": text(),
            "attempt": {"type": "integer"}}});
    ["webhook-id", "webhook-timestamp", "webhook-signature"]
        .into_iter()
        .fold(operation, header)
        .body(body)
        .json_response(
            200,
            "It is done, now or before.",
            json!({"type": "object", "required": ["status", "jobId", "occurrence"], "properties": {
                "status": {"type": "string"}, "jobId": text(), "occurrence": {"type": "integer"}}}),
        )
        .problems(&[
            Code::Conflict,
            Code::Gone,
            Code::NoConnector,
            Code::RateLimited,
            Code::BackendFailed,
            Code::PulseNotConfigured,
            Code::BackendTimeout,
        ])
}

fn cron(schemas: &mut Schemas) -> Operation {
    let run = json!({"type": "string", "enum": ["true", "false"]});
    Operation::new(
        Method::GET,
        "/api/cron",
        "cron",
        TAG,
        "Says who runs jobs; with `run=true`, runs what is due where the scheduler does not.",
    )
    .credentials(&["cronSecret"])
    .parameter("query", "run", "Whether to run what is due.", run)
    .json_response(200, "What was done.", schemas.schema_for::<CronStatus>())
    .problems(&[Code::InvalidRequest])
}
