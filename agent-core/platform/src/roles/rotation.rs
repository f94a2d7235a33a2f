//! Rotation of the operator's key: seals the secrets of all roles under the current key.

use crate::records::{
    Collection, List, MAX_PAGE, Precondition, Record, RecordsExt, StoreError, UPDATE_ATTEMPTS, Write, to_json,
};
use crate::roles::RecordRoles;
use crate::roles::records::{AGENTS, Holder, RoleKeys, SealedSecrets};

/// Maximum number of unopened secrets reported one by one; all of them are counted.
const MAX_TOLD: usize = 20;

/// Result of a rotation.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Rotated {
    /// Number of agents.
    pub agents: usize,
    /// Number of secrets sealed under the current key by this rotation.
    pub resealed: usize,
    /// Number of secrets that were under the current key already.
    pub current: usize,
    /// Number of secrets that could not be opened. They are left unchanged.
    pub unopened: usize,
    /// The errors of the first unopened secrets, as reading the role would return them.
    pub faults: Vec<StoreError>,
}

impl Rotated {
    fn add(&mut self, agent: Self) {
        self.resealed += agent.resealed;
        self.current += agent.current;
        self.unopened += agent.unopened;
        let room = MAX_TOLD - self.faults.len();
        self.faults.extend(agent.faults.into_iter().take(room));
    }
}

impl RecordRoles {
    /// Seals all secrets under the current key that are not yet, so that the previous key can be discarded.
    ///
    /// Each agent is one commit, and other processes may read and write meanwhile. After an interruption, start it
    /// again: it skips secrets that are done. The versions of roles do not change.
    ///
    /// # Errors
    /// [`StoreError::NotConfigured`] if there is a secret and no key, and errors of the store. A secret that cannot be
    /// opened is counted instead of failing the rotation.
    pub async fn rotate_secrets(&self) -> Result<Rotated, StoreError> {
        let agents = Collection::of_platform(AGENTS)?;
        let mut list = List { limit: Some(MAX_PAGE), ..List::default() };
        let mut rotated = Rotated::default();
        loop {
            let page = self.records().list_as::<Holder>(&agents, &list).await?;
            for Record { id, value, .. } in page.records {
                rotated.agents += 1;
                rotated.add(self.rotate_agent(&RoleKeys::new(&value.company_id, &id)?).await?);
            }
            if page.next_cursor.is_none() {
                return Ok(rotated);
            }
            list.cursor = page.next_cursor;
        }
    }

    async fn rotate_agent(&self, keys: &RoleKeys) -> Result<Rotated, StoreError> {
        let mut attempt = 1;
        loop {
            let found = self.records().get_as::<SealedSecrets>(&keys.secrets).await?;
            let Some(Record { version, mut value, .. }) = found else { return Ok(Rotated::default()) };
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

    fn reseal(&self, keys: &RoleKeys, secrets: &mut SealedSecrets) -> Result<Rotated, StoreError> {
        let mut rotated = Rotated::default();
        for (path, sealed) in secrets {
            if self.sealer().is_current(sealed) {
                rotated.current += 1;
                continue;
            }
            match self.open(&keys.role, path, Some(sealed)) {
                Ok(secret) => {
                    *sealed = self.seal(&keys.role, path, &secret)?;
                    rotated.resealed += 1;
                }
                Err(fault @ StoreError::Sealed { .. }) => {
                    rotated.unopened += 1;
                    rotated.faults.push(fault);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(rotated)
    }
}

#[cfg(test)]
mod tests;
