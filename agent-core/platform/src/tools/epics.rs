//! Tools over the company's epics.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::builtin::{READ_ONLY, Stores, tool};
use super::page;
use crate::records::MAX_PAGE_RECORDS;
use crate::workspace::{self, EpicSummary};
use agent_core::tool::{ExecutionContext, LocalToolRegistry, ToolError};

pub(super) fn add(tools: LocalToolRegistry, stores: &Arc<Stores>) -> LocalToolRegistry {
    tools
        .with_tool(tool(
            stores,
            "readEpics",
            "Lists the epics: ids, titles and states.",
            READ_ONLY,
            read_epics,
        ))
        .with_tool(tool(
            stores,
            "getEpicDetails",
            "Reads all fields of an epic.",
            READ_ONLY,
            get_epic_details,
        ))
}

#[derive(Deserialize, JsonSchema)]
struct ReadEpicsArguments {
    /// Maximum number of epics; 50 if omitted.
    #[schemars(range(min = 1, max = MAX_PAGE_RECORDS))]
    limit: Option<usize>,
    /// The nextCursor of the previous page.
    cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ReadEpicsResult {
    /// The epics.
    epics: Vec<EpicSummary>,
    /// The cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

async fn read_epics(
    stores: &Stores,
    context: &ExecutionContext,
    read: ReadEpicsArguments,
) -> Result<ReadEpicsResult, ToolError> {
    let list = page::parse_page(read.limit, read.cursor)?;
    let page = workspace::list_epic_summaries(&*stores.records, &context.company_id, &list).await?;
    Ok(ReadEpicsResult { epics: page.items, next_cursor: page.next_cursor })
}

#[derive(Deserialize, JsonSchema)]
struct GetEpicDetailsArguments {
    /// The epic's id.
    id: String,
}

#[derive(Serialize, JsonSchema)]
struct GetEpicDetailsResult {
    /// The epic.
    epic: Epic,
}

#[derive(Serialize, JsonSchema)]
struct Epic {
    /// The epic's id.
    id: String,
    /// All other fields.
    #[serde(flatten)]
    rest: Map<String, Value>,
}

async fn get_epic_details(
    stores: &Stores,
    context: &ExecutionContext,
    get: GetEpicDetailsArguments,
) -> Result<GetEpicDetailsResult, ToolError> {
    let found = workspace::get_epic(&*stores.records, &context.company_id, &get.id).await?;
    Ok(GetEpicDetailsResult { epic: Epic { id: found.id, rest: found.value.rest } })
}
