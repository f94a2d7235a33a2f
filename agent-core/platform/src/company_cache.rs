//! A cache with a share for each company.

use std::borrow::Borrow;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_core::ids::CompanyId;

use crate::company_table::{CompanyTable, CompanyTableLimits};

/// A bounded cache whose keys are unique within a company.
///
/// One company may fill it, as long as no other needs the room. An insertion into a full cache evicts the least recently used
/// entries of the company with the most entries, so that a company with fewer entries loses none to larger companies.
pub(crate) struct CompanyCache<K, V>(Mutex<CompanyTable<K, V>>);

impl<K: Clone + Eq + Hash, V: Clone> CompanyCache<K, V> {
    /// Creates an empty cache with a limit on the sum of its entries' sizes.
    pub(crate) fn new(max_size: usize) -> Self {
        Self(Mutex::new(CompanyTable::new(CompanyTableLimits { total: max_size, per_company: max_size })))
    }

    /// Returns a value, which becomes the most recently used one of its company.
    pub(crate) fn get<Q>(&self, company_id: &CompanyId, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.lock().use_existing(company_id, key).cloned()
    }

    /// Adds or replaces a value. One that is larger than the cache is not kept.
    pub(crate) fn insert(&self, company_id: &CompanyId, key: K, value: V, size: usize) {
        self.lock().insert_sized(company_id, key, value, size);
    }

    /// Removes a value.
    pub(crate) fn remove<Q>(&self, company_id: &CompanyId, key: &Q)
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.lock().remove(company_id, key);
    }

    /// Locks the table. No code panics while holding the lock, so the data behind a poisoned one is intact.
    fn lock(&self) -> MutexGuard<'_, CompanyTable<K, V>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_company_fills_the_cache_without_evicting_others() {
        let cache = CompanyCache::<String, usize>::new(10);
        let [a, b] = ["a", "b"].map(CompanyId::from);
        for number in 0..12 {
            cache.insert(&a, number.to_string(), number, 1);
        }
        let kept = |company: &CompanyId, numbers: std::ops::Range<usize>| {
            numbers.filter(|number| cache.get(company, &number.to_string()) == Some(*number)).count()
        };
        assert_eq!((kept(&a, 0..2), kept(&a, 2..12)), (0, 10));
        cache.insert(&b, "0".to_owned(), 0, 4);
        for number in 100..200 {
            cache.insert(&a, number.to_string(), number, 1);
        }
        assert_eq!((kept(&b, 0..1), kept(&a, 194..200), kept(&a, 100..194)), (1, 6, 0));
        cache.insert(&b, "large".to_owned(), 1, 11);
        cache.remove(&b, "0");
        assert_eq!((cache.get(&b, "large"), cache.get(&b, "0")), (None, None));
    }

    #[test]
    fn recently_used_entries_are_kept() {
        let (cache, company) = (CompanyCache::<&str, u8>::new(2), CompanyId::from("a"));
        cache.insert(&company, "first", 1, 1);
        cache.insert(&company, "second", 2, 1);
        assert_eq!(cache.get(&company, "first"), Some(1));
        cache.insert(&company, "third", 3, 1);
        assert_eq!(
            ["first", "second", "third"].map(|key| cache.get(&company, key)),
            [Some(1), None, Some(3)]
        );
    }
}
