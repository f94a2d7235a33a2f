//! A bounded table with a share for each company.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use agent_core::ids::CompanyId;

/// Limits of a [`CompanyTable`], in entries, or in the unit of the sizes of its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompanyTableLimits {
    /// Entries of all companies.
    pub total: usize,
    /// Entries of one company.
    pub per_company: usize,
}

/// A bounded map with keys that are unique within a company.
///
/// An insertion at a limit evicts the least recently used entries: of the same company if its share is full, or else of
/// the company that has the most. Each counts as one, or as the size that [`insert_sized`](Self::insert_sized) is given. An
/// entry is used by an insertion, by [`use_existing`](Self::use_existing) and by
/// [`use_or_insert_with`](Self::use_or_insert_with).
#[derive(Debug)]
pub struct CompanyTable<K, V> {
    companies: HashMap<CompanyId, CompanyEntries<K, V>>,
    limits: CompanyTableLimits,
    count: usize,
    /// Sum of the sizes of all entries.
    size: usize,
    last_use: u64,
}

#[derive(Debug)]
struct CompanyEntries<K, V> {
    entries: HashMap<K, TableEntry<V>>,
    /// Keys by the last use of their entries, the oldest first.
    order: BTreeMap<u64, K>,
    /// Sum of the sizes of the entries.
    size: usize,
}

#[derive(Debug)]
struct TableEntry<V> {
    value: V,
    size: usize,
    last_use: u64,
}

impl<K, V> Default for CompanyEntries<K, V> {
    fn default() -> Self {
        Self { entries: HashMap::new(), order: BTreeMap::new(), size: 0 }
    }
}

impl<K: Clone + Eq + Hash, V> CompanyTable<K, V> {
    /// Creates an empty table.
    pub fn new(limits: CompanyTableLimits) -> Self {
        Self { companies: HashMap::new(), limits, count: 0, size: 0, last_use: 0 }
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

    /// Returns the value of an entry, which becomes the most recently used one.
    pub fn use_existing<Q>(&mut self, company_id: &CompanyId, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let company = self.companies.get_mut(company_id)?;
        let entry = company.entries.get_mut(key)?;
        let own_key = company.order.remove(&entry.last_use)?;
        self.last_use += 1;
        entry.last_use = self.last_use;
        company.order.insert(self.last_use, own_key);
        Some(&entry.value)
    }

    /// Returns the entries of a company, in any order.
    pub(crate) fn company_mut(&mut self, company_id: &CompanyId) -> impl Iterator<Item = (&K, &mut V)> {
        let company = self.companies.get_mut(company_id);
        company.into_iter().flat_map(|own| &mut own.entries).map(|(key, entry)| (key, &mut entry.value))
    }

    /// Adds or replaces an entry, which becomes the most recently used one.
    pub fn insert(&mut self, company_id: &CompanyId, key: K, value: V) {
        self.insert_sized(company_id, key, value, 1);
    }

    /// Adds or replaces an entry of a size, which becomes the most recently used one. One that is larger than a limit is not
    /// kept.
    pub fn insert_sized(&mut self, company_id: &CompanyId, key: K, value: V, size: usize) {
        self.remove(company_id, &key);
        if size <= self.limits.per_company.min(self.limits.total) {
            self.use_or_insert_sized(company_id, key, size, || value);
        }
    }

    /// Returns the value of an entry, which becomes the most recently used one. An absent entry is added with the value
    /// that `create` returns.
    pub fn use_or_insert_with(
        &mut self,
        company_id: &CompanyId,
        key: K,
        create: impl FnOnce() -> V,
    ) -> &mut V {
        self.use_or_insert_sized(company_id, key, 1, create)
    }

    fn use_or_insert_sized(
        &mut self,
        company_id: &CompanyId,
        key: K,
        size: usize,
        create: impl FnOnce() -> V,
    ) -> &mut V {
        let is_new = self.get(company_id, &key).is_none();
        if is_new {
            self.make_room(company_id, size);
            self.count += 1;
            self.size += size;
        }
        self.last_use += 1;
        let company = self.companies.entry(company_id.clone()).or_default();
        company.size += if is_new { size } else { 0 };
        company.order.insert(self.last_use, key.clone());
        let new = || TableEntry { value: create(), size, last_use: 0 };
        let entry = company.entries.entry(key).or_insert_with(new);
        // No use has the number 0.
        company.order.remove(&std::mem::replace(&mut entry.last_use, self.last_use));
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
        company.size -= removed.size;
        self.count -= 1;
        self.size -= removed.size;
        if company.entries.is_empty() {
            self.companies.remove(company_id);
        }
        Some(removed.value)
    }

    /// Evicts entries until one of a size, of the company, exceeds no limit.
    fn make_room(&mut self, company_id: &CompanyId, size: usize) {
        while let Some(full) = self.full_company(company_id, size) {
            let oldest = self.companies.get(&full).and_then(|company| company.order.values().next().cloned());
            let Some(oldest) = oldest else { return };
            self.remove(&full, &oldest);
        }
    }

    /// Returns the company that has to evict an entry before one of a size is added; `None` if there is room.
    fn full_company(&self, company_id: &CompanyId, size: usize) -> Option<CompanyId> {
        let own = self.companies.get(company_id).map_or(0, |own| own.size);
        if own + size > self.limits.per_company {
            Some(company_id.clone())
        } else if self.size + size > self.limits.total {
            let largest = self.companies.iter().max_by_key(|(_, company)| company.size);
            largest.map(|(largest, _)| largest.clone())
        } else {
            None
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
        assert_eq!(table.size, table.companies.values().map(|company| company.size).sum::<usize>());
        assert!(table.size <= table.limits.total);
        for company in table.companies.values() {
            assert_eq!(company.size, company.entries.values().map(|entry| entry.size).sum::<usize>());
            assert!(!company.entries.is_empty());
            assert_eq!(company.entries.len(), company.order.len());
            for (last_use, key) in &company.order {
                assert_eq!(company.entries[key].last_use, *last_use);
            }
        }
        ["a", "b", "c"].map(|company| {
            let company_values = table.companies.get(company);
            let mut keys: Vec<&str> = company_values
                .into_iter()
                .flat_map(|company_values| company_values.entries.keys().map(String::as_str))
                .collect();
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
        assert_eq!(table.use_existing(&company, "1"), Some(&7));
        assert_eq!(table.use_existing(&company, "2"), None);
        assert_eq!(table.use_existing(&"b".into(), "1"), None);
        insert(&mut table, &[("a", "4")]);
        assert_eq!(keys(&table)[0], ["1", "4"]);
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
    fn sizes_count_in_place_of_numbers() {
        let mut table = table(10, 6);
        let mut add =
            |company: &str, key: &str, size| table.insert_sized(&company.into(), key.to_owned(), 0, size);
        add("a", "1", 2);
        add("a", "2", 2);
        add("b", "1", 5);
        add("a", "2", 3);
        // The share of the company is full, and two entries make room.
        add("a", "3", 4);
        // The table is full: the largest company makes room.
        add("c", "1", 1);
        add("c", "2", 2);
        // It is larger than the share, and replaces only the entry of its key.
        add("c", "2", 7);
        add("b", "2", 7);
        assert_eq!(keys(&table), [vec!["3"], vec![], vec!["1"]]);
        assert_eq!(table.size, 5);
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
