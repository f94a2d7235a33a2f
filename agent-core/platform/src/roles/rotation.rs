//! Rotation of the operator's key: seals the secrets of all roles under the current key.

use crate::records::{
    Collection, Inventory, ListQuery, MAX_PAGE_RECORDS, Precondition, Record, RecordsExt, StoreError,
    UPDATE_ATTEMPTS, Write, to_json,
};
use crate::roles::RecordRoleStore;
use crate::roles::records::{ROLES, RoleKeys, SealedSecrets};
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
        let mut after: Option<String> = None;
        loop {
            let companies = inventory.companies(after.as_deref()).await?;
            let Some(last) = companies.last() else { return Ok(rotated) };
            after = Some(last.clone());
            for company in companies.into_iter().filter(|company| !company.is_empty()) {
                self.rotate_company(&company.into(), &mut rotated).await?;
            }
        }
    }

    async fn rotate_company(
        &self,
        company: &CompanyId,
        rotated: &mut RotationReport,
    ) -> Result<(), StoreError> {
        let roles = Collection::new(company, ROLES)?;
        let mut list = ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() };
        loop {
            let page = self.records().list(&roles, &list).await?;
            for Record { id, .. } in page.records {
                rotated.agents += 1;
                rotated.merge(self.rotate_agent(&RoleKeys::new(company, &id.into())?).await?);
            }
            if page.next_cursor.is_none() {
                return Ok(());
            }
            list.cursor = page.next_cursor;
        }
    }

    async fn rotate_agent(&self, keys: &RoleKeys) -> Result<RotationReport, StoreError> {
        let mut attempt = 1;
        loop {
            let found = self.records().get_as::<SealedSecrets>(&keys.secrets).await?;
            let Some(Record { version, mut value, .. }) = found else { return Ok(RotationReport::default()) };
            let rotated = self.reseal(keys, &mut value)?;
            if rotated.resealed == 0 {
                return Ok(rotated);
            }
            let precondition = Precondition::Version(version);
            let write = Write::Put { key: keys.secrets.clone(), value: to_json(&value)?, precondition };
            match self.records().commit(vec![write]).await {
                Ok(_) => return Ok(rotated),
                Err(StoreError::Conflict { .. }) if attempt < UPDATE_ATTEMPTS => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    fn reseal(&self, keys: &RoleKeys, secrets: &mut SealedSecrets) -> Result<RotationReport, StoreError> {
        let mut rotated = RotationReport::default();
        for (path, sealed) in secrets {
            if self.sealer().is_current(sealed) {
                rotated.already_current += 1;
                continue;
            }
            match self.open(&keys.role, path, Some(sealed)) {
                Ok(secret) => {
                    *sealed = self.seal(&keys.role, path, &secret)?;
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
}

#[cfg(test)]
mod tests;
