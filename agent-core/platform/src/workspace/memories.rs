//! Memory entries of agents, by folder.

use std::cmp::Reverse;
use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::text::{self, checked_text};
use super::view::MAX_RECORDS_SCANNED;
use super::{WorkspaceError, collection};
use crate::records::{
    Collection, Key, ListQuery, MAX_PAGE_RECORDS, Order, Precondition, Record, Records, RecordsExt,
    StoreError,
};
use agent_core::ids::{AgentId, CompanyId};

/// Folder of an agent whose role does not name one.
pub(crate) const DEFAULT_MEMORY_FOLDER: &str = "default";
/// Maximum number of entries in a folder. Old entries are not evicted, since the loss would go unnoticed.
pub(crate) const MAX_MEMORIES_PER_FOLDER: usize = 1_000;
/// Maximum size of the text of a new entry, in bytes.
pub(crate) const MAX_MEMORY_TEXT_BYTES: usize = 4 * 1024;

/// Memory entry of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// Identifier, unique in its folder.
    pub id: String,
    /// Company of the agent.
    pub company_id: CompanyId,
    /// Agent that owns the entry.
    pub agent_id: AgentId,
    /// Folder; absent or blank is `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// Text of the entry.
    pub text: String,
}

impl Memory {
    /// Returns the record key of the entry.
    pub(super) fn key(&self) -> Result<Key, StoreError> {
        folder_collection(&self.company_id, &self.agent_id, self.folder.as_deref())?.key(self.id.as_str())
    }
}

/// Returns the collection of an agent's folder.
fn folder_collection(
    company_id: &CompanyId,
    agent_id: &AgentId,
    folder: Option<&str>,
) -> Result<Collection, StoreError> {
    let folder = folder.map(str::trim).filter(|folder| !folder.is_empty()).unwrap_or(DEFAULT_MEMORY_FOLDER);
    Collection::new(company_id, collection::MEMORIES)?.within(agent_id)?.within(folder)
}

/// Returns the entries of an agent's folder, oldest first, so that a new entry is appended to the prompt and the
/// prefix before it stays the same. If there are more than `limit` (at most
/// [`MAX_PAGE_RECORDS`](crate::records::MAX_PAGE_RECORDS)), the entries with the largest ids are returned, which are
/// the newest of those created by [`create_memory`].
pub async fn list_memories(
    records: &dyn Records,
    company_id: &CompanyId,
    agent_id: &AgentId,
    folder: Option<&str>,
    limit: usize,
) -> Result<Vec<Memory>, StoreError> {
    if limit == 0 {
        return Ok(Vec::new());
    }
    let folder = folder_collection(company_id, agent_id, folder)?;
    let newest = ListQuery { limit: Some(limit), order: Order::Descending, ..ListQuery::default() };
    let mut found = records.list_as::<Memory>(&folder, &newest).await?.records;
    found.sort_by(|a, b| (a.updated, &a.id).cmp(&(b.updated, &b.id)));
    Ok(found.into_iter().map(|record| record.value).collect())
}

/// Creates an entry and returns it with its identifier.
pub async fn create_memory(
    records: &dyn Records,
    company_id: &CompanyId,
    agent_id: &AgentId,
    folder: Option<&str>,
    text: &str,
) -> Result<Memory, WorkspaceError> {
    let text = checked_text(text, MAX_MEMORY_TEXT_BYTES).map_err(text::invalid_field("text"))?;
    if is_full(records, &folder_collection(company_id, agent_id, folder)?).await? {
        return Err(WorkspaceError::Full { what: "memory folder", limit: MAX_MEMORIES_PER_FOLDER });
    }
    let entry = Memory {
        id: agent_core::new_id(),
        company_id: company_id.to_owned(),
        agent_id: agent_id.to_owned(),
        folder: folder.map(str::to_owned),
        text: text.to_owned(),
    };
    records.put_as(&entry.key()?, &entry, Precondition::Absent).await?;
    Ok(entry)
}

/// Returns true if the folder has reached [`MAX_MEMORIES_PER_FOLDER`]. Workspace files also add entries, so the records
/// are counted. Concurrent calls may each find room for one more.
async fn is_full(records: &dyn Records, folder: &Collection) -> Result<bool, StoreError> {
    let mut list = ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() };
    let mut count = 0;
    loop {
        let page = records.list(folder, &list).await?;
        count += page.records.len();
        list.cursor = page.next_cursor;
        if count >= MAX_MEMORIES_PER_FOLDER || list.cursor.is_none() {
            return Ok(count >= MAX_MEMORIES_PER_FOLDER);
        }
    }
}

/// Returns the entries of an agent's folder that contain words of `query`, ignoring case: those with the most
/// matching words first, then the newest. Without words, all entries, newest first. At most `limit` of the newest two
/// thousand of the folder.
pub async fn search_memories(
    records: &dyn Records,
    company_id: &CompanyId,
    agent_id: &AgentId,
    folder: Option<&str>,
    query: &str,
    limit: usize,
) -> Result<Vec<Record<Memory>>, StoreError> {
    let folder = folder_collection(company_id, agent_id, folder)?;
    let query = query.to_lowercase();
    let words: HashSet<&str> = query.split(|char: char| !char.is_alphanumeric()).collect();
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let score = |text: &str| {
        let text = text.to_lowercase();
        words.iter().filter(|word| text.contains(**word)).count()
    };
    let scored = |record: Record<Memory>| {
        let score = score(&record.value.text);
        (words.is_empty() || score > 0).then_some((score, record))
    };
    let mut list =
        ListQuery { limit: Some(MAX_PAGE_RECORDS), order: Order::Descending, ..ListQuery::default() };
    let mut found = Vec::new();
    for _ in 0..MAX_RECORDS_SCANNED / MAX_PAGE_RECORDS {
        let page = records.list_as::<Memory>(&folder, &list).await?;
        found.extend(page.records.into_iter().filter_map(scored));
        list.cursor = page.next_cursor;
        if list.cursor.is_none() {
            break;
        }
    }
    // `found` is newest first, and the sort is stable.
    found.sort_by_key(|(score, _)| Reverse(*score));
    found.truncate(limit);
    Ok(found.into_iter().map(|(_, record)| record).collect())
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::memory::MemoryRecords;

    #[test]
    fn the_newest_entries_come_oldest_first_from_the_own_folder_alone() {
        let records = MemoryRecords::default();
        let write = |company: &str, agent: &str, folder, text| {
            let (company, agent) = (company.into(), agent.into());
            let entry = create_memory(&records, &company, &agent, folder, text);
            entry.now_or_never().expect("no wait").expect("remembered");
        };
        write("c", "a", None, "one");
        write("c", "a", Some(" "), "two");
        write("c", "a", Some("default"), "three");
        write("c", "a", Some("other"), "elsewhere");
        write("c", "b", None, "another agent's");
        write("d", "a", None, "another company's");
        let read = |folder, limit| {
            let found = list_memories(&records, &"c".into(), &"a".into(), folder, limit)
                .now_or_never()
                .expect("no wait");
            found.expect("read").into_iter().map(|entry| entry.text).collect::<Vec<_>>()
        };
        assert_eq!(read(None, 10), ["one", "two", "three"]);
        assert_eq!(read(None, 2), ["two", "three"]);
        assert_eq!(read(None, 0), Vec::<String>::new());
        assert_eq!(read(Some("other"), 10), ["elsewhere"]);
    }

    #[test]
    fn what_was_said_in_other_words_is_not_recalled() {
        let records = MemoryRecords::default();
        for text in ["Ada likes green tea.", "Bob likes coffee.", "The TEA is in the cupboard.", "Ünder"] {
            create_memory(&records, &"c".into(), &"a".into(), None, text)
                .now_or_never()
                .expect("no wait")
                .expect("remembered");
        }
        for (query, limit, expected) in [
            ("", 2, &["Ünder", "The TEA is in the cupboard."][..]),
            ("tea, ADA?", 10, &["Ada likes green tea.", "The TEA is in the cupboard."]),
            ("likes", 1, &["Bob likes coffee."]),
            ("ü", 10, &["Ünder"]),
            ("beer", 10, &[]),
        ] {
            let found = search_memories(&records, &"c".into(), &"a".into(), None, query, limit)
                .now_or_never()
                .expect("no wait");
            let texts: Vec<_> = found.expect("read").into_iter().map(|record| record.value.text).collect();
            assert_eq!(texts, expected, "{query:?}");
        }
        let other = search_memories(&records, &"d".into(), &"a".into(), None, "", 10)
            .now_or_never()
            .expect("no wait");
        assert_eq!(other.expect("read"), []);
    }

    #[test]
    fn a_full_folder_says_so() {
        let records = MemoryRecords::default();
        let folder = folder_collection(&"c".into(), &"a".into(), None).expect("a folder");
        let entry = Memory {
            id: String::new(),
            company_id: "c".into(),
            agent_id: "a".into(),
            folder: None,
            text: "x".into(),
        };
        for _ in 1..MAX_MEMORIES_PER_FOLDER {
            records.append_as(&folder, &entry).now_or_never().expect("no wait").expect("appended");
        }
        let remember = |folder, text: &str| {
            let entry = create_memory(&records, &"c".into(), &"a".into(), folder, text)
                .now_or_never()
                .expect("no wait");
            entry.map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(remember(None, "y"), Ok(()));
        assert_eq!(remember(None, "z"), Err("the memory folder is full: it has 1000 entries".to_owned()));
        assert_eq!(remember(Some("other"), "z"), Ok(()));
        let long = "x".repeat(MAX_MEMORY_TEXT_BYTES + 1);
        assert_eq!(remember(None, &long), Err("text: has 4097 bytes; the limit is 4096".to_owned()));
    }
}
