//! Companies of credentials that this process has verified.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_core::ids::CompanyId;

use crate::records::Key;

/// Maximum number of credentials; a further one replaces any other.
const MAX_CREDENTIALS: usize = 10_000;

/// Companies of credentials by the credentials' ids. A credential is looked up before its company is known; from the second
/// time on the store counts this for the company, so that a company with many requests delays no other's.
#[derive(Debug)]
pub(crate) struct KnownCompanies<K>(Mutex<HashMap<K, CompanyId>>);

impl<K> Default for KnownCompanies<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash> KnownCompanies<K> {
    /// Returns the key of a credential's record, counted for the credential's company if that is known.
    pub(crate) fn counted(&self, id: &K, key: Key) -> Key {
        match self.lock().get(id) {
            Some(company_id) => key.counted_for(company_id),
            None => key,
        }
    }

    /// Records the company of a verified credential.
    pub(crate) fn record(&self, id: K, company_id: &CompanyId) {
        let mut known = self.lock();
        if known.get(&id) == Some(company_id) {
            return;
        }
        if known.len() >= MAX_CREDENTIALS
            && let Some(other) = known.keys().next().cloned()
        {
            known.remove(&other);
        }
        known.insert(id, company_id.clone());
    }

    /// Locks the map. No code panics while holding the lock, so the data behind a poisoned one is intact.
    fn lock(&self) -> MutexGuard<'_, HashMap<K, CompanyId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limited_number_of_entries_is_kept() {
        let known = KnownCompanies::default();
        let is_known = |id: usize| {
            let key = Key::new("c", "tokens", "1").expect("a key");
            known.counted(&id, key).collection().counted_company().is_some()
        };
        for id in 0..=MAX_CREDENTIALS {
            known.record(id, &"acme".into());
            assert!(is_known(id));
        }
        assert_eq!((0..=MAX_CREDENTIALS).filter(|id| is_known(*id)).count(), MAX_CREDENTIALS);
    }
}
