//! A bounded table with a share for each company.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use agent_core::ids::CompanyId;

/// Maximum numbers of entries of a [`CompanyTable`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompanyTableLimits {
    /// Entries of all companies.
    pub total: usize,
    /// Entries of one company.
    pub per_company: usize,
}

/// A bounded map with keys that are unique within a company.
///
/// An insertion at a limit evicts the least recently used entry: of the same company if its share is full, or else of
/// the company that has the most entries. An entry is used by [`insert`](Self::insert) and
/// [`use_or_insert_with`](Self::use_or_insert_with).
#[derive(Debug)]
pub struct CompanyTable<K, V> {
    companies: HashMap<CompanyId, CompanyEntries<K, V>>,
    limits: CompanyTableLimits,
    count: usize,
    last_use: u64,
}

#[derive(Debug)]
struct CompanyEntries<K, V> {
    entries: HashMap<K, TableEntry<V>>,
    /// Keys by the last use of their entries, the oldest first.
    order: BTreeMap<u64, K>,
}

#[derive(Debug)]
struct TableEntry<V> {
    value: V,
    last_use: u64,
}

impl<K, V> Default for CompanyEntries<K, V> {
    fn default() -> Self {
        Self { entries: HashMap::new(), order: BTreeMap::new() }
    }
}

impl<K: Clone + Eq + Hash, V> CompanyTable<K, V> {
    /// Creates an empty table.
    pub fn new(limits: CompanyTableLimits) -> Self {
        Self { companies: HashMap::new(), limits, count: 0, last_use: 0 }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns true if the table has no entry.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns a value, without effect on the order of eviction.
    pub fn get<Q>(&self, company_id: &CompanyId, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.companies.get(company_id)?.entries.get(key).map(|entry| &entry.value)
    }

    /// Returns a value to be changed, without effect on the order of eviction.
    pub fn get_mut<Q>(&mut self, company_id: &CompanyId, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.companies.get_mut(company_id)?.entries.get_mut(key).map(|entry| &mut entry.value)
    }

    /// Returns the entries of a company, in any order.
    pub fn company_mut(&mut self, company_id: &CompanyId) -> impl Iterator<Item = (&K, &mut V)> {
        let company = self.companies.get_mut(company_id);
        company.into_iter().flat_map(|own| &mut own.entries).map(|(key, entry)| (key, &mut entry.value))
    }

    /// Adds or replaces an entry, which becomes the most recently used one.
    pub fn insert(&mut self, company_id: &CompanyId, key: K, value: V) {
        self.remove(company_id, &key);
        self.use_or_insert_with(company_id, key, || value);
    }

    /// Returns the value of an entry, which becomes the most recently used one. An absent entry is added with the value
    /// that `create` returns.
    pub fn use_or_insert_with(
        &mut self,
        company_id: &CompanyId,
        key: K,
        create: impl FnOnce() -> V,
    ) -> &mut V {
        if self.get(company_id, &key).is_none() {
            self.make_room(company_id);
            self.count += 1;
        }
        self.last_use += 1;
        let CompanyEntries { entries, order } = self.companies.entry(company_id.clone()).or_default();
        order.insert(self.last_use, key.clone());
        let entry = entries.entry(key).or_insert_with(|| TableEntry { value: create(), last_use: 0 });
        // No use has the number 0.
        order.remove(&std::mem::replace(&mut entry.last_use, self.last_use));
        &mut entry.value
    }

    /// Removes an entry and returns its value.
    pub fn remove<Q>(&mut self, company_id: &CompanyId, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let company = self.companies.get_mut(company_id)?;
        let removed = company.entries.remove(key)?;
        company.order.remove(&removed.last_use);
        self.count -= 1;
        if company.entries.is_empty() {
            self.companies.remove(company_id);
        }
        Some(removed.value)
    }

    /// Evicts an entry if another one of the company would exceed a limit.
    fn make_room(&mut self, company_id: &CompanyId) {
        let own = self.companies.get(company_id).map_or(0, |own| own.entries.len());
        let full = if own >= self.limits.per_company {
            Some(company_id.clone())
        } else if self.count >= self.limits.total {
            let largest = self.companies.iter().max_by_key(|(_, company)| company.entries.len());
            largest.map(|(largest, _)| largest.clone())
        } else {
            None
        };
        let Some(full) = full else { return };
        let oldest = self.companies.get(&full).and_then(|company| company.order.values().next().cloned());
        if let Some(oldest) = oldest {
            self.remove(&full, &oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(total: usize, per_company: usize) -> CompanyTable<String, u32> {
        CompanyTable::new(CompanyTableLimits { total, per_company })
    }

    fn insert(table: &mut CompanyTable<String, u32>, entries: &[(&str, &str)]) {
        for (company, key) in entries {
            table.insert(&(*company).into(), (*key).to_owned(), 0);
        }
    }

    /// Returns the keys of the companies `a`, `b` and `c`, and checks that the table's parts agree.
    fn keys(table: &CompanyTable<String, u32>) -> [Vec<&str>; 3] {
        let of_company = |company: &CompanyEntries<String, u32>| company.entries.len();
        assert_eq!(table.len(), table.companies.values().map(of_company).sum::<usize>());
        for company in table.companies.values() {
            assert!(!company.entries.is_empty());
            assert_eq!(company.entries.len(), company.order.len());
            for (last_use, key) in &company.order {
                assert_eq!(company.entries[key].last_use, *last_use);
            }
        }
        ["a", "b", "c"].map(|company| {
            let own = table.companies.get(company);
            let mut keys: Vec<&str> =
                own.into_iter().flat_map(|own| own.entries.keys().map(String::as_str)).collect();
            keys.sort_unstable();
            keys
        })
    }

    #[test]
    fn a_company_evicts_its_own_oldest_entry_at_its_share() {
        let mut table = table(10, 2);
        insert(&mut table, &[("b", "1"), ("a", "1"), ("a", "2"), ("a", "3")]);
        assert_eq!(keys(&table), [vec!["2", "3"], vec!["1"], vec![]]);
    }

    #[test]
    fn a_full_table_evicts_the_oldest_entry_of_the_largest_company() {
        let mut table = table(4, 3);
        insert(&mut table, &[("b", "1"), ("a", "1"), ("a", "2"), ("a", "3"), ("c", "1")]);
        assert_eq!(keys(&table), [vec!["2", "3"], vec!["1"], vec!["1"]]);
    }

    #[test]
    fn a_use_protects_an_entry_and_a_look_does_not() {
        let (mut table, company) = (table(10, 2), "a".into());
        insert(&mut table, &[("a", "1"), ("a", "2")]);
        *table.use_or_insert_with(&company, "1".to_owned(), || unreachable!("it is there")) += 7;
        assert_eq!(table.get(&company, "2"), Some(&0));
        assert_eq!(table.get_mut(&company, "2"), Some(&mut 0));
        insert(&mut table, &[("a", "3")]);
        assert_eq!(keys(&table)[0], ["1", "3"]);
        assert_eq!(table.get(&company, "1"), Some(&7));
    }

    #[test]
    fn a_replaced_entry_is_counted_once_and_becomes_the_newest() {
        let (mut table, company) = (table(2, 2), "a".into());
        insert(&mut table, &[("a", "1"), ("b", "1")]);
        table.insert(&company, "1".to_owned(), 5);
        assert_eq!((table.len(), table.get(&company, "1")), (2, Some(&5)));
        assert_eq!(keys(&table), [vec!["1"], vec!["1"], vec![]]);
    }

    #[test]
    fn equal_keys_of_companies_are_different_entries() {
        let mut table = table(10, 10);
        insert(&mut table, &[("a", "1"), ("b", "1")]);
        for (_, value) in table.company_mut(&"a".into()) {
            *value = 3;
        }
        assert_eq!((table.get(&"a".into(), "1"), table.get(&"b".into(), "1")), (Some(&3), Some(&0)));
        assert_eq!(table.remove(&"a".into(), "1"), Some(3));
        assert_eq!(table.remove(&"a".into(), "1"), None);
        assert_eq!(keys(&table), [vec![], vec!["1"], vec![]]);
        table.remove(&"b".into(), "1");
        assert!(table.is_empty() && table.companies.is_empty());
    }
}
