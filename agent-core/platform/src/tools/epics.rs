//! Tools over the company's epics.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::builtin::{READS, Stores, tool};
use super::page;
use crate::records::MAX_PAGE;
use crate::workspace::{self, EpicHead};
use agent_core::tool::{ExecutionContext, LocalTools, ToolError};

pub(super) fn add(tools: LocalTools, stores: &Arc<Stores>) -> LocalTools {
    tools
        .with(tool(stores, "readEpics", "Lists the epics: ids, titles and states.", READS, read_epics))
        .with(tool(stores, "getEpicDetails", "Reads all that is known of an epic.", READS, get_epic_details))
}

#[derive(Deserialize, JsonSchema)]
struct Read {
    /// Maximum number of epics; 50 if omitted.
    #[schemars(range(min = 1, max = MAX_PAGE))]
    limit: Option<usize>,
    /// The nextCursor of the previous page.
    cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Epics {
    /// The epics.
    epics: Vec<EpicHead>,
    /// The cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

async fn read_epics(stores: &Stores, context: &ExecutionContext, read: Read) -> Result<Epics, ToolError> {
    let list = page::list(read.limit, read.cursor)?;
    let found = workspace::epic_heads(&*stores.records, &context.company_id, &list).await?;
    Ok(Epics { epics: found.items, next_cursor: found.next_cursor })
}

#[derive(Deserialize, JsonSchema)]
struct Get {
    /// The epic's id.
    id: String,
}

#[derive(Serialize, JsonSchema)]
struct Details {
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
    get: Get,
) -> Result<Details, ToolError> {
    let found = workspace::epic(&*stores.records, &context.company_id, &get.id).await?;
    Ok(Details { epic: Epic { id: found.id, rest: found.value.rest } })
}
