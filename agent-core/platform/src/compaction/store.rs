//! Summaries at rest: records of their users, by the hash of the messages that they stand for.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use agent_core::clock::Clock;
use agent_core::ids::{AgentId, CompanyId, ThreadId, UserId};
use agent_core::message::Message;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::conversation::{ConversationError, Conversations, NodeLink, NodeStatus, ThreadKey};
use crate::records::{
    Collection, Inventory, Key, ListQuery, MAX_PAGE_RECORDS, Precondition, Record, Records, RecordsExt,
    StoreError,
};
use crate::workspace::collection::SUMMARIES;

/// Time after its last use for which a summary is kept that belongs to no stored thread.
pub const SUMMARY_RETENTION: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Time after which a use is recorded again.
const USE_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);
/// Maximum number of a user's summaries. Further ones replace the oldest.
pub const MAX_USER_SUMMARIES: usize = 500;
/// Version of the instruction for summaries.
const INSTRUCTION_VERSION: u32 = 1;

/// Owner of a summary.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SummaryOwner {
    /// The company.
    pub company_id: CompanyId,
    /// The user.
    pub user_id: UserId,
    /// The stored thread that the summary is deleted with, if there is one.
    pub thread_id: Option<ThreadId>,
}

/// A summary of the beginning of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// The text, as the model wrote it.
    pub text: String,
    /// The agent.
    pub agent_id: AgentId,
    /// The stored thread that the summary is deleted with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<ThreadId>,
}

/// SHA-256 of the messages that a summary replaces, and of the agent and the settings that the summary depends on.
#[derive(Debug, Clone)]
pub(super) struct PrefixHasher(Sha256);

impl PrefixHasher {
    pub(super) fn new(agent_id: &AgentId, instructions: &str, max_tokens: usize) -> Self {
        let mut hasher = Self(Sha256::new());
        let version = format!("{INSTRUCTION_VERSION}/{max_tokens}");
        for piece in [version.as_str(), agent_id.as_str(), instructions] {
            hasher.add(piece.as_bytes());
        }
        hasher
    }

    fn add(&mut self, piece: &[u8]) {
        self.0.update((piece.len() as u64).to_le_bytes());
        self.0.update(piece);
    }

    /// Adds a message. Its identifier, which clients choose, is not part of the hash.
    pub(super) fn add_message(&mut self, message: &Message) {
        let role = serde_json::to_vec(&message.role).unwrap_or_default();
        let content = serde_json::to_vec(&message.content).unwrap_or_default();
        self.add(&role);
        self.add(&content);
        self.add(message.tool_call_id.as_deref().unwrap_or_default().as_bytes());
        self.add(&(message.tool_calls.len() as u64).to_le_bytes());
        for call in &message.tool_calls {
            for piece in [&call.id, &call.function.name, &call.function.arguments] {
                self.add(piece.as_bytes());
            }
        }
    }

    /// Returns the hash in lower-case hexadecimal.
    pub(super) fn sha256(&self) -> String {
        hex::encode(self.0.clone().finalize())
    }
}

/// Store of summaries.
#[derive(Clone)]
pub struct Summaries {
    records: Arc<dyn Records>,
    conversations: Option<Arc<dyn Conversations>>,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Summaries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Summaries").finish_non_exhaustive()
    }
}

impl Summaries {
    /// Creates the store over records. `conversations` has the threads; a thread is deleted together with its summaries.
    pub fn new(
        records: Arc<dyn Records>,
        conversations: Option<Arc<dyn Conversations>>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { records, conversations, clock }
    }

    /// Returns the summary with this hash, and records the use.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn get(&self, owner: &SummaryOwner, sha256: &str) -> Result<Option<Summary>, StoreError> {
        let key = collection(&owner.company_id, &owner.user_id)?.key(sha256)?;
        let Some(stored_summary) = self.records.get_as::<Summary>(&key).await? else { return Ok(None) };
        if self.is_older(stored_summary.updated, USE_INTERVAL) {
            let unchanged = Precondition::Version(stored_summary.version);
            match self.records.put_as(&key, &stored_summary.value, unchanged).await {
                Ok(_) | Err(StoreError::Conflict { .. }) => {}
                Err(error) => tracing::warn!(%error, "the use of a summary was not recorded"),
            }
        }
        Ok(Some(stored_summary.value))
    }

    /// Stores a summary, unless one with this hash exists, and returns the stored one; `None` if its thread was deleted
    /// meanwhile.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn add(
        &self,
        owner: &SummaryOwner,
        sha256: &str,
        summary: Summary,
    ) -> Result<Option<Summary>, StoreError> {
        let own = collection(&owner.company_id, &owner.user_id)?;
        let key = own.key(sha256)?;
        let stored = match self.records.put_as(&key, &summary, Precondition::Absent).await {
            Ok(_) => Some(summary),
            // Another process was first, and prompts contain its text.
            Err(StoreError::Conflict { .. }) => {
                self.records.get_as::<Summary>(&key).await?.map(|summary| summary.value)
            }
            Err(error) => return Err(error),
        };
        if self.records.count(&own).await? > MAX_USER_SUMMARIES as u64 {
            self.delete_oldest(&own, sha256).await?;
        }
        // A deletion of the thread may have searched for summaries before this one was stored.
        if let Some(thread_id) = &owner.thread_id
            && self.is_deleted(owner, thread_id).await?
        {
            self.records.delete(&key, Precondition::Any).await?;
            return Ok(None);
        }
        Ok(stored)
    }

    async fn is_deleted(&self, owner: &SummaryOwner, thread_id: &ThreadId) -> Result<bool, StoreError> {
        let Some(conversations) = &self.conversations else { return Ok(false) };
        let key = ThreadKey::new(owner.company_id.clone(), owner.user_id.clone(), thread_id.clone());
        match conversations.thread(&key).await {
            Ok(thread) => Ok(thread.is_none()),
            Err(ConversationError::Store(error)) => Err(error),
            Err(_) => Ok(true),
        }
    }

    /// Returns the number of erased messages of the owner's stored thread; 0 without one.
    ///
    /// # Errors
    /// Errors of the store.
    pub(super) async fn count_erased(&self, owner: &SummaryOwner) -> Result<usize, StoreError> {
        let (Some(conversations), Some(thread_id)) = (&self.conversations, &owner.thread_id) else {
            return Ok(0);
        };
        let key = ThreadKey::new(owner.company_id.clone(), owner.user_id.clone(), thread_id.clone());
        let is_erased = |link: &&NodeLink| link.status == NodeStatus::Deleted;
        match conversations.links(&key).await {
            Ok(found) => Ok(found.map_or(0, |found| found.links.iter().filter(is_erased).count())),
            Err(ConversationError::Store(error)) => Err(error),
            Err(_) => Ok(0),
        }
    }

    /// Deletes the summary with this hash.
    ///
    /// # Errors
    /// Errors of the store.
    pub(super) async fn delete(&self, owner: &SummaryOwner, sha256: &str) -> Result<(), StoreError> {
        let key = summary_key(owner, sha256)?;
        self.records.delete(&key, Precondition::Any).await.map(drop)
    }

    async fn delete_oldest(&self, collection: &Collection, kept_id: &str) -> Result<(), StoreError> {
        let records = self.list(collection).await?;
        let others = records.iter().filter(|record| record.id != kept_id);
        let Some(oldest) = others.min_by_key(|record| (record.updated, record.version)) else {
            return Ok(());
        };
        self.records.delete(&collection.key(oldest.id.as_str())?, Precondition::Any).await.map(drop)
    }

    /// Deletes the summaries of a user's deleted threads, and those that have not been used for a long time. To be
    /// called after the deletion of threads. Returns the number.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn delete_obsolete(
        &self,
        company_id: &CompanyId,
        user_id: &UserId,
    ) -> Result<usize, StoreError> {
        let own = collection(company_id, user_id)?;
        let mut deleted = 0;
        for record in self.list(&own).await? {
            let updated = record.updated;
            let key = own.key(record.id.as_str())?;
            // A record in an unknown format is kept.
            let Ok(summary) = record.parse::<Summary>(&own) else { continue };
            let is_obsolete = match summary.value.thread_id {
                Some(thread_id) => {
                    let (company_id, user_id) = (company_id.clone(), user_id.clone());
                    let owner = SummaryOwner { company_id, user_id, thread_id: None };
                    self.is_deleted(&owner, &thread_id).await?
                }
                None => self.is_older(updated, SUMMARY_RETENTION),
            };
            if is_obsolete {
                deleted += usize::from(self.records.delete(&key, Precondition::Any).await?);
            }
        }
        Ok(deleted)
    }

    /// Deletes the summaries of a thread. To be called after the erasure of one of its messages. Returns the number.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn delete_of_thread(&self, key: &ThreadKey) -> Result<usize, StoreError> {
        let own = collection(&key.company, &key.owner)?;
        let mut deleted = 0;
        for record in self.list(&own).await? {
            let record_key = own.key(record.id.as_str())?;
            // A record in an unknown format is kept.
            let Ok(summary) = record.parse::<Summary>(&own) else { continue };
            if summary.value.thread_id.as_ref() == Some(&key.id) {
                deleted += usize::from(self.records.delete(&record_key, Precondition::Any).await?);
            }
        }
        Ok(deleted)
    }

    /// Deletes the obsolete summaries of all users, as [`delete_obsolete`](Self::delete_obsolete) does. Returns the number.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn sweep(&self, inventory: &dyn Inventory) -> Result<usize, StoreError> {
        let (mut deleted, mut after) = (0, None);
        loop {
            let companies = inventory.companies(after.as_deref()).await?;
            let Some(last) = companies.last().cloned() else { return Ok(deleted) };
            for company in companies.iter().filter(|company| !company.is_empty()) {
                deleted += self.sweep_company(inventory, company).await?;
            }
            after = Some(last);
        }
    }

    async fn sweep_company(&self, inventory: &dyn Inventory, company: &str) -> Result<usize, StoreError> {
        let all_users = format!("{SUMMARIES}/");
        let (mut deleted, mut after) = (0, all_users.clone());
        loop {
            let collections = inventory.collections(company, Some(&after)).await?;
            let own: Vec<_> =
                collections.iter().filter(|collection| collection.path().starts_with(&all_users)).collect();
            for user in own.iter().filter_map(|collection| collection.parts().nth(1)) {
                deleted += self.delete_obsolete(&company.into(), &user.into()).await?;
            }
            match own.last() {
                Some(last) if own.len() == collections.len() => after = last.path().to_owned(),
                _ => return Ok(deleted),
            }
        }
    }

    async fn list(&self, own: &Collection) -> Result<Vec<Record>, StoreError> {
        let mut list = ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() };
        let mut records = Vec::new();
        loop {
            let page = self.records.list(own, &list).await?;
            records.extend(page.records);
            list.cursor = page.next_cursor;
            if list.cursor.is_none() {
                return Ok(records);
            }
        }
    }

    fn is_older(&self, time: SystemTime, age: Duration) -> bool {
        self.clock.now().duration_since(time).is_ok_and(|since| since > age)
    }
}

/// Returns the collection of a user's summaries.
fn collection(company_id: &CompanyId, user_id: &UserId) -> Result<Collection, StoreError> {
    Collection::new(company_id, SUMMARIES)?.within(user_id)
}

/// Returns the key of the record of a summary.
pub(super) fn summary_key(owner: &SummaryOwner, sha256: &str) -> Result<Key, StoreError> {
    collection(&owner.company_id, &owner.user_id)?.key(sha256)
}
