//! The suites on this crate's own implementations, and on broken ones, which they must find out.

mod budgets;
mod conversations;
mod core_traits;
mod pulse;
mod summaries;
mod usage;

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};

use agent_core::ids::{AgentId, CompanyId};
use agent_core::role::{Container, RoleBlock, RoleSource, WebhookAuth, WorkflowConnector};
use agent_core::secret::Secret;
use async_trait::async_trait;
use futures_util::FutureExt;
use serde_json::Value;
use serde_json::value::to_raw_value;

use super::*;
use crate::memory::MemoryRecords;
use crate::records::{
    Collection, Inventory, Key, ListQuery, MAX_ID_BYTES, MAX_PAGE_RECORDS, MAX_VALUE_BYTES, Page,
    Precondition, Record, Records, RecordsWrapper, StoreError, Write,
};
use crate::roles::{RecordRoleStore, RoleStore};

#[tokio::test]
async fn the_store_in_memory_conforms() {
    records(async || Arc::new(MemoryRecords::default()) as _).await;
    inventory(async || Arc::new(MemoryRecords::default()) as _).await;
}

#[test]
fn services_can_be_held_by_types_that_derive_debug() {
    fn check<T: std::fmt::Debug>() {}
    check::<MemoryRecords>();
    check::<crate::local_pulse::LocalPulse>();
    check::<crate::retrieval::RetrieverConfig>();
    check::<crate::retrieval::IndexRetriever>();
    check::<crate::retrieval::RerankedRetriever>();
    check::<crate::usage::Budgets>();
    check::<crate::usage::UsageRecorder>();
}

#[tokio::test]
async fn uploaded_documents_conform() {
    documents(async || Arc::new(MemoryRecords::default()) as _).await;
}

#[tokio::test]
async fn files_of_users_conform() {
    files(async || Arc::new(MemoryRecords::default()) as _).await;
}

#[tokio::test]
async fn roles_in_records_conform() {
    role_store(async || Arc::new(RecordRoleStore::in_memory()) as _).await;
}

#[tokio::test]
async fn approval_floors_in_records_conform() {
    approval_floors(async || Arc::new(MemoryRecords::default()) as _).await;
}

#[tokio::test]
async fn providers_in_records_conform() {
    providers(async || Arc::new(MemoryRecords::default()) as _).await;
}

/// Runs a suite that must panic, and returns its message.
async fn complaint(suite: impl Future<Output = ()>) -> String {
    let panic = AssertUnwindSafe(suite).catch_unwind().await.expect_err("the suite finds the fault");
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast_ref::<&str>().copied().unwrap_or_default().to_owned(),
    }
}

/// A store that lists the platform as one of the companies.
struct PlatformAmongCompanies(MemoryRecords);

impl RecordsWrapper for PlatformAmongCompanies {
    fn inner(&self) -> &dyn Records {
        &self.0
    }
}

#[async_trait]
impl Inventory for PlatformAmongCompanies {
    async fn companies(&self, after: Option<&str>) -> Result<Vec<String>, StoreError> {
        let mut companies = self.0.companies(after).await?;
        if after.is_none() && !companies.is_empty() {
            companies.insert(0, String::new());
            companies.truncate(MAX_PAGE_RECORDS);
        }
        Ok(companies)
    }

    async fn collections(&self, company: &str, after: Option<&str>) -> Result<Vec<Collection>, StoreError> {
        self.0.collections(company, after).await
    }
}

#[tokio::test]
async fn an_inventory_that_lists_the_platform_is_detected() {
    let suite = inventory(async || Arc::new(PlatformAmongCompanies(MemoryRecords::default())) as _);
    let message = complaint(suite).await;
    assert!(message.contains("belong to no listed company"), "{message}");
}

#[derive(Debug, Clone, Copy)]
enum Defect {
    ForgetsTheTenant,
    IgnoresPreconditions,
    RepeatsVersions,
    NormalisesValues,
    TakesAnySize,
    FoldsCase,
    SkipsAtThePageBreak,
    ForgetsTheOrder,
    CommitsOneByOne,
    ForgetsTheKeys,
}

struct Defective {
    inner: MemoryRecords,
    defect: Defect,
}

impl Defective {
    fn collection(&self, collection: &Collection) -> Collection {
        match self.defect {
            Defect::ForgetsTheTenant => Collection::new("one", collection.path()).expect("a collection"),
            _ => collection.clone(),
        }
    }

    fn key(&self, key: &Key) -> Key {
        let id = match self.defect {
            Defect::FoldsCase => key.id().to_lowercase(),
            _ => key.id().to_owned(),
        };
        self.collection(key.collection()).key(id).expect("a key")
    }

    fn version(&self, version: u64) -> u64 {
        if matches!(self.defect, Defect::RepeatsVersions) { 1 } else { version }
    }

    fn precondition(&self, precondition: Precondition) -> Precondition {
        match (self.defect, precondition) {
            (Defect::IgnoresPreconditions, _) => Precondition::Any,
            (Defect::RepeatsVersions, Precondition::Version(_)) => Precondition::Any,
            (_, precondition) => precondition,
        }
    }
}

impl Defective {
    fn write(&self, write: Write) -> Write {
        let (key, precondition) = (self.key(write.key()), self.precondition(write.precondition()));
        match write {
            Write::Delete { .. } => Write::Delete { key, precondition },
            Write::Check { .. } => Write::Check { key, precondition },
            Write::Increment { limit, .. } => Write::Increment { key, limit },
            Write::Put { value, .. } => {
                let value = match self.defect {
                    Defect::NormalisesValues => {
                        let value: Value = serde_json::from_str(value.get()).expect("JSON");
                        to_raw_value(&value).expect("JSON").into()
                    }
                    _ => value,
                };
                Write::Put { key, value, precondition }
            }
        }
    }
}

#[async_trait]
impl Records for Defective {
    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        let inner: Vec<Key> = keys.iter().map(|key| self.key(key)).collect();
        let mut found = self.inner.get_many(&inner).await?;
        for (record, key) in found.iter_mut().zip(keys) {
            if let Some(record) = record {
                record.id = key.id().to_owned();
                record.version = self.version(record.version);
            }
        }
        if matches!(self.defect, Defect::ForgetsTheKeys) {
            found.retain(Option::is_some);
        }
        Ok(found)
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Vec<Option<u64>>, StoreError> {
        let writes: Vec<Write> = writes.into_iter().map(|write| self.write(write)).collect();
        let done = match self.defect {
            Defect::CommitsOneByOne => {
                let mut done = Vec::new();
                for write in writes {
                    done.extend(self.inner.commit(vec![write]).await?);
                }
                done
            }
            _ => self.inner.commit(writes).await?,
        };
        Ok(done.into_iter().map(|version| version.map(|version| self.version(version))).collect())
    }

    async fn list(&self, collection: &Collection, list: &ListQuery) -> Result<Page, StoreError> {
        let mut page = self.inner.list(&self.collection(collection), list).await?;
        match self.defect {
            Defect::SkipsAtThePageBreak if list.cursor.is_some() && !page.records.is_empty() => {
                page.records.remove(0);
            }
            Defect::ForgetsTheOrder => page.records.reverse(),
            _ => {}
        }
        Ok(page)
    }
}

#[tokio::test]
async fn a_defective_store_is_detected() {
    for (defect, expected) in [
        (Defect::ForgetsTheTenant, "another company's record is absent"),
        (Defect::IgnoresPreconditions, "writing a version of an absent record"),
        (Defect::RepeatsVersions, "versions grow"),
        (Defect::NormalisesValues, "as the text that was put"),
        (Defect::TakesAnySize, "is refused as too large"),
        (Defect::FoldsCase, "ids that differ in case differ"),
        (Defect::SkipsAtThePageBreak, "in pages of Some(1)"),
        (Defect::ForgetsTheOrder, "a list is in the order of the ids' bytes"),
        (Defect::CommitsOneByOne, "a refused commit creates no record"),
        (Defect::ForgetsTheKeys, "records come in the order of the keys"),
    ] {
        let make = async || {
            let limit = if matches!(defect, Defect::TakesAnySize) { usize::MAX } else { MAX_VALUE_BYTES };
            let inner = MemoryRecords::default().with_limits(limit, usize::MAX);
            Arc::new(Defective { inner, defect }) as Arc<dyn Records>
        };
        let complaint = complaint(records(make)).await;
        assert!(complaint.contains(expected), "{defect:?}: {complaint}");
    }
}

#[derive(Debug, Clone, Copy)]
enum RoleDefect {
    ForgetsTheTenant,
    LosesSecrets,
    ForgetsMasks,
    FollowsAddresses,
    ShowsSecrets,
    IgnoresPreconditions,
    KeepsWhatItRead,
    DeletesNothing,
    TakesLongIds,
    ListsOnePage,
}

/// A role store with a defect.
struct DefectiveRoles {
    inner: RecordRoleStore,
    defect: RoleDefect,
    read: Mutex<HashMap<(CompanyId, AgentId), Arc<RoleBlock>>>,
}

fn webhook(children: &mut [Container]) -> Option<&mut WorkflowConnector> {
    children.iter_mut().find_map(|child| match child {
        Container::WorkflowConnector(workflow) => Some(&mut **workflow),
        _ => None,
    })
}

fn is_masked(auth: &WebhookAuth) -> bool {
    matches!(auth, WebhookAuth::Basic { password: Some(password), .. } if password.is_mask())
}

impl DefectiveRoles {
    fn precondition(&self, precondition: Precondition) -> Precondition {
        match self.defect {
            RoleDefect::IgnoresPreconditions => Precondition::Any,
            _ => precondition,
        }
    }
}

#[async_trait]
impl RoleSource for DefectiveRoles {
    async fn role(
        &self,
        company_id: &CompanyId,
        agent_id: &AgentId,
    ) -> Result<Option<Arc<RoleBlock>>, StoreError> {
        let tenant = CompanyId::from("company");
        let company_id = match self.defect {
            RoleDefect::ForgetsTheTenant => &tenant,
            _ => company_id,
        };
        let key = (company_id.to_owned(), agent_id.to_owned());
        if matches!(self.defect, RoleDefect::KeepsWhatItRead)
            && let Some(role) = self.read.lock().expect("unpoisoned").get(&key)
        {
            return Ok(Some(role.clone()));
        }
        let role = self.inner.role(company_id, agent_id).await?;
        self.read.lock().expect("unpoisoned").extend(role.clone().map(|role| (key, role)));
        Ok(role)
    }
}

#[async_trait]
impl RoleStore for DefectiveRoles {
    async fn masked_role(
        &self,
        company_id: &CompanyId,
        agent_id: &AgentId,
    ) -> Result<Option<Record<RoleBlock>>, StoreError> {
        let mut record = self.inner.masked_role(company_id, agent_id).await?;
        if let (RoleDefect::ShowsSecrets, Some(record)) = (self.defect, &mut record) {
            let role = self.inner.role(company_id, agent_id).await?;
            record.value = role.map(|role| (*role).clone()).unwrap_or_default();
        }
        Ok(record)
    }

    async fn masked_roles(
        &self,
        company_id: &CompanyId,
        list: &ListQuery,
    ) -> Result<Page<RoleBlock>, StoreError> {
        let page = self.inner.masked_roles(company_id, list).await?;
        Ok(match self.defect {
            RoleDefect::ListsOnePage => Page { next_cursor: None, ..page },
            _ => page,
        })
    }

    async fn put_role(&self, mut role: RoleBlock, precondition: Precondition) -> Result<u64, StoreError> {
        match self.defect {
            RoleDefect::LosesSecrets => {
                let shown = serde_json::to_value(&role).expect("JSON");
                role = serde_json::from_value(shown).expect("a role");
            }
            RoleDefect::ForgetsMasks if role.content.messenger_token == Some(Secret::mask()) => {
                role.content.messenger_token = Some(Secret::new(""));
            }
            RoleDefect::FollowsAddresses => {
                let before = self.inner.role(&role.company_id, &role.id).await?;
                let held = before.and_then(|before| webhook(&mut before.children.clone())?.auth.take());
                if let Some(workflow) = webhook(&mut role.children)
                    && workflow.auth.as_ref().is_some_and(is_masked)
                {
                    workflow.auth = held;
                }
            }
            RoleDefect::TakesLongIds if role.id.len() > MAX_ID_BYTES => {
                role.id = role.id[..MAX_ID_BYTES].into()
            }
            _ => {}
        }
        self.inner.put_role(role, self.precondition(precondition)).await
    }

    async fn delete_role(
        &self,
        company_id: &CompanyId,
        agent_id: &AgentId,
        precondition: Precondition,
    ) -> Result<bool, StoreError> {
        if matches!(self.defect, RoleDefect::DeletesNothing) {
            let found = self.inner.masked_role(company_id, agent_id).await?.map(|record| record.version);
            return precondition.check(found).map(|()| found.is_some());
        }
        self.inner.delete_role(company_id, agent_id, self.precondition(precondition)).await
    }
}

#[tokio::test]
async fn a_defective_role_store_is_detected() {
    for (defect, expected) in [
        (RoleDefect::ForgetsTheTenant, "another company's role is absent"),
        (RoleDefect::LosesSecrets, "secrets are returned as they were saved"),
        (RoleDefect::ForgetsMasks, "masked secrets stay as they are"),
        (RoleDefect::FollowsAddresses, "a changed address clears its secret"),
        (RoleDefect::ShowsSecrets, "a masked role holds no secret"),
        (RoleDefect::IgnoresPreconditions, "writing a version of an absent record conflicts with"),
        (RoleDefect::KeepsWhatItRead, "a replaced role keeps only its secrets"),
        (RoleDefect::DeletesNothing, "deleting a version of an absent record"),
        (RoleDefect::TakesLongIds, "in the company \"company\" is invalid"),
        (RoleDefect::ListsOnePage, "roles are listed by the bytes of their ids"),
    ] {
        let make = async || {
            let inner = RecordRoleStore::in_memory();
            Arc::new(DefectiveRoles { inner, defect, read: Mutex::default() }) as Arc<dyn RoleStore>
        };
        let complaint = complaint(role_store(make)).await;
        assert!(complaint.contains(expected), "{defect:?}: {complaint}");
    }
}
