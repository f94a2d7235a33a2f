//! Memory entries of agents, by folder and person.
//!
//! An entry belongs to a company, an agent, a folder and, unless it is shared by the company, a user. Only this user
//! gets it into a prompt, a preview, a tool's result or a list.

use std::cmp::Reverse;
use std::collections::HashSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::record_deletion::clear;
use super::text::{self, checked_text};
use super::view::MAX_RECORDS_SCANNED;
use super::{WorkspaceError, collection};
use crate::records::{
    Collection, Inventory, Key, ListQuery, MAX_PAGE_RECORDS, Order, Precondition, Record, Records,
    RecordsExt, StoreError,
};
use agent_core::ids::{AgentId, CompanyId, UserId};
use agent_core::role::{MemoryScope, RoleBlock};
use agent_core::tool::{Caller, ExecutionContext};

/// Folder of an agent whose role does not name one.
pub(crate) const DEFAULT_MEMORY_FOLDER: &str = "default";
/// Maximum number of entries in a folder of one person, or of the company. Old entries are not evicted, since the loss
/// would go unnoticed.
pub const MAX_MEMORIES_PER_FOLDER: usize = 1_000;
/// Maximum size of the text of a new entry, in bytes.
pub const MAX_MEMORY_TEXT_BYTES: usize = 4 * 1024;

/// Memory entry of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// Identifier, unique in its folder.
    pub id: String,
    /// Company of the agent.
    pub company_id: CompanyId,
    /// Agent that keeps the entry.
    pub agent_id: AgentId,
    /// User that the entry belongs to. Absent in an entry that the company shares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<UserId>,
    /// Folder; absent or blank is `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// Text of the entry.
    pub text: String,
}

impl Memory {
    /// Returns the record key of the entry.
    pub(super) fn key(&self) -> Result<Key, StoreError> {
        let Self { company_id, agent_id, user_id, folder, .. } = self;
        let (company_id, agent_id, user_id) = (company_id.clone(), agent_id.clone(), user_id.clone());
        MemoryFolder { company_id, agent_id, user_id, folder: folder.clone() }.key(&self.id)
    }
}

/// Folder of an agent's memory: that of one user, or the one that the company shares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryFolder {
    company_id: CompanyId,
    agent_id: AgentId,
    user_id: Option<UserId>,
    folder: Option<String>,
}

impl MemoryFolder {
    /// Returns the folder that the agent keeps of a user.
    pub fn of_user(role: &RoleBlock, user_id: &UserId) -> Self {
        Self { user_id: Some(user_id.clone()), ..Self::of_company(role) }
    }

    /// Returns the agent's folder that the company shares.
    pub fn of_company(role: &RoleBlock) -> Self {
        Self {
            company_id: role.company_id.clone(),
            agent_id: role.id.clone(),
            user_id: None,
            folder: role.content.memory_folder.clone(),
        }
    }

    /// Returns the folder that a turn reads and writes: the user's, or the company's if the role shares its memory.
    /// `None` for a widget's visitor, and for a turn without a user whose role does not share its memory.
    pub fn of_turn(role: &RoleBlock, context: &ExecutionContext) -> Option<Self> {
        if context.caller == Caller::Widget {
            return None;
        }
        match role.content.memory_scope.unwrap_or_default() {
            MemoryScope::Company => Some(Self::of_company(role)),
            MemoryScope::User if context.user_id.is_empty() => None,
            MemoryScope::User => Some(Self::of_user(role, &context.user_id)),
        }
    }

    /// Returns the record key of an entry.
    pub fn key(&self, id: &str) -> Result<Key, StoreError> {
        self.collection()?.key(id)
    }

    fn collection(&self) -> Result<Collection, StoreError> {
        let folder = self.folder.as_deref().map(str::trim).filter(|folder| !folder.is_empty());
        let folder = agent_collection(&self.company_id, &self.agent_id)?
            .within(folder.unwrap_or(DEFAULT_MEMORY_FOLDER))?;
        match &self.user_id {
            Some(user_id) => folder.within(user_id),
            None => Ok(folder),
        }
    }

    /// Creates the entry of the folder with this id and text.
    ///
    /// # Errors
    /// [`WorkspaceError::Invalid`] for a blank or overlong text.
    pub fn entry(&self, id: impl Into<String>, text: &str) -> Result<Memory, WorkspaceError> {
        let text = checked_text(text, MAX_MEMORY_TEXT_BYTES).map_err(text::invalid_field("text"))?;
        let Self { company_id, agent_id, user_id, folder } = self.clone();
        Ok(Memory { id: id.into(), company_id, agent_id, user_id, folder, text: text.to_owned() })
    }

    /// Checks that the folder has room for one more entry. Concurrent calls may each find it.
    ///
    /// # Errors
    /// [`WorkspaceError::Full`].
    pub async fn check_room(&self, records: &dyn Records) -> Result<(), WorkspaceError> {
        match is_full(records, &self.collection()?).await? {
            true => Err(WorkspaceError::Full { what: "memory folder", limit: MAX_MEMORIES_PER_FOLDER }),
            false => Ok(()),
        }
    }
}

/// Returns the collection in which an agent's folders are nested. It contains no records itself.
fn agent_collection(company_id: &CompanyId, agent_id: &AgentId) -> Result<Collection, StoreError> {
    Collection::new(company_id, collection::MEMORIES)?.within(agent_id)
}

/// Returns the entries of a folder, oldest first, so that a new entry is appended to the prompt and the prefix before it
/// stays the same. If there are more than `limit` (at most
/// [`MAX_PAGE_RECORDS`](crate::records::MAX_PAGE_RECORDS)), the entries with the largest ids are returned, which are
/// the newest of those created by [`create_memory`].
pub async fn list_memories(
    records: &dyn Records,
    folder: &MemoryFolder,
    limit: usize,
) -> Result<Vec<Memory>, StoreError> {
    if limit == 0 {
        return Ok(Vec::new());
    }
    let newest = ListQuery { limit: Some(limit), order: Order::Descending, ..ListQuery::default() };
    let mut found = records.list_as::<Memory>(&folder.collection()?, &newest).await?.records;
    found.sort_by(|a, b| (a.updated, &a.id).cmp(&(b.updated, &b.id)));
    Ok(found.into_iter().map(|record| record.value).collect())
}

/// Returns one page of a folder's entries, in the order of the list.
pub async fn page_memories(
    records: &dyn Records,
    folder: &MemoryFolder,
    list: &ListQuery,
) -> Result<(Vec<Memory>, Option<String>), StoreError> {
    let page = records.list_as::<Memory>(&folder.collection()?, list).await?;
    Ok((page.records.into_iter().map(|record| record.value).collect(), page.next_cursor))
}

/// Creates an entry and returns it with its identifier.
pub async fn create_memory(
    records: &dyn Records,
    folder: &MemoryFolder,
    text: &str,
) -> Result<Memory, WorkspaceError> {
    let entry = folder.entry(agent_core::new_id(), text)?;
    folder.check_room(records).await?;
    records.put_as(&entry.key()?, &entry, Precondition::Absent).await?;
    Ok(entry)
}

/// Deletes an entry of a folder.
///
/// # Errors
/// [`WorkspaceError::NotFound`] if the folder has no such entry.
pub async fn delete_memory(
    records: &dyn Records,
    folder: &MemoryFolder,
    id: &str,
) -> Result<(), WorkspaceError> {
    let existed = match folder.collection()?.key(id) {
        Ok(key) => records.delete(&key, Precondition::Any).await?,
        // An invalid id names no entry.
        Err(_) => false,
    };
    existed.then_some(()).ok_or_else(|| WorkspaceError::NotFound { what: "memory", id: id.to_owned() })
}

/// Entries to delete with [`delete_memories`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemorySelection<'a> {
    /// All entries of an agent, of all its users.
    Agent(&'a AgentId),
    /// The entries of an agent that belong to a user.
    AgentUser(&'a AgentId, &'a UserId),
    /// The entries of an agent that the company shares.
    AgentShared(&'a AgentId),
    /// The entries of all agents that belong to a user.
    User(&'a UserId),
}

impl MemorySelection<'_> {
    /// Returns true if the selection contains the entries of a collection, given the parts of its path.
    fn contains(self, parts: &[&str]) -> bool {
        let [collection::MEMORIES, agent, _, user @ ..] = parts else { return false };
        match (self, user) {
            (Self::Agent(selected_agent), _) => selected_agent == agent,
            (Self::AgentUser(selected_agent, selected_user), [user]) => {
                selected_agent == agent && selected_user == user
            }
            (Self::AgentShared(selected_agent), []) => selected_agent == agent,
            (Self::User(selected_user), [user]) => selected_user == user,
            _ => false,
        }
    }
}

/// Deletes a company's memory entries in all folders and returns their number. Entries that are created meanwhile may
/// stay.
pub async fn delete_memories(
    inventory: &dyn Inventory,
    company_id: &CompanyId,
    selection: MemorySelection<'_>,
) -> Result<usize, StoreError> {
    let base = match selection {
        MemorySelection::Agent(agent)
        | MemorySelection::AgentUser(agent, _)
        | MemorySelection::AgentShared(agent) => agent_collection(company_id, agent)?,
        MemorySelection::User(_) => Collection::new(company_id, collection::MEMORIES)?,
    };
    let prefix = format!("{}/", base.path());
    let (mut after, mut deleted) = (prefix.clone(), 0);
    loop {
        let found = inventory.collections(company_id, Some(&after)).await?;
        let Some(last) = found.last() else { return Ok(deleted) };
        let next = last.path().to_owned();
        for folder in found.iter().filter(|folder| folder.path().starts_with(&prefix)) {
            let parts: Vec<String> = folder.parts().collect();
            if selection.contains(&parts.iter().map(String::as_str).collect::<Vec<_>>()) {
                deleted += clear(inventory, folder).await?;
            }
        }
        if !next.starts_with(&prefix) {
            return Ok(deleted);
        }
        after = next;
    }
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

/// Returns the entries of a folder that contain words of `query`, ignoring case: those with the most
/// matching words first, then the newest. Without words, all entries, newest first. At most `limit` of the newest two
/// thousand of the folder.
pub async fn search_memories(
    records: &dyn Records,
    folder: &MemoryFolder,
    query: &str,
    limit: usize,
) -> Result<Vec<Record<Memory>>, StoreError> {
    let folder = folder.collection()?;
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
    use serde_json::json;

    use super::*;
    use crate::memory::MemoryRecords;

    fn role(company: &str, agent: &str, folder: Option<&str>) -> RoleBlock {
        serde_json::from_value(
            json!({"id": agent, "companyId": company, "content": {"memoryFolder": folder}}),
        )
        .expect("a role")
    }

    fn folder_of(company: &str, agent: &str, folder: Option<&str>, user: &str) -> MemoryFolder {
        MemoryFolder::of_user(&role(company, agent, folder), &user.into())
    }

    fn ready<T, E: std::fmt::Debug>(future: impl Future<Output = Result<T, E>>) -> T {
        future.now_or_never().expect("no wait").expect("the store in memory answers")
    }

    fn texts(records: &MemoryRecords, folder: &MemoryFolder) -> Vec<String> {
        ready(list_memories(records, folder, 10)).into_iter().map(|entry| entry.text).collect()
    }

    /// Returns a store with entries of several companies, agents, folders and users.
    fn planted() -> MemoryRecords {
        let records = MemoryRecords::default();
        let write = |folder: &MemoryFolder, text: &str| ready(create_memory(&records, folder, text));
        write(&folder_of("c", "a", None, "ada"), "one");
        write(&folder_of("c", "a", Some(" "), "ada"), "two");
        write(&folder_of("c", "a", Some("default"), "ada"), "three");
        write(&folder_of("c", "a", Some("other"), "ada"), "elsewhere");
        write(&folder_of("c", "a", None, "bob"), "a colleague's");
        write(&MemoryFolder::of_company(&role("c", "a", None)), "the company's");
        write(&folder_of("c", "b", None, "ada"), "another agent's");
        write(&folder_of("c", "a2", None, "ada"), "one of a similar name");
        write(&folder_of("d", "a", None, "ada"), "another company's");
        records
    }

    #[test]
    fn the_newest_entries_come_oldest_first_from_the_users_own_folder_only() {
        let records = planted();
        let read = |folder: Option<&str>, limit| {
            let listed_memories = ready(list_memories(&records, &folder_of("c", "a", folder, "ada"), limit));
            listed_memories.into_iter().map(|entry| entry.text).collect::<Vec<_>>()
        };
        assert_eq!(read(None, 10), ["one", "two", "three"]);
        assert_eq!(read(None, 2), ["two", "three"]);
        assert_eq!(read(None, 0), Vec::<String>::new());
        assert_eq!(read(Some("other"), 10), ["elsewhere"]);
        assert_eq!(texts(&records, &folder_of("c", "a", None, "bob")), ["a colleague's"]);
        assert_eq!(texts(&records, &MemoryFolder::of_company(&role("c", "a", None))), ["the company's"]);
    }

    #[test]
    fn a_turn_has_the_users_folder_unless_the_role_shares_its_own() {
        let mut role = role("c", "a", None);
        let context = |user: &str, caller| ExecutionContext {
            user_id: user.into(),
            company_id: "c".into(),
            caller,
            ..ExecutionContext::default()
        };
        let of = |role: &RoleBlock, user, caller| MemoryFolder::of_turn(role, &context(user, caller));
        let shared = MemoryFolder::of_company(&role);
        for caller in [Caller::Session, Caller::Proactive] {
            assert_eq!(of(&role, "ada", caller), Some(folder_of("c", "a", None, "ada")));
            assert_eq!(of(&role, "", caller), None);
        }
        role.content.memory_scope = Some(MemoryScope::Company);
        assert_eq!(of(&role, "ada", Caller::Session), Some(shared.clone()));
        assert_eq!(of(&role, "", Caller::Proactive), Some(shared));
        assert_eq!(of(&role, "widget:1", Caller::Widget), None);
    }

    #[test]
    fn searches_match_words_and_not_meanings() {
        let (records, folder) = (MemoryRecords::default(), folder_of("c", "a", None, "ada"));
        for text in ["Ada likes green tea.", "Bob likes coffee.", "The TEA is in the cupboard.", "Ünder"] {
            ready(create_memory(&records, &folder, text));
        }
        for (query, limit, expected) in [
            ("", 2, &["Ünder", "The TEA is in the cupboard."][..]),
            ("tea, ADA?", 10, &["Ada likes green tea.", "The TEA is in the cupboard."]),
            ("likes", 1, &["Bob likes coffee."]),
            ("ü", 10, &["Ünder"]),
            ("beer", 10, &[]),
        ] {
            let recalled_memories = ready(search_memories(&records, &folder, query, limit));
            let texts: Vec<_> = recalled_memories.into_iter().map(|record| record.value.text).collect();
            assert_eq!(texts, expected, "{query:?}");
        }
        for stranger in [folder_of("d", "a", None, "ada"), folder_of("c", "a", None, "bob")] {
            assert_eq!(ready(search_memories(&records, &stranger, "", 10)), []);
        }
    }

    #[test]
    fn an_entry_is_deleted_only_in_the_users_own_folder() {
        let (records, folder) = (MemoryRecords::default(), folder_of("c", "a", None, "ada"));
        let entry = ready(create_memory(&records, &folder, "one"));
        let forget = |folder: &MemoryFolder, id: &str| {
            delete_memory(&records, folder, id)
                .now_or_never()
                .expect("no wait")
                .map_err(|error| error.to_string())
        };
        let absent = Err(format!("there is no memory {:?}", entry.id));
        assert_eq!(forget(&folder_of("c", "a", None, "bob"), &entry.id), absent);
        assert_eq!(forget(&MemoryFolder::of_company(&role("c", "a", None)), &entry.id), absent);
        assert_eq!(forget(&folder, "\0"), Err("there is no memory \"\\0\"".to_owned()));
        assert_eq!(texts(&records, &folder), ["one"]);
        assert_eq!(forget(&folder, &entry.id), Ok(()));
        assert_eq!(texts(&records, &folder), Vec::<String>::new());
        assert_eq!(forget(&folder, &entry.id), absent);
    }

    #[test]
    fn only_selected_entries_are_deleted_in_all_folders() {
        let (ada, agent) = (UserId::from("ada"), AgentId::from("a"));
        for (selection, count, left) in [
            (MemorySelection::Agent(&agent), 6, [0, 0, 0, 0, 1]),
            (MemorySelection::AgentUser(&agent, &ada), 4, [0, 0, 1, 1, 1]),
            (MemorySelection::AgentShared(&agent), 1, [3, 1, 1, 0, 1]),
            (MemorySelection::User(&ada), 6, [0, 0, 1, 1, 0]),
        ] {
            let records = planted();
            assert_eq!(ready(delete_memories(&records, &"c".into(), selection)), count, "{selection:?}");
            let folders = [
                folder_of("c", "a", None, "ada"),
                folder_of("c", "a", Some("other"), "ada"),
                folder_of("c", "a", None, "bob"),
                MemoryFolder::of_company(&role("c", "a", None)),
                folder_of("c", "a2", None, "ada"),
            ];
            assert_eq!(folders.map(|folder| texts(&records, &folder).len()), left, "{selection:?}");
            assert_eq!(texts(&records, &folder_of("d", "a", None, "ada")).len(), 1, "{selection:?}");
            assert_eq!(ready(delete_memories(&records, &"c".into(), selection)), 0, "{selection:?}");
        }
    }

    #[test]
    fn a_full_folder_is_reported() {
        let (records, folder) = (MemoryRecords::default(), folder_of("c", "a", None, "ada"));
        let collection_of_folder = folder.collection().expect("a folder");
        let entry = folder.entry("", "x").expect("an entry");
        for _ in 1..MAX_MEMORIES_PER_FOLDER {
            ready(records.append_as(&collection_of_folder, &entry));
        }
        let remember = |folder: &MemoryFolder, text: &str| {
            let entry = create_memory(&records, folder, text).now_or_never().expect("no wait");
            entry.map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(remember(&folder, "y"), Ok(()));
        assert_eq!(remember(&folder, "z"), Err("the memory folder is full: it has 1000 entries".to_owned()));
        for room in [folder_of("c", "a", Some("other"), "ada"), folder_of("c", "a", None, "bob")] {
            assert_eq!(remember(&room, "z"), Ok(()));
        }
        let long = "x".repeat(MAX_MEMORY_TEXT_BYTES + 1);
        assert_eq!(remember(&folder, &long), Err("text: has 4097 bytes; the limit is 4096".to_owned()));
    }
}
