//! [`RoleStore`] over [`Records`].
//!
//! A role is a record in its company's collection `roles`, with each secret replaced by its mask. The sealed secrets
//! are in `roleSecrets` under the same id. One save changes both in one commit, and the role's record is rewritten
//! whenever one of its secrets changes, so that its version covers the whole role.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use crate::company_cache::CompanyCache;
use crate::memory::MemoryRecords;
use crate::records::{
    Collection, CountQuota, CountQuotaError, Key, ListQuery, MAX_ID_BYTES, Page, Precondition, Record,
    Records, RecordsExt, StoreError, UpdateAttempts, Write, commit_put, put_within, to_json,
};
use crate::roles::RoleStore;
use crate::roles::secrets::{merge_secrets, secret_fields};
use crate::seal::{SealError, Sealer};
use agent_core::ids::{AgentId, CompanyId};
use agent_core::role::RoleBlock;
use agent_core::role::RoleSource;
use agent_core::secret::Secret;
use async_trait::async_trait;

/// Name of the collection of roles.
pub(crate) const ROLES: &str = "roles";
/// Name of the collection of their sealed secrets.
const ROLE_SECRETS: &str = "roleSecrets";

/// Maximum size of the role cache, in bytes: a few thousand roles of usual size.
const MAX_ROLE_CACHE_BYTES: usize = 32 << 20;

/// A role's stored secrets: field path to sealed text.
pub(super) type SealedSecrets = BTreeMap<String, String>;

/// [`RoleStore`] over any [`Records`], with its secrets sealed by a [`Sealer`].
///
/// Roles are cached in memory once read; reading a role again costs one lookup of its version.
pub struct RecordRoleStore {
    records: Arc<dyn Records>,
    sealer: Arc<Sealer>,
    cache: CompanyCache<AgentId, OpenedRole>,
}

impl std::fmt::Debug for RecordRoleStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordRoleStore").finish_non_exhaustive()
    }
}

/// A role with its opened secrets, as of a version and its time: a database that takes over without the latest writes
/// may give out their versions again.
#[derive(Clone)]
struct OpenedRole {
    version: u64,
    updated: SystemTime,
    role: Arc<RoleBlock>,
}

/// Returns the size of a role in the cache: the parsed role takes about as much memory again as its text.
const fn cached_bytes(text_bytes: usize) -> usize {
    2 * text_bytes + 1024
}

/// Keys of the records that make up a role.
pub(crate) struct RoleKeys {
    pub(super) role: Key,
    pub(super) secrets: Key,
}

impl RoleKeys {
    pub(crate) fn new(company_id: &CompanyId, agent_id: &AgentId) -> Result<Self, StoreError> {
        let role = role_key(company_id, agent_id)?;
        Ok(Self { role, secrets: Key::new(company_id, ROLE_SECRETS, agent_id.as_str())? })
    }

    /// Returns all keys, in the order in which [`StoredRole::read`] consumes the records.
    pub(crate) fn all(&self) -> [Key; 2] {
        [self.role.clone(), self.secrets.clone()]
    }
}

/// Returns the key of the role itself, or [`StoreError::Invalid`] for an invalid agent id.
fn role_key(company_id: &CompanyId, agent_id: &AgentId) -> Result<Key, StoreError> {
    if agent_id.len() > MAX_ID_BYTES {
        let fault = format!("the id has {} bytes; the limit is {MAX_ID_BYTES}", agent_id.len());
        return Err(StoreError::Invalid(fault));
    }
    Key::new(company_id, ROLES, agent_id.as_str())
}

/// The stored records of a role.
pub(crate) struct StoredRole {
    role: Option<Record>,
    secrets: Option<Record<SealedSecrets>>,
}

impl StoredRole {
    /// Consumes the records found under [`RoleKeys::all`] from the front of `stored_records`.
    pub(crate) fn from_records(
        keys: &RoleKeys,
        stored_records: &mut impl Iterator<Item = Option<Record>>,
    ) -> Result<Self, StoreError> {
        let mut next = || stored_records.next().flatten();
        Ok(Self {
            role: next(),
            secrets: next().map(|record| record.parse(keys.secrets.collection())).transpose()?,
        })
    }

    fn version(&self) -> Option<u64> {
        self.role.as_ref().map(|record| record.version)
    }

    fn sealed(&self, path: &str) -> Option<&String> {
        self.secrets.as_ref()?.value.get(path)
    }
}

/// The writes that save a role, the role's own put first; empty if nothing changes.
pub(crate) struct RoleWrites {
    pub(crate) writes: Vec<Write>,
    pub(crate) is_new: bool,
}

impl RecordRoleStore {
    /// Creates a role store over `records`, with secrets sealed by `sealer`.
    pub fn new(records: Arc<dyn Records>, sealer: impl Into<Arc<Sealer>>) -> Self {
        Self { records, sealer: sealer.into(), cache: CompanyCache::new(MAX_ROLE_CACHE_BYTES) }
    }

    /// Creates a role store in memory, with secrets sealed under a key that exists in this process only.
    pub fn in_memory() -> Self {
        Self::new(Arc::new(MemoryRecords::default()), Sealer::ephemeral())
    }

    /// Returns the underlying record store.
    pub fn records(&self) -> &Arc<dyn Records> {
        &self.records
    }

    /// Returns the sealer of the secrets.
    pub fn sealer(&self) -> &Arc<Sealer> {
        &self.sealer
    }

    /// Reads the records of a role.
    async fn stored(&self, keys: &RoleKeys) -> Result<StoredRole, StoreError> {
        StoredRole::from_records(keys, &mut self.records.get_many(&keys.all()).await?.into_iter())
    }

    /// Reads a role with its secrets and caches it.
    async fn load(
        &self,
        company_id: &CompanyId,
        agent_id: &AgentId,
    ) -> Result<Option<Arc<RoleBlock>>, StoreError> {
        let keys = RoleKeys::new(company_id, agent_id)?;
        let stored = self.stored(&keys).await?;
        let Some(record) = stored.role.clone() else { return Ok(None) };
        let text_bytes = record.value.get().len();
        let Record { version, updated, value: mut role, .. } =
            record.parse::<RoleBlock>(keys.role.collection())?;
        for field in secret_fields(&mut role) {
            if field.secret.is_some() {
                *field.secret = Some(self.open(&keys.role, &field.path, stored.sealed(&field.path))?);
            }
        }
        let role = Arc::new(role);
        let opened = OpenedRole { version, updated, role: role.clone() };
        self.cache.insert(company_id, agent_id.clone(), opened, cached_bytes(text_bytes));
        Ok(Some(role))
    }

    /// Opens a sealed secret of the role at `key`.
    pub(super) fn open(&self, key: &Key, path: &str, sealed: Option<&String>) -> Result<Secret, StoreError> {
        let sealed = sealed.ok_or(SealError::Damaged);
        let opened = sealed.and_then(|sealed| self.sealer.open(&associated_data(key, path), sealed));
        opened.map_err(|error| error.into_store_error(key.id(), path))
    }

    /// Seals a secret of the role at `key`.
    pub(super) fn seal(&self, key: &Key, path: &str, secret: &Secret) -> Result<String, StoreError> {
        let sealed = self.sealer.seal(&associated_data(key, path), secret);
        sealed.map_err(|error| error.into_store_error(key.id(), path))
    }

    /// Computes the writes that save `role` over `stored`.
    pub(crate) fn plan_save(
        &self,
        mut role: RoleBlock,
        keys: &RoleKeys,
        stored: &StoredRole,
    ) -> Result<RoleWrites, StoreError> {
        let before = stored.role.clone().map(|record| record.parse(keys.role.collection())).transpose()?;
        merge_secrets(&mut role, before.map(|record| record.value));
        let secrets = self.sealed_secrets(&mut role, keys, stored)?;
        let value = to_json(&role)?;

        let secrets_before = stored.secrets.as_ref().map(|record| &record.value);
        let secrets_change = secrets_before.map_or(!secrets.is_empty(), |before| *before != secrets);
        let role_changes = stored.role.as_ref().is_none_or(|before| before.value.get() != value.get());
        let mut writes = Vec::new();
        if role_changes || secrets_change {
            let precondition = Precondition::unchanged_since(stored.version());
            writes.push(Write::Put { key: keys.role.clone(), value, precondition });
        }
        if secrets_change {
            let (key, precondition) =
                (keys.secrets.clone(), Precondition::unchanged_since(version_of(&stored.secrets)));
            writes.push(match secrets.is_empty() {
                true => Write::Delete { key, precondition },
                false => Write::Put { key, value: to_json(&secrets)?, precondition },
            });
        }
        Ok(RoleWrites { writes, is_new: stored.role.is_none() })
    }

    /// Returns the role's secrets in stored form. An existing sealed text is kept if its secret is unchanged, although
    /// sealing again would produce a different text, so that saving a role twice changes nothing.
    fn sealed_secrets(
        &self,
        role: &mut RoleBlock,
        keys: &RoleKeys,
        stored: &StoredRole,
    ) -> Result<SealedSecrets, StoreError> {
        let mut secrets = SealedSecrets::new();
        for field in secret_fields(role) {
            let Some(secret) = field.secret else { continue };
            let before = stored.sealed(&field.path).cloned();
            let says_the_same = |before: &String| {
                secret.is_mask()
                    || self.open(&keys.role, &field.path, Some(before)).is_ok_and(|opened| opened == *secret)
            };
            match before.filter(says_the_same) {
                Some(before) => secrets.insert(field.path, before),
                // A mask without a stored secret is dropped.
                None if secret.is_mask() => {
                    *field.secret = None;
                    None
                }
                None => {
                    let sealed = self.seal(&keys.role, &field.path, secret)?;
                    secrets.insert(field.path, sealed)
                }
            };
        }
        Ok(secrets)
    }
}

#[async_trait]
impl RoleSource for RecordRoleStore {
    async fn role(
        &self,
        company_id: &CompanyId,
        agent_id: &AgentId,
    ) -> Result<Option<Arc<RoleBlock>>, StoreError> {
        let Ok(key) = role_key(company_id, agent_id) else { return Ok(None) };
        let Some(record) = self.records.get(&key).await? else {
            self.cache.remove(company_id, agent_id);
            return Ok(None);
        };
        match self.cache.get(company_id, agent_id) {
            Some(opened) if (opened.version, opened.updated) == (record.version, record.updated) => {
                Ok(Some(opened.role))
            }
            _ => self.load(company_id, agent_id).await,
        }
    }
}

#[async_trait]
impl RoleStore for RecordRoleStore {
    async fn count_roles(&self, company_id: &CompanyId) -> Result<u64, StoreError> {
        self.records.count(&Collection::new(company_id, ROLES)?).await
    }

    async fn masked_role(
        &self,
        company_id: &CompanyId,
        agent_id: &AgentId,
    ) -> Result<Option<Record<RoleBlock>>, StoreError> {
        let Ok(key) = role_key(company_id, agent_id) else { return Ok(None) };
        self.records.get_as(&key).await
    }

    async fn masked_roles(
        &self,
        company_id: &CompanyId,
        list: &ListQuery,
    ) -> Result<Page<RoleBlock>, StoreError> {
        self.records.list_as(&Collection::new(company_id, ROLES)?, list).await
    }

    async fn put_role(&self, role: RoleBlock, precondition: Precondition) -> Result<u64, StoreError> {
        let keys = RoleKeys::new(&role.company_id, &role.id)?;
        let mut attempts = UpdateAttempts::new(&*self.records, &keys.role);
        loop {
            let stored = self.stored(&keys).await?;
            precondition.check(stored.version())?;
            let save = self.plan_save(role.clone(), &keys, &stored)?;
            if let Some(version) = stored.version().filter(|_| save.writes.is_empty()) {
                return Ok(version);
            }
            match commit_put(&*self.records, save.writes).await {
                Ok(version) => return Ok(version),
                Err(error) => attempts.retry(error).await?,
            }
        }
    }

    async fn create_role(&self, role: RoleBlock, max_roles: u64) -> Result<u64, StoreError> {
        let company_id = role.company_id.clone();
        let keys = RoleKeys::new(&company_id, &role.id)?;
        let stored = self.stored(&keys).await?;
        Precondition::Absent.check(stored.version())?;
        let save = self.plan_save(role, &keys, &stored)?;
        let quota = CountQuota { company_id: &company_id, collection: ROLES, limit: max_roles };
        put_within(&*self.records, &quota, &save.writes).await.map_err(CountQuotaError::into_conflict)
    }

    async fn delete_role(
        &self,
        company_id: &CompanyId,
        agent_id: &AgentId,
        precondition: Precondition,
    ) -> Result<bool, StoreError> {
        let Ok(keys) = RoleKeys::new(company_id, agent_id) else { return Ok(false) };
        let mut attempts = UpdateAttempts::new(&*self.records, &keys.role);
        loop {
            let stored = self.stored(&keys).await?;
            precondition.check(stored.version())?;
            if stored.role.is_none() {
                return Ok(false);
            }
            match self.records.commit(deletion_writes(keys.all(), &stored)).await {
                Ok(_) => {
                    self.cache.remove(company_id, agent_id);
                    return Ok(true);
                }
                Err(error) => attempts.retry(error).await?,
            }
        }
    }
}

/// Returns the writes that delete all existing records of a role.
fn deletion_writes(keys: [Key; 2], stored: &StoredRole) -> Vec<Write> {
    let versions = [stored.version(), version_of(&stored.secrets)];
    let existing = keys.into_iter().zip(versions).filter(|(_, version)| version.is_some());
    existing
        .map(|(key, version)| Write::Delete { key, precondition: Precondition::unchanged_since(version) })
        .collect()
}

fn version_of<T>(record: &Option<Record<T>>) -> Option<u64> {
    record.as_ref().map(|record| record.version)
}

/// Returns the associated data to which a secret is bound when it is sealed.
fn associated_data<'a>(role: &'a Key, path: &'a str) -> [&'a str; 4] {
    ["role secret", role.company(), role.id(), path]
}

#[cfg(test)]
mod tests;
