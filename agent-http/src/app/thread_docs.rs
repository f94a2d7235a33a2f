//! OpenAPI descriptions of the operations on threads and runs.

use serde_json::{Value, json};

pub(super) use super::run_docs::{TAG, object, words};
use super::run_docs::{attempts_schema, selection_schema, timing_schema};
use crate::endpoint::{Operation, Schemas, string_schema};
use crate::error::Code;

pub(super) fn thread_schema() -> Value {
    let text = string_schema;
    let required = ["id", "agentId", "title", "titleFrom", "status", "archived", "origin", "metadata"];
    let properties = json!({
        "id": text(), "agentId": text(), "title": text(), "titleFrom": words(&["message", "user", "model"]),
        "status": words(&["idle", "running", "waiting", "awaitingTools"]), "activeRunId": text(),
        "head": {"type": "string", "description": "The leaf of the path that is shown and continued."},
        "archived": {"type": "boolean"}, "origin": words(&["chat", "job", "proactive", "client"]),
        "messageCount": {"type": "integer", "description": "The messages of all branches; absent for visitors."},
        "metadata": {"type": "object"}, "createdAt": text(),
        "lastActivityAt": text(), "expiresAt": text(), "version": {"type": "integer"},
    });
    object(&required, properties)
}

fn node_schema() -> Value {
    let text = string_schema;
    let count = json!({"type": "integer"});
    object(
        &["id", "turnId", "status", "origin", "createdAt", "siblings", "message"],
        json!({
            "id": text(), "parentId": text(), "turnId": text(), "runId": text(),
            "status": words(&["complete", "incomplete", "cancelled", "deleted"]),
            "origin": words(&["run", "user", "client"]), "createdAt": text(),
            "siblings": object(&["index", "count"], json!({"index": count, "count": count})),
            "feedback": {"type": "object"},
            "message": {"type": "object", "description": "AG-UI's message, or the AI SDK's `UIMessage`."},
        }),
    )
}

fn run_schema() -> Value {
    let text = string_schema;
    let states = ["queued", "running", "waiting", "completed", "cancelled", "failed", "interrupted"];
    let kinds = ["chat", "regenerate", "edit", "resume", "tools", "approval", "job", "proactive"];
    object(
        &["id", "threadId", "turnId", "agentId", "state", "trigger", "nodeIds", "usage", "createdAt"],
        json!({
            "id": text(), "threadId": text(), "turnId": text(), "agentId": text(), "state": words(&states),
            "reason": words(&["requested", "disconnected", "displaced", "deleted"]),
            "trigger": object(&["kind"], json!({"kind": words(&kinds), "reason": text()})),
            "parentId": text(), "nodeIds": {"type": "array", "items": text()}, "continues": text(),
            "continuedBy": text(), "onDisconnect": words(&["cancel", "continue"]),
            "graceMs": {"type": "integer"}, "attached": {"type": "integer"}, "events": {"type": "object"},
            "backend": text(), "requestSha256": text(), "selection": selection_schema(),
            "timing": timing_schema(), "attempts": attempts_schema(), "finishReason": text(),
            "outcome": {"type": "object"},
            "usage": {"type": "array", "items": {"type": "object"}},
            "error": object(&["code", "message"], json!({"code": text(), "message": text()})),
            "createdAt": text(), "startedAt": text(), "endedAt": text(),
        }),
    )
}

pub(super) fn list_schema(name: &str, item: Value) -> Value {
    object(&[name], json!({name: {"type": "array", "items": item}, "nextCursor": string_schema()}))
}

fn messages_schema() -> Value {
    json!({"type": "array", "items": {"type": "object"}, "description": "In any format of a chat request."})
}

pub(super) fn list(_: &mut Schemas) -> Operation {
    let states = words(&["idle", "running", "waiting", "awaitingTools"]);
    let origins = words(&["chat", "job", "proactive", "client"]);
    Operation::new("listThreads", TAG, "Lists the caller's threads, latest activity first.")
        .parameter("query", "agentId", "Filters by agent.", string_schema())
        .parameter(
            "query",
            "archived",
            "Archived threads; `false` by default.",
            words(&["false", "true", "any"]),
        )
        .parameter("query", "status", "Filters by state.", states)
        .parameter("query", "origin", "Filters by origin.", origins)
        .paged()
        .json_response(200, "One page of threads.", list_schema("threads", thread_schema()))
}

pub(super) fn post(_: &mut Schemas) -> Operation {
    let body = json!({
        "id": string_schema(), "agentId": string_schema(), "title": string_schema(),
        "metadata": {"type": "object"}, "messages": messages_schema(),
    });
    Operation::new("createThread", TAG, "Creates a thread, possibly with messages from elsewhere.")
        .body(object(&["agentId"], body))
        .versioned_response(201, "The thread.", thread_schema())
        .problems(&[Code::NotFound, Code::Conflict])
}

pub(super) fn get(_: &mut Schemas) -> Operation {
    let mut thread = thread_schema();
    thread["properties"]["nodes"] = json!({"type": "array", "items": node_schema()});
    thread["properties"]["nextCursor"] = string_schema();
    let limit = json!({"type": "integer", "minimum": 1, "maximum": 500, "default": 200});
    let messages = words(&["path", "tree", "none"]);
    Operation::new("getThread", TAG, "Returns a thread of the caller with a page of its messages.")
        .parameter("query", "owner", "A visitor of an agent that the caller owns.", string_schema())
        .parameter("query", "messages", "The messages to return; `path` by default.", messages)
        .parameter("query", "at", "The last message of the path; the head by default.", string_schema())
        .parameter("query", "format", "The format of the messages.", words(&["ag-ui", "ui-message"]))
        .parameter("query", "limit", "Maximum number of messages.", limit)
        .parameter("query", "cursor", "The `nextCursor` of the previous page.", string_schema())
        .conditional_read()
        .versioned_response(200, "The thread.", thread)
        .problems(&[Code::NotFound, Code::InvalidRequest])
}

pub(super) fn patch(_: &mut Schemas) -> Operation {
    let body = json!({
        "title": string_schema(), "archived": {"type": "boolean"}, "metadata": {"type": "object"},
        "head": {"type": "string", "description": "A message; its newest leaf becomes the head."},
    });
    Operation::new("patchThread", TAG, "Renames or archives a thread, or selects another branch.")
        .conditional_write(&["If-Match"])
        .body(object(&[], body))
        .versioned_response(200, "The thread.", thread_schema())
        .problems(&[Code::NotFound])
}

pub(super) fn delete(_: &mut Schemas) -> Operation {
    Operation::new("deleteThread", TAG, "Deletes a thread with its messages and runs.")
        .parameter("query", "owner", "A visitor of an agent that the caller owns.", string_schema())
        .conditional_write(&["If-Match"])
        .empty_response(204, "The thread was deleted.")
        .problems(&[Code::NotFound])
}

pub(super) fn delete_many(_: &mut Schemas) -> Operation {
    let before = "Only threads whose last activity was before this time (RFC 3339).";
    let answer = json!({"deleted": {"type": "integer"}, "more": {"type": "boolean"}});
    Operation::new("deleteThreads", TAG, "Deletes up to 1,000 of the caller's threads.")
        .describe("At least one of the parameters is required. If `more` is true, further threads match.")
        .parameter("query", "agentId", "Filters by agent.", string_schema())
        .parameter("query", "before", before, string_schema())
        .json_response(200, "The number of deleted threads.", object(&["deleted", "more"], answer))
        .problems(&[Code::InvalidRequest])
}

pub(super) fn fork(_: &mut Schemas) -> Operation {
    let body = json!({
        "at": string_schema(), "id": string_schema(), "agentId": string_schema(), "title": string_schema(),
    });
    Operation::new("forkThread", TAG, "Copies the path to a message into a new thread.")
        .body(object(&[], body))
        .versioned_response(201, "The new thread.", thread_schema())
        .problems(&[Code::NotFound, Code::Conflict])
}

pub(super) fn post_messages(_: &mut Schemas) -> Operation {
    let parent = json!({"type": ["string", "null"], "description": "The message below which they are added; the head by default, `null` for a new root."});
    let body = json!({"messages": messages_schema(), "parentId": parent});
    let nodes = object(&["nodes"], json!({"nodes": {"type": "array", "items": node_schema()}}));
    let busy = "Without `parentId`, 409 `THREAD_BUSY` while a run is in progress, and `INTERRUPTS_OPEN` while one waits for decisions.";
    Operation::new("addThreadMessages", TAG, "Adds messages to a thread without a run.")
        .describe(busy)
        .body(object(&["messages"], body))
        .json_response(201, "The messages.", nodes)
        .problems(&[Code::NotFound, Code::Conflict, Code::ThreadBusy, Code::InterruptsOpen])
}

pub(super) fn delete_message(_: &mut Schemas) -> Operation {
    Operation::new(
        "deleteThreadMessage",
        TAG,
        "Erases the content of a message. Later prompts do not contain it.",
    )
    .empty_response(204, "The content was erased.")
    .problems(&[Code::NotFound])
}

pub(super) fn list_runs(_: &mut Schemas) -> Operation {
    Operation::new("listRuns", TAG, "Lists the caller's runs, newest first.")
        .parameter("query", "threadId", "Filters by thread.", string_schema())
        .parameter("query", "agentId", "Filters by agent.", string_schema())
        .parameter("query", "state", "Filters by state.", string_schema())
        .parameter("query", "kind", "Filters by kind of cause.", string_schema())
        .paged()
        .json_response(200, "One page of runs.", list_schema("runs", run_schema()))
}

pub(super) fn list_approvals(_: &mut Schemas) -> Operation {
    let states = json!({"enum": ["open", "approved", "denied", "cancelled", "expired"]});
    Operation::new(
        "listApprovals",
        TAG,
        "Lists tool calls that wait for a decision, or have waited for one, newest first.",
    )
    .describe("The list contains the calls about which the caller may decide, those of the caller's latest runs, and those that the caller has decided in the runs of others.")
    .parameter("query", "state", "Only those in this state.", states)
    .parameter("query", "agentId", "Only those of this agent.", string_schema())
    .json_response(200, "The approvals.", list_schema("approvals", approval_schema()))
}

pub(super) fn get_approval(_: &mut Schemas) -> Operation {
    Operation::new("getApproval", TAG, "Returns an approval.")
        .json_response(200, "The approval.", approval_schema())
        .problems(&[Code::NotFound])
}

pub(super) fn decide_approval(_: &mut Schemas) -> Operation {
    let body = json!({
        "decision": {"enum": ["approve", "deny", "cancel"]},
        "arguments": {"type": "object", "description": "Arguments in place of the model's, for an approved call."},
        "reason": {"type": "string", "description": "Reason of a denial, for the model."},
    });
    Operation::new("decideApproval", TAG, "Decides about a tool call.")
        .describe("After the last decision of a run, the turn continues in the background.")
        .body(object(&["decision"], body))
        .json_response(200, "The approval.", approval_schema())
        .problems(&[Code::NotFound, Code::Forbidden, Code::Conflict, Code::InterruptExpired])
}

fn approval_schema() -> Value {
    let time = json!({"type": "string", "format": "date-time"});
    object(
        &["id", "threadId", "runId", "agentId", "toolCallId", "tool", "state", "by", "expiresAt", "executed"],
        json!({
            "id": string_schema(), "threadId": string_schema(), "runId": string_schema(),
            "agentId": string_schema(), "toolCallId": string_schema(), "tool": string_schema(),
            "arguments": {"type": ["object", "null"]},
            "state": {"enum": ["open", "approved", "denied", "cancelled", "expired"]},
            "by": {"enum": ["user", "visitor", "owner", "company"]}, "editable": {"type": "boolean"},
            "message": string_schema(), "decidedBy": string_schema(), "decidedAt": time,
            "via": {"enum": ["chat", "approvals"]}, "editedArguments": {"type": "object"},
            "reason": string_schema(), "expiresAt": time, "executed": {"enum": ["no", "begun", "done"]},
            "createdAt": time,
        }),
    )
}

pub(super) fn get_run(_: &mut Schemas) -> Operation {
    Operation::new("getRun", TAG, "Returns a run of the caller.")
        .json_response(200, "The run.", run_schema())
        .problems(&[Code::NotFound])
}

pub(super) fn run_events(_: &mut Schemas) -> Operation {
    let after = "The number of the last event that the client has received. The header Last-Event-ID takes precedence.";
    let wait = json!({"type": "boolean", "description": "If false, the response ends after the events that are stored."});
    Operation::new(
        "getRunEvents",
        TAG,
        "Returns a run's events after the given one, and further events as they occur.",
    )
    .describe("In any format, the events equal those of the first response after the given one.")
    .parameter("query", "after", after, json!({"type": "integer", "minimum": 0}))
    .parameter("query", "owner", "A visitor of an agent that the caller owns.", string_schema())
    .parameter("query", "wait", "True waits for further events of a live run.", wait)
    .parameter("header", "Last-Event-ID", "The number of the last event.", string_schema())
    .run_responses()
    .empty_response(204, "The run has ended, and no events follow.")
    .problems(&[Code::NotFound, Code::RunLogGone, Code::InvalidRequest])
}

pub(super) fn resume(_: &mut Schemas) -> Operation {
    Operation::new("resumeThread", TAG, "Returns the events of the thread's live run from its beginning.")
        .describe("The format is that of the AI SDK unless `format` names another.")
        .run_responses()
        .empty_response(204, "The thread has no live run.")
        .problems(&[Code::NotFound])
}

pub(super) fn cancel_run(_: &mut Schemas) -> Operation {
    Operation::new("cancelRun", TAG, "Cancels a run, in any process. The incomplete answer is stored.")
        .describe("A run that has ended stays as it is.")
        .json_response(200, "The run as it is now; it ends within a second.", run_schema())
        .problems(&[Code::NotFound])
}

pub(super) fn cancel_thread(_: &mut Schemas) -> Operation {
    Operation::new("cancelThread", TAG, "Cancels the thread's live run, if there is one.")
        .json_response(200, "The thread as it is now.", thread_schema())
        .problems(&[Code::NotFound])
}
