//! Epics: read-only items from workspace files.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::view::{ListPage, list_projected};
use super::{FreeFormItem, WorkspaceError, collection};
use crate::records::{Collection, Key, ListQuery, Record, Records, RecordsExt, StoreError};
use agent_core::ids::CompanyId;

/// Summary of an epic in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EpicSummary {
    /// Identifier of the epic.
    pub id: String,
    /// Title of the epic, or else its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Status of the epic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
}

/// Returns one page of the company's epics.
pub async fn list_epic_summaries(
    records: &dyn Records,
    company_id: &CompanyId,
    list: &ListQuery,
) -> Result<ListPage<EpicSummary>, StoreError> {
    let epics = Collection::new(company_id, collection::EPICS)?;
    let head = |Record { value: FreeFormItem { id, rest, .. }, .. }: Record<FreeFormItem>| {
        let text = |name: &str| rest.get(name).and_then(Value::as_str).map(str::to_owned);
        Some(EpicSummary { id, title: text("title").or_else(|| text("name")), status: text("status") })
    };
    list_projected(records, &epics, list, head).await
}

/// Returns the epic as it was given.
///
/// # Errors
/// [`WorkspaceError::NotFound`] if there is no such epic; errors of the store.
pub async fn get_epic(
    records: &dyn Records,
    company_id: &CompanyId,
    id: &str,
) -> Result<Record<FreeFormItem>, WorkspaceError> {
    let absent = || WorkspaceError::NotFound { what: "epic", id: id.to_owned() };
    let key = Key::new(company_id, collection::EPICS, id).map_err(|_| absent())?;
    records.get_as(&key).await?.ok_or_else(absent)
}
