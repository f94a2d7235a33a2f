//! Tools over the agent's memory. Not available to widget visitors, since memory belongs to the company's own users.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::builtin::{ADDITIVE, READ_ONLY, Stores, tool};
use super::page;
use crate::records::{MAX_PAGE_RECORDS, Record};
use crate::workspace::{self, MAX_MEMORY_TEXT_BYTES, Memory};
use agent_core::role::RoleBlock;
use agent_core::tool::{Caller, ExecutionContext, LocalToolRegistry, ToolError};

pub(super) fn add(tools: LocalToolRegistry, stores: &Arc<Stores>) -> LocalToolRegistry {
    tools
        .with_tool(tool(stores, "remember", "Saves a text for later conversations.", ADDITIVE, remember))
        .with_tool(tool(stores, "recall", "Searches the saved texts by words.", READ_ONLY, recall))
}

/// Returns the role whose memory folder is used; an error for widget visitors.
async fn role(stores: &Stores, context: &ExecutionContext) -> Result<Arc<RoleBlock>, ToolError> {
    if context.caller == Caller::Widget {
        return Err(ToolError::Unavailable("memory is not available to visitors".to_owned()));
    }
    stores.role(context).await
}

#[derive(Deserialize, JsonSchema)]
struct Remember {
    /// The text to remember, understandable without the conversation.
    #[schemars(length(min = 1, max = MAX_MEMORY_TEXT_BYTES))]
    text: String,
}

#[derive(Serialize, JsonSchema)]
struct Remembered {
    /// The new entry.
    memory: Entry,
}

#[derive(Serialize, JsonSchema)]
struct Entry {
    /// The entry's id.
    id: String,
    /// The remembered text.
    text: String,
}

impl From<Memory> for Entry {
    fn from(Memory { id, text, .. }: Memory) -> Self {
        Self { id, text }
    }
}

async fn remember(
    stores: &Stores,
    context: &ExecutionContext,
    given: Remember,
) -> Result<Remembered, ToolError> {
    let role = role(stores, context).await?;
    let folder = role.content.memory_folder.as_deref();
    let write = workspace::create_memory(&*stores.records, &role.company_id, &role.id, folder, &given.text);
    Ok(Remembered { memory: write.await?.into() })
}

#[derive(Deserialize, JsonSchema)]
struct Recall {
    /// Words to search for; if omitted, all entries are returned, newest first.
    query: Option<String>,
    /// Maximum number of entries; 50 if omitted.
    #[schemars(range(min = 1, max = MAX_PAGE_RECORDS))]
    limit: Option<usize>,
}

#[derive(Serialize, JsonSchema)]
struct Recalled {
    /// The entries: those with the most matching words first, then the newest.
    memories: Vec<Entry>,
}

async fn recall(stores: &Stores, context: &ExecutionContext, asked: Recall) -> Result<Recalled, ToolError> {
    let role = role(stores, context).await?;
    let limit = page::parse_page(asked.limit, None)?.page_size();
    let (folder, query) = (role.content.memory_folder.as_deref(), asked.query.as_deref().unwrap_or_default());
    let found =
        workspace::search_memories(&*stores.records, &role.company_id, &role.id, folder, query, limit)
            .await?;
    let memories = found.into_iter().map(|record: Record<Memory>| record.value.into()).collect();
    Ok(Recalled { memories })
}
