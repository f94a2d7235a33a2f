//! Permits with a share for each company, and numbers of entries by company.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_core::ids::CompanyId;

/// A number of permits for all companies. One company holds at most its share.
#[derive(Debug)]
pub struct CompanyPermits {
    max_total: usize,
    max_per_company: usize,
    in_use: Mutex<PermitCounts>,
    /// Outer permits; each of these permits holds one of them.
    outer: Option<Arc<CompanyPermits>>,
}

#[derive(Debug, Default)]
struct PermitCounts {
    total: usize,
    /// Numbers by company; those without permits are absent.
    by_company: HashMap<CompanyId, usize>,
}

impl CompanyPermits {
    /// Creates `max_total` permits; a company gets at most `max_per_company`.
    pub fn new(max_total: usize, max_per_company: usize) -> Arc<Self> {
        Arc::new(Self { max_total, max_per_company, in_use: Mutex::default(), outer: None })
    }

    /// Creates permits, each of which also holds one of `outer`, so that several kinds of permits share a limit.
    pub fn within(outer: &Arc<Self>, max_total: usize, max_per_company: usize) -> Arc<Self> {
        let outer = Some(outer.clone());
        Arc::new(Self { max_total, max_per_company, in_use: Mutex::default(), outer })
    }

    /// Acquires a permit; `None` if the company has its share, or all are held.
    pub fn try_acquire(self: &Arc<Self>, company_id: &CompanyId) -> Option<CompanyPermit> {
        self.try_acquire_many(company_id, 1)
    }

    /// Acquires `count` permits at once, which are returned together; `None` if fewer are left for the company. Nothing is held
    /// meanwhile, so that a refusal never takes permits from another caller. A count beyond the share is never acquired.
    pub fn try_acquire_many(self: &Arc<Self>, company_id: &CompanyId, count: usize) -> Option<CompanyPermit> {
        let mut in_use = self.lock();
        let of_company = in_use.by_company.get(company_id).copied().unwrap_or_default();
        let is_left = |in_use: usize, max: usize| max.checked_sub(in_use).is_some_and(|left| count <= left);
        if !is_left(in_use.total, self.max_total) || !is_left(of_company, self.max_per_company) {
            return None;
        }
        // Under the lock: the outer permits never lock those within them.
        let outer = match &self.outer {
            Some(outer) => Some(Box::new(outer.try_acquire_many(company_id, count)?)),
            None => None,
        };
        Some(self.add(&mut in_use, company_id, (count, outer)))
    }

    /// Acquires a permit beyond the share, for work that has been done and can no longer be refused. The company gets no other
    /// permit until it has fewer than its share.
    pub fn acquire_beyond(self: &Arc<Self>, company_id: &CompanyId) -> CompanyPermit {
        let outer = self.outer.as_ref().map(|outer| Box::new(outer.acquire_beyond(company_id)));
        self.add(&mut self.lock(), company_id, (1, outer))
    }

    fn add(
        self: &Arc<Self>,
        in_use: &mut PermitCounts,
        company_id: &CompanyId,
        (count, outer): (usize, Option<Box<CompanyPermit>>),
    ) -> CompanyPermit {
        in_use.total += count;
        if count > 0 {
            *in_use.by_company.entry(company_id.clone()).or_default() += count;
        }
        CompanyPermit { permits: self.clone(), company_id: company_id.clone(), count, _outer: outer }
    }

    /// Returns true if all permits are held.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.lock().total >= self.max_total
    }

    /// Locks the numbers. No code panics while holding the lock, so the data behind a poisoned one is intact.
    fn lock(&self) -> MutexGuard<'_, PermitCounts> {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A permit, or several that were acquired at once, which are returned when this is dropped.
#[derive(Debug)]
pub struct CompanyPermit {
    permits: Arc<CompanyPermits>,
    company_id: CompanyId,
    count: usize,
    _outer: Option<Box<CompanyPermit>>,
}

impl CompanyPermit {
    /// Returns the permits that this one belongs to, and its company.
    pub fn origin(&self) -> (&Arc<CompanyPermits>, &CompanyId) {
        (&self.permits, &self.company_id)
    }
}

impl Drop for CompanyPermit {
    fn drop(&mut self) {
        let mut in_use = self.permits.lock();
        in_use.total -= self.count;
        subtract(&mut in_use.by_company, &self.company_id, self.count);
    }
}

/// Decrements the count of a key, and removes a key without any. Does nothing for a key that is not counted.
pub fn subtract_one<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: &K) {
    subtract(counts, key, 1);
}

fn subtract<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: &K, number: usize) {
    if let Some(count) = counts.get_mut(key) {
        *count -= number;
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

    #[test]
    fn permits_of_several_kinds_have_a_share_together() {
        let all = CompanyPermits::new(usize::MAX, 3);
        let [one, other] = [2, 3].map(|share| CompanyPermits::within(&all, usize::MAX, share));
        let company = CompanyId::from("c");
        let held = [one.try_acquire(&company), one.try_acquire(&company)];
        assert!(held.iter().all(Option::is_some) && one.try_acquire(&company).is_none());
        let third = other.try_acquire(&company).expect("a refused request holds no permit");
        assert!(other.try_acquire(&company).is_none() && other.try_acquire(&"d".into()).is_some());
        let beyond = one.acquire_beyond(&company);
        drop((held, third));
        assert_eq!(all.lock().by_company.get(&company), Some(&1));
        drop(beyond);
        let left = all.lock();
        assert_eq!((left.total, left.by_company.len()), (0, 0));
    }

    #[test]
    fn permits_are_acquired_all_at_once_or_not_at_all() {
        let permits = CompanyPermits::new(10, 6);
        let acquire = |company: &str, count| permits.try_acquire_many(&company.into(), count);
        let six = acquire("one", 6).expect("the share");
        assert!(acquire("one", 1).is_none() && acquire("two", 5).is_none());
        let four = acquire("two", 4).expect("a refused request takes no permit");
        assert!(acquire("three", 1).is_none() && acquire("three", 0).is_some());
        drop((six, four));
        assert!(acquire("one", 7).is_none() && acquire("one", usize::MAX).is_none(), "more than the share");
        let left = permits.lock();
        assert_eq!((left.total, left.by_company.len()), (0, 0));
    }

    #[test]
    fn a_call_that_is_refused_takes_permits_from_no_other() {
        let all = CompanyPermits::new(1_000, 1_000);
        let [full, free] = [0, 1_000].map(|share| CompanyPermits::within(&all, usize::MAX, share));
        // Of the same kind, and of another kind that has a common share with it.
        for (refused, refused_count, other) in [(&all, 1_001, &all), (&full, 1, &free)] {
            let company = CompanyId::from("one");
            std::thread::scope(|scope| {
                let is_refused = || refused.try_acquire_many(&company, refused_count).is_none();
                let refusals = scope.spawn(move || (0..2_000).all(|_| is_refused()));
                assert!((0..2_000).all(|_| other.try_acquire_many(&company, 1_000).is_some()));
                assert!(refusals.join().expect("no panic"));
            });
        }
    }
}
