//! Rotation of the operator's key: seals the secrets of roles and of other records under the current key.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::records::{
    Collection, Inventory, Key, ListQuery, MAX_PAGE_RECORDS, Precondition, Record, RecordsExt, StoreError,
    UpdateAttempts,
};
use crate::roles::RecordRoleStore;
use crate::roles::records::{ROLES, RoleKeys, SealedSecrets};
use crate::seal::Sealer;
use agent_core::ids::CompanyId;

/// Maximum number of unopened secrets reported one by one; all of them are counted.
const MAX_REPORTED_ERRORS: usize = 20;

/// Result of a rotation.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct RotationReport {
    /// Number of agents.
    pub agents: usize,
    /// Number of secrets sealed under the current key by this rotation.
    pub resealed: usize,
    /// Number of secrets that were under the current key already.
    pub already_current: usize,
    /// Number of secrets that could not be opened. They are left unchanged.
    pub unopened: usize,
    /// The errors of the first unopened secrets, as reading the role would return them.
    pub errors: Vec<StoreError>,
}

impl RotationReport {
    /// Adds the secrets of one record.
    pub(crate) fn merge(&mut self, record: Self) {
        self.resealed += record.resealed;
        self.already_current += record.already_current;
        self.unopened += record.unopened;
        let room = MAX_REPORTED_ERRORS - self.errors.len();
        self.errors.extend(record.errors.into_iter().take(room));
    }
}

impl RecordRoleStore {
    /// Seals all secrets under the current key that are not yet, so that the previous key can be discarded. `inventory`
    /// lists the companies of the same store.
    ///
    /// Each agent is one commit, and other processes may read and write meanwhile. After an interruption, start it
    /// again: it skips secrets that are done. The versions of roles do not change.
    ///
    /// # Errors
    /// [`StoreError::NotConfigured`] if there is a secret and no key, and errors of the store. A secret that cannot be
    /// opened is counted instead of failing the rotation.
    pub async fn rotate_secrets(&self, inventory: &dyn Inventory) -> Result<RotationReport, StoreError> {
        let mut rotated = RotationReport::default();
        rotated.agents = rotate(inventory, self, &mut rotated).await?;
        Ok(rotated)
    }
}

impl SealedRecords for RecordRoleStore {
    type Value = SealedSecrets;
    const OWNERS: &'static str = ROLES;

    fn key(&self, company_id: &CompanyId, owner: &str) -> Result<Key, StoreError> {
        Ok(RoleKeys::new(company_id, &owner.into())?.secrets)
    }

    fn reseal(
        &self,
        company_id: &CompanyId,
        owner: &str,
        secrets: &mut SealedSecrets,
    ) -> Result<RotationReport, StoreError> {
        let RoleKeys { role, .. } = RoleKeys::new(company_id, &owner.into())?;
        reseal_fields(
            self.sealer(),
            secrets.iter_mut().map(|(path, sealed)| (&**path, sealed)),
            |path, sealed| self.seal(&role, path, &self.open(&role, path, Some(sealed))?),
        )
    }
}

/// Records with sealed secrets, each of an owner.
pub(crate) trait SealedRecords: Sync {
    /// Value of a record.
    type Value: Serialize + DeserializeOwned + Send + Sync;
    /// Path of the collection whose ids are the owners.
    const OWNERS: &'static str;

    /// Returns the key of the record with the secrets of an owner.
    fn key(&self, company_id: &CompanyId, owner: &str) -> Result<Key, StoreError>;

    /// Seals the secrets of a record that are not under the current key; see [`reseal_fields`].
    fn reseal(
        &self,
        company_id: &CompanyId,
        owner: &str,
        value: &mut Self::Value,
    ) -> Result<RotationReport, StoreError>;
}

/// Seals the secrets of all companies' records under the current key, one commit a record, and adds them to `report`.
/// Returns the number of owners.
pub(crate) async fn rotate<S: SealedRecords>(
    inventory: &dyn Inventory,
    secrets: &S,
    report: &mut RotationReport,
) -> Result<usize, StoreError> {
    let (mut owners, mut after) = (0, None::<String>);
    loop {
        let companies = inventory.companies(after.as_deref()).await?;
        let Some(last) = companies.last() else { return Ok(owners) };
        after = Some(last.clone());
        for company in companies.into_iter().filter(|company| !company.is_empty()) {
            owners += rotate_company(inventory, secrets, &company.into(), report).await?;
        }
    }
}

async fn rotate_company<S: SealedRecords>(
    inventory: &dyn Inventory,
    secrets: &S,
    company_id: &CompanyId,
    report: &mut RotationReport,
) -> Result<usize, StoreError> {
    let collection = Collection::new(company_id, S::OWNERS)?;
    let mut list = ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() };
    let mut owners = 0;
    loop {
        let page = inventory.list(&collection, &list).await?;
        for Record { id, .. } in page.records {
            owners += 1;
            report.merge(rotate_record(inventory, secrets, company_id, &id).await?);
        }
        if page.next_cursor.is_none() {
            return Ok(owners);
        }
        list.cursor = page.next_cursor;
    }
}

async fn rotate_record<S: SealedRecords>(
    inventory: &dyn Inventory,
    secrets: &S,
    company_id: &CompanyId,
    owner: &str,
) -> Result<RotationReport, StoreError> {
    let key = secrets.key(company_id, owner)?;
    let mut attempts = UpdateAttempts::new(inventory, &key);
    loop {
        let stored_record = inventory.get_as::<S::Value>(&key).await?;
        let Some(Record { version, mut value, .. }) = stored_record else {
            return Ok(RotationReport::default());
        };
        let rotated = secrets.reseal(company_id, owner, &mut value)?;
        if rotated.resealed == 0 {
            return Ok(rotated);
        }
        match inventory.put_as(&key, &value, Precondition::Version(version)).await {
            Ok(_) => return Ok(rotated),
            Err(error) => attempts.retry(error).await?,
        }
    }
}

/// Seals the named fields that are not under the current key. `reseal` opens a sealed text and seals it again.
pub(crate) fn reseal_fields<'f>(
    sealer: &Sealer,
    fields: impl IntoIterator<Item = (&'f str, &'f mut String)>,
    reseal: impl Fn(&str, &String) -> Result<String, StoreError>,
) -> Result<RotationReport, StoreError> {
    let mut rotated = RotationReport::default();
    for (name, sealed) in fields {
        if sealer.is_current(sealed) {
            rotated.already_current += 1;
            continue;
        }
        match reseal(name, sealed) {
            Ok(resealed) => {
                *sealed = resealed;
                rotated.resealed += 1;
            }
            Err(fault @ StoreError::UnreadableSecret { .. }) => {
                rotated.unopened += 1;
                rotated.errors.push(fault);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(rotated)
}

#[cfg(test)]
mod tests;
