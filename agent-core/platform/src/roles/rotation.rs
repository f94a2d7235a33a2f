//! Sealing all secrets of roles anew after the operator's key has changed.

use crate::records::{
    Collection, List, MAX_PAGE, Precondition, Record, RecordsExt, StoreError, UPDATE_ATTEMPTS, Write, to_json,
};
use crate::roles::RecordRoles;
use crate::roles::records::{AGENTS, Holder, RoleKeys, SealedSecrets};

/// How many secrets that could not be opened are told apart; all are counted.
const MAX_TOLD: usize = 20;

/// What a rotation did.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Rotated {
    /// How many agents there are.
    pub agents: usize,
    /// How many secrets have been sealed anew.
    pub resealed: usize,
    /// How many secrets were under the current key already.
    pub current: usize,
    /// How many secrets could not be opened. They stay as they are.
    pub unopened: usize,
    /// The first of those, each as the error that reading its role gives.
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
    /// Seals everything under the current key that is not, so that the previous one can be forgotten.
    ///
    /// It goes from agent to agent, each a commit of its own, while others read and write. After an
    /// interruption it is begun again and finds what is left. A role's version stays as it is.
    ///
    /// # Errors
    /// [`StoreError::NotConfigured`] where there is a secret and no key, and the store's own troubles.
    /// What cannot be opened is no error but counted.
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
