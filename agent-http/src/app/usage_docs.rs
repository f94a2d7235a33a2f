//! Descriptions of the operations on usage and limits.

use agent_platform::usage::{MAX_PAGE_ROWS, MAX_QUERY_DAYS};
use serde_json::{Value, json};

use super::thread_docs::object;
use crate::endpoint::{Operation, Schemas, string_schema};
use crate::error::Code;

/// Tag of the operations.
const TAG: &str = "usage";
/// Currency of all amounts.
pub(super) const CURRENCY: &str = "USD";

fn count(text: &str) -> Value {
    json!({"type": "integer", "minimum": 0, "description": text})
}

fn amount(text: &str) -> Value {
    json!({"type": "string", "pattern": "^[0-9]+\\.[0-9]{9}$", "description": text})
}

/// Returns the schema of an amount of some unit.
fn units(text: &str) -> Value {
    json!({"type": ["integer", "string"], "description": format!("{text} A cost is a string with a decimal number of dollars.")})
}

/// Returns the schemas of the sums.
fn sums() -> Value {
    json!({
        "runs": count("Runs whose first call is among these."),
        "calls": count("Calls of models."),
        "inputTokens": count("Input tokens."),
        "cachedInputTokens": count("Input tokens read from the provider's cache; part of the input."),
        "cacheWriteTokens": count("Input tokens written to the provider's cache; part of the input."),
        "outputTokens": count("Output tokens."),
        "reasoningTokens": count("Reasoning tokens; part of the output."),
        "toolCalls": count("Tool calls."),
        "cost": amount("Cost in dollars of the calls whose price is known."),
        "estimatedCost": amount("Part of the price that comes from calls with estimated token counts."),
        "unpricedCalls": count("Calls of models whose price is unknown."),
    })
}

const SUMS: [&str; 10] = [
    "calls",
    "inputTokens",
    "cachedInputTokens",
    "cacheWriteTokens",
    "outputTokens",
    "reasoningTokens",
    "toolCalls",
    "cost",
    "estimatedCost",
    "unpricedCalls",
];

pub(super) fn list(_: &mut Schemas) -> Operation {
    let mut row = sums();
    for name in ["day", "agentId", "userId", "provider", "model", "caller"] {
        row[name] = string_schema();
    }
    let row = object(&[&["runs"], SUMS.as_slice()].concat(), row);
    let page = object(
        &["currency", "asOf", "rows"],
        json!({
            "currency": {"const": CURRENCY},
            "asOf": string_schema(),
            "rows": {"type": "array", "items": row},
            "nextCursor": string_schema(),
        }),
    );
    let date = json!({"type": "string", "format": "date"});
    let first =
        format!("First day in UTC; by default 30 days before the last one, at most {MAX_QUERY_DAYS}.");
    let groups = "Some of `day`, `agent`, `user`, `provider`, `model` and `caller`, separated by commas.";
    let limit = json!({"type": "integer", "minimum": 1, "maximum": MAX_PAGE_ROWS, "default": 100});
    Operation::new("listUsage", TAG, "Returns the usage of model and tool calls, summed up.")
        .describe("Users see their own usage, the owner of an agent also that of the agent, and an admin that of the company.")
        .parameter("query", "from", &first, date.clone())
        .parameter("query", "to", "Last day in UTC; by default today.", date)
        .parameter("query", "groupBy", groups, string_schema())
        .parameter("query", "agentId", "Filters by agent.", string_schema())
        .parameter("query", "userId", "Only usage of this user, or of a widget token: `widget:<tokenId>`.", string_schema())
        .parameter("query", "limit", "Maximum number of rows.", limit)
        .parameter("query", "cursor", "The `nextCursor` of the previous page.", string_schema())
        .json_response(200, "One page of sums, in the order of their groups.", page)
}

pub(super) fn get_run(_: &mut Schemas) -> Operation {
    let mut call = json!({
        "round": count("Number of the model's answer in the run."),
        "attempt": count("Number of the attempt at the answer."),
        "operation": {"enum": ["chat", "compact", "embed"]},
        "provider": string_schema(),
        "model": string_schema(),
        "cost": {"type": ["string", "null"], "description": "Price in dollars; null if it is unknown."},
        "priceAsOf": {"type": "string", "description": "Date of the price; `role` if the role sets it."},
        "estimated": {"type": "boolean", "description": "True if the provider has not reported all counts."},
        "outcome": {"type": "string", "description": "`ok`, `cancelled`, or the code of the error."},
        "endedAt": string_schema(),
    });
    let mut run = sums();
    for name in ["inputTokens", "cachedInputTokens", "cacheWriteTokens", "outputTokens", "reasoningTokens"] {
        call[name] = run[name].clone();
    }
    if let Some(members) = run.as_object_mut() {
        members.remove("runs");
    }
    for name in ["currency", "runId", "agentId", "userId", "caller"] {
        run[name] = string_schema();
    }
    run["entries"] =
        json!({"type": "array", "items": object(&["round", "attempt", "provider", "model"], call)});
    run["truncated"] = json!({"type": "boolean", "description":
        "True if the run has more than 1,000 calls; `entries` and the sums contain the first 1,000."});
    let run = object(
        &[&["currency", "runId", "agentId", "userId", "caller", "entries"], SUMS.as_slice()].concat(),
        run,
    );
    Operation::new("getRunUsage", TAG, "Returns the usage of the calls of a run.")
        .describe("For the run's user, the owner of its agent and the admins of the company.")
        .json_response(200, "The run's calls.", run)
        .problems(&[Code::NotFound])
}

pub(super) fn get_limits(_: &mut Schemas) -> Operation {
    let limit = object(
        &["policy", "kind", "unit", "amount"],
        json!({
            "policy": {"type": "string", "description":
                "`minute` for a limit of sessions, `budget` for a limit of a budget, `default` for a limit that applies if no budget sets one."},
            "kind": {"enum": ["user", "company", "run"]},
            "unit": {"enum": ["runs", "changes", "cost", "tokens", "concurrentRuns", "toolCalls"]},
            "window": {"enum": ["minute", "day", "month", "run"]},
            "amount": units("The limit."),
            "used": units("The used part. Absent for limits of each run."),
            "reserved": units("The part that is reserved for calls in progress."),
            "warnAt": {"type": "number", "description": "Part of the amount at which a warning is logged."},
            "resetsAt": {"type": "string", "description": "Time at which nothing is used if no further request is made."},
        }),
    );
    let limits = object(
        &["asOf", "limits"],
        json!({"asOf": string_schema(), "limits": {"type": "array", "items": limit}}),
    );
    Operation::new("getLimits", TAG, "Returns the limits of the caller with their used amounts.")
        .describe("They include the budget of the user and the default limit of runs; for an admin, also the limits of the company.")
        .json_response(200, "The limits.", limits)
}
