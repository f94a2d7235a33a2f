//! Tools over the plan of the conversation's todo list.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::builtin::{DESTRUCTIVE, READ_ONLY, Stores, tool};
use crate::workspace::{self, MAX_PLAN_BYTES, MAX_TITLE_BYTES};
use agent_core::tool::{ExecutionContext, LocalToolRegistry, ToolError};

pub(super) fn add(tools: LocalToolRegistry, stores: &Arc<Stores>) -> LocalToolRegistry {
    tools
        .with_tool(tool(
            stores,
            "readPlan",
            "Reads the plan of the user's todo list; null if there is none yet.",
            READ_ONLY,
            read_plan,
        ))
        .with_tool(tool(
            stores,
            "updatePlan",
            "Replaces the text of the plan of the user's todo list.",
            DESTRUCTIVE,
            update_plan,
        ))
}

#[derive(Deserialize, JsonSchema)]
struct ReadPlanArguments {}

#[derive(Serialize, JsonSchema)]
struct ReadPlanResult {
    /// The plan, or null.
    plan: Option<PlanResult>,
}

#[derive(Serialize, JsonSchema)]
struct PlanResult {
    /// The plan's id.
    id: String,
    /// The title.
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    /// The text.
    text: String,
    /// All other fields of the plan.
    #[serde(skip_serializing_if = "Map::is_empty")]
    details: Map<String, Value>,
    /// The plan's version.
    version: u64,
}

async fn read_plan(
    stores: &Stores,
    context: &ExecutionContext,
    _: ReadPlanArguments,
) -> Result<ReadPlanResult, ToolError> {
    let stored_plan = workspace::get_plan(&*stores.records, context).await?;
    let plan = stored_plan.map(|workspace::Plan { id, title, text, details, version }| PlanResult {
        id,
        title,
        text,
        details,
        version,
    });
    Ok(ReadPlanResult { plan })
}

#[derive(Deserialize, JsonSchema)]
struct UpdatePlanArguments {
    /// The whole text, in Markdown.
    #[schemars(length(min = 1, max = MAX_PLAN_BYTES))]
    text: String,
    /// The title, in one line; unchanged if omitted.
    #[schemars(length(min = 1, max = MAX_TITLE_BYTES))]
    title: Option<String>,
    /// The plan's version as read: the call fails if it has changed since. If omitted, the plan is written in any
    /// case.
    version: Option<u64>,
}

#[derive(Serialize, JsonSchema)]
struct UpdatePlanResult {
    /// The plan.
    plan: PlanHead,
}

#[derive(Serialize, JsonSchema)]
struct PlanHead {
    /// The plan's id.
    id: String,
    /// The title.
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    /// The plan's new version.
    version: u64,
}

async fn update_plan(
    stores: &Stores,
    context: &ExecutionContext,
    update: UpdatePlanArguments,
) -> Result<UpdatePlanResult, ToolError> {
    let UpdatePlanArguments { text, title, version } = update;
    let write = workspace::update_plan(&*stores.records, context, title.as_deref(), &text, version);
    let workspace::Plan { id, title, version, .. } = write.await?;
    Ok(UpdatePlanResult { plan: PlanHead { id, title, version } })
}
