//! Memory: what an agent has written down, by folder.

use serde::{Deserialize, Serialize};

use super::{WorkspaceError, collection};
use crate::records::{Collection, Key, List, Order, Precondition, Records, RecordsExt, StoreError};

/// The folder of an agent whose role names none.
pub const DEFAULT_MEMORY_FOLDER: &str = "default";

/// One thing that an agent remembers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// The entry's identifier, unique in its folder.
    pub id: String,
    /// The company.
    pub company_id: String,
    /// The agent that remembers.
    pub agent_id: String,
    /// The folder; absent or blank is [`DEFAULT_MEMORY_FOLDER`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// What is remembered.
    pub text: String,
}

impl Memory {
    /// Where the entry is.
    pub(super) fn key(&self) -> Result<Key, StoreError> {
        folder_of(&self.company_id, &self.agent_id, self.folder.as_deref())?.key(self.id.as_str())
    }
}

/// Where the entries of an agent's folder are.
fn folder_of(company_id: &str, agent_id: &str, folder: Option<&str>) -> Result<Collection, StoreError> {
    let folder = folder.map(str::trim).filter(|folder| !folder.is_empty()).unwrap_or(DEFAULT_MEMORY_FOLDER);
    Collection::new(company_id, collection::MEMORIES)?.within(agent_id)?.within(folder)
}

/// The entries of an agent's folder, oldest first, so that what is added comes at the end and the
/// prompt before it stays the same. Of more than `limit` entries (at most
/// [`MAX_PAGE`](crate::records::MAX_PAGE)) those with the largest ids are taken, which of remembered
/// ones are the newest.
pub async fn memories(
    records: &dyn Records,
    company_id: &str,
    agent_id: &str,
    folder: Option<&str>,
    limit: usize,
) -> Result<Vec<Memory>, StoreError> {
    if limit == 0 {
        return Ok(Vec::new());
    }
    let folder = folder_of(company_id, agent_id, folder)?;
    let newest = List { limit: Some(limit), order: Order::Descending, ..List::default() };
    let mut found = records.list_as::<Memory>(&folder, &newest).await?.records;
    found.sort_by(|a, b| (a.updated, &a.id).cmp(&(b.updated, &b.id)));
    Ok(found.into_iter().map(|record| record.value).collect())
}

/// Writes an entry down and gives it back with its identifier.
pub async fn remember(
    records: &dyn Records,
    company_id: &str,
    agent_id: &str,
    folder: Option<&str>,
    text: &str,
) -> Result<Memory, WorkspaceError> {
    if text.trim().is_empty() {
        return Err(WorkspaceError::Invalid { field: "text", fault: "is blank".to_owned() });
    }
    let entry = Memory {
        id: crate::new_id(),
        company_id: company_id.to_owned(),
        agent_id: agent_id.to_owned(),
        folder: folder.map(str::to_owned),
        text: text.to_owned(),
    };
    records.put_as(&entry.key()?, &entry, Precondition::Absent).await?;
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::memory::MemoryRecords;

    #[test]
    fn the_newest_entries_come_oldest_first_from_the_own_folder_alone() {
        let records = MemoryRecords::default();
        let write = |company, agent, folder, text| {
            let entry = remember(&records, company, agent, folder, text);
            entry.now_or_never().expect("no wait").expect("remembered");
        };
        write("c", "a", None, "one");
        write("c", "a", Some(" "), "two");
        write("c", "a", Some("default"), "three");
        write("c", "a", Some("other"), "elsewhere");
        write("c", "b", None, "another agent's");
        write("d", "a", None, "another company's");
        let read = |folder, limit| {
            let found = memories(&records, "c", "a", folder, limit).now_or_never().expect("no wait");
            found.expect("read").into_iter().map(|entry| entry.text).collect::<Vec<_>>()
        };
        assert_eq!(read(None, 10), ["one", "two", "three"]);
        assert_eq!(read(None, 2), ["two", "three"]);
        assert_eq!(read(None, 0), Vec::<String>::new());
        assert_eq!(read(Some("other"), 10), ["elsewhere"]);
    }
}
