//! Permits of which a company gets a share, and numbers of entries by company.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_core::ids::CompanyId;

/// A number of permits for all companies, of which one company holds a share at most.
#[derive(Debug)]
pub struct CompanyPermits {
    max_total: usize,
    max_per_company: usize,
    held: Mutex<HeldPermits>,
}

#[derive(Debug, Default)]
struct HeldPermits {
    total: usize,
    /// Numbers by company; those without permits are absent.
    by_company: HashMap<CompanyId, usize>,
}

impl CompanyPermits {
    /// Creates `max_total` permits, of which a company gets `max_per_company`.
    pub fn new(max_total: usize, max_per_company: usize) -> Arc<Self> {
        Arc::new(Self { max_total, max_per_company, held: Mutex::default() })
    }

    /// Acquires a permit; `None` if the company has its share, or all are held.
    pub fn try_acquire(self: &Arc<Self>, company_id: &CompanyId) -> Option<CompanyPermit> {
        let mut held = self.lock();
        let of_company = held.by_company.get(company_id).copied().unwrap_or_default();
        if held.total >= self.max_total || of_company >= self.max_per_company {
            return None;
        }
        Some(self.add(&mut held, company_id))
    }

    /// Acquires a permit beyond the share, for work that is done and cannot be refused any more. The company gets no other
    /// permit until it has fewer than its share.
    pub fn acquire_beyond(self: &Arc<Self>, company_id: &CompanyId) -> CompanyPermit {
        self.add(&mut self.lock(), company_id)
    }

    fn add(self: &Arc<Self>, held: &mut HeldPermits, company_id: &CompanyId) -> CompanyPermit {
        held.total += 1;
        *held.by_company.entry(company_id.clone()).or_default() += 1;
        CompanyPermit { permits: self.clone(), company_id: company_id.clone() }
    }

    /// Returns true if all permits are held.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.lock().total >= self.max_total
    }

    /// Locks the numbers. No code panics while holding the lock, so the data behind a poisoned one is intact.
    fn lock(&self) -> MutexGuard<'_, HeldPermits> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A permit, which is returned when it is dropped.
#[derive(Debug)]
pub struct CompanyPermit {
    permits: Arc<CompanyPermits>,
    company_id: CompanyId,
}

impl CompanyPermit {
    /// Returns the permits of which this is one, and its company.
    pub fn origin(&self) -> (&Arc<CompanyPermits>, &CompanyId) {
        (&self.permits, &self.company_id)
    }
}

impl Drop for CompanyPermit {
    fn drop(&mut self) {
        let mut held = self.permits.lock();
        held.total -= 1;
        subtract_one(&mut held.by_company, &self.company_id);
    }
}

/// Decrements the count of a key, and removes a key without any. Does nothing for a key that is not counted.
pub fn subtract_one<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_company_has_a_share() {
        let permits = CompanyPermits::new(7, 3);
        let acquire = |company: &str| permits.try_acquire(&company.into());
        let mut held: Vec<_> = std::iter::from_fn(|| acquire("one")).collect();
        assert_eq!(held.len(), 3);
        for company in ["two", "three"] {
            held.extend(std::iter::from_fn(|| acquire(company)));
        }
        assert_eq!(held.len(), 7);
        assert!(acquire("four").is_none() && permits.is_exhausted(), "all are held");
        held.truncate(2);
        assert!(!permits.is_exhausted());
        assert!(acquire("one").is_some() && acquire("four").is_some());
        held.clear();
        held.extend((0..4).map(|_| permits.acquire_beyond(&"one".into())));
        assert!(acquire("one").is_none() && acquire("two").is_some());
        held.truncate(2);
        assert!(acquire("one").is_some(), "fewer than its share are held");
        held.clear();
        let left = permits.lock();
        assert_eq!((left.total, left.by_company.len()), (0, 0));
    }
}
