//! Tools over the agent's memory. Not available to widget visitors, since memory belongs to the company's own users.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::builtin::{ADDITIVE, DESTRUCTIVE, READ_ONLY, Stores, tool};
use super::page;
use crate::records::{MAX_PAGE_RECORDS, Record};
use crate::workspace::{self, MAX_MEMORY_TEXT_BYTES, Memory, MemoryFolder};
use agent_core::tool::{Caller, ExecutionContext, LocalToolRegistry, ToolError};

pub(super) fn add(tools: LocalToolRegistry, stores: &Arc<Stores>) -> LocalToolRegistry {
    tools
        .with_tool(tool(stores, "remember", "Saves a text for later conversations.", ADDITIVE, remember))
        .with_tool(tool(stores, "recall", "Searches the saved texts by words.", READ_ONLY, recall))
        .with_tool(tool(stores, "forget", "Deletes a saved text.", DESTRUCTIVE, forget))
}

/// Returns the folder of the context's agent and user; an error for widget visitors.
async fn folder(stores: &Stores, context: &ExecutionContext) -> Result<MemoryFolder, ToolError> {
    let unavailable = |text: &str| ToolError::Unavailable(text.to_owned());
    if context.caller == Caller::Widget {
        return Err(unavailable("memory is not available to visitors"));
    }
    let role = stores.role(context).await?;
    MemoryFolder::of_turn(&role, context).ok_or_else(|| unavailable("memory needs a user"))
}

#[derive(Deserialize, JsonSchema)]
struct RememberArguments {
    /// The text to remember, understandable without the conversation.
    #[schemars(length(min = 1, max = MAX_MEMORY_TEXT_BYTES))]
    text: String,
}

#[derive(Serialize, JsonSchema)]
struct RememberResult {
    /// The new entry.
    memory: MemoryEntry,
}

#[derive(Serialize, JsonSchema)]
struct MemoryEntry {
    /// The entry's id.
    id: String,
    /// The remembered text.
    text: String,
}

impl From<Memory> for MemoryEntry {
    fn from(Memory { id, text, .. }: Memory) -> Self {
        Self { id, text }
    }
}

async fn remember(
    stores: &Stores,
    context: &ExecutionContext,
    arguments: RememberArguments,
) -> Result<RememberResult, ToolError> {
    let folder = folder(stores, context).await?;
    let memory = workspace::create_memory(&*stores.records, &folder, &arguments.text).await?;
    Ok(RememberResult { memory: memory.into() })
}

#[derive(Deserialize, JsonSchema)]
struct RecallArguments {
    /// Words to search for; if omitted, all entries are returned, newest first.
    query: Option<String>,
    /// Maximum number of entries; 50 if omitted.
    #[schemars(range(min = 1, max = MAX_PAGE_RECORDS))]
    limit: Option<usize>,
}

#[derive(Serialize, JsonSchema)]
struct RecallResult {
    /// The entries: those with the most matching words first, then the newest.
    memories: Vec<MemoryEntry>,
}

async fn recall(
    stores: &Stores,
    context: &ExecutionContext,
    arguments: RecallArguments,
) -> Result<RecallResult, ToolError> {
    let folder = folder(stores, context).await?;
    let limit = page::parse_page(arguments.limit, None)?.page_size();
    let query = arguments.query.as_deref().unwrap_or_default();
    let memory_records = workspace::search_memories(&*stores.records, &folder, query, limit).await?;
    let memories = memory_records.into_iter().map(|record: Record<Memory>| record.value.into()).collect();
    Ok(RecallResult { memories })
}

#[derive(Deserialize, JsonSchema)]
struct ForgetArguments {
    /// The entry's id, as `recall` returns it.
    id: String,
}

#[derive(Serialize, JsonSchema)]
struct ForgetResult {
    /// The id of the deleted entry.
    forgotten: String,
}

async fn forget(
    stores: &Stores,
    context: &ExecutionContext,
    arguments: ForgetArguments,
) -> Result<ForgetResult, ToolError> {
    let folder = folder(stores, context).await?;
    workspace::delete_memory(&*stores.records, &folder, &arguments.id).await?;
    Ok(ForgetResult { forgotten: arguments.id })
}
