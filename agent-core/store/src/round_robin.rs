//! Round-robin order of the companies' waiting operations.

use std::collections::{HashMap, VecDeque};
use std::iter;
use std::sync::Arc;

/// Minimum number of pushes of a company between two sweeps, which remove operations of cancelled callers.
/// Among many waiting operations it is a quarter of them, so that a push checks four on average, even if it is refused.
const MIN_SWEEP_INTERVAL: usize = 256;

/// An operation whose caller can be cancelled while it waits.
pub(crate) trait Cancellable {
    /// Returns true if the caller still waits for the result.
    fn is_caller_waiting(&self) -> bool;
}

impl<T: Cancellable + ?Sized> Cancellable for Box<T> {
    fn is_caller_waiting(&self) -> bool {
        (**self).is_caller_waiting()
    }
}

/// Round-robin queue of operations: companies alternate, one operation each, and each company's operations are in the order of
/// their arrival. No company has more than its share in progress, so a company with many operations delays another company by at
/// most one operation.
pub(crate) struct RoundRobin<T> {
    /// Maximum number of operations of one company that are in progress.
    share: usize,
    /// Maximum number of operations of one company that wait.
    max_waiting: usize,
    companies: HashMap<Arc<str>, CompanyState<T>>,
    /// Companies with waiting operations and less than their share in progress, next one first.
    ready_companies: VecDeque<Arc<str>>,
}

struct CompanyState<T> {
    name: Arc<str>,
    active: usize,
    waiting: VecDeque<T>,
    /// Number of pushes until the next sweep, which that push makes.
    pushes_until_sweep: usize,
}

impl<T> CompanyState<T> {
    fn new(name: &Arc<str>) -> Self {
        let (active, waiting) = (0, VecDeque::new());
        Self { name: name.clone(), active, waiting, pushes_until_sweep: MIN_SWEEP_INTERVAL }
    }
}

impl<T> RoundRobin<T> {
    /// Creates an empty queue. Both limits are at least one.
    pub(crate) fn new(share: usize, max_waiting: usize) -> Self {
        let (share, max_waiting) = (share.max(1), max_waiting.max(1));
        Self { share, max_waiting, companies: HashMap::new(), ready_companies: VecDeque::new() }
    }

    /// Returns true if a waiting operation can be taken. It is one of a cancelled caller in rare cases.
    #[cfg(feature = "sqlite")]
    pub(crate) fn has_next(&self) -> bool {
        !self.ready_companies.is_empty()
    }

    /// Returns true if a company has operations that wait or are in progress.
    #[cfg(feature = "postgres")]
    pub(crate) fn is_used_by(&self, company: &str) -> bool {
        self.companies.contains_key(company)
    }

    /// Counts an operation as in progress, unless other operations of the company wait or the company has its share in progress.
    #[cfg(feature = "postgres")]
    pub(crate) fn start(&mut self, company: &str) -> Option<Arc<str>> {
        let share = self.share;
        let state = self.state(company);
        let can_start = state.active < share && state.waiting.is_empty();
        state.active += usize::from(can_start);
        can_start.then(|| state.name.clone())
    }

    /// Counts an operation of a company as ended.
    pub(crate) fn finish(&mut self, company: &str) {
        let Some(state) = self.companies.get_mut(company) else { return };
        let was_excluded = state.active >= self.share;
        state.active -= 1;
        if !state.waiting.is_empty() {
            if was_excluded {
                self.ready_companies.push_back(state.name.clone());
            }
        } else if state.active == 0 {
            self.companies.remove(company);
        }
    }

    fn state(&mut self, company: &str) -> &mut CompanyState<T> {
        self.companies.entry(Arc::from(company)).or_insert_with_key(CompanyState::new)
    }

    /// Returns true if nothing is known of any company.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.companies.is_empty() && self.ready_companies.is_empty()
    }
}

impl<T: Cancellable> RoundRobin<T> {
    /// Adds a waiting operation. Returns false, and drops it, if the company has the maximum number of them.
    #[must_use]
    pub(crate) fn push(&mut self, company: &str, operation: T) -> bool {
        let Self { share, max_waiting, .. } = *self;
        let state = self.state(company);
        let was_waiting = !state.waiting.is_empty();
        state.pushes_until_sweep -= 1;
        if state.pushes_until_sweep == 0 {
            state.waiting.retain(T::is_caller_waiting);
            state.pushes_until_sweep = MIN_SWEEP_INTERVAL.max(state.waiting.len() / 4);
        }
        if state.waiting.len() >= max_waiting {
            return false;
        }
        state.waiting.push_back(operation);
        if !was_waiting && state.active < share {
            let name = state.name.clone();
            self.ready_companies.push_back(name);
        }
        true
    }

    /// Takes the next operation whose caller still waits, and counts it as in progress for its company.
    pub(crate) fn take_next(&mut self) -> Option<(Arc<str>, T)> {
        while let Some(company) = self.ready_companies.pop_front() {
            let Some(state) = self.companies.get_mut(&company) else { continue };
            let next = iter::from_fn(|| state.waiting.pop_front()).find(T::is_caller_waiting);
            let Some(operation) = next else {
                if state.active == 0 {
                    self.companies.remove(&company);
                }
                continue;
            };
            state.active += 1;
            if state.active < self.share && !state.waiting.is_empty() {
                self.ready_companies.push_back(company.clone());
            }
            return Some((company, operation));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    #[derive(Clone)]
    struct Operation(u32, Rc<Cell<bool>>);

    impl Cancellable for Operation {
        fn is_caller_waiting(&self) -> bool {
            !self.1.get()
        }
    }

    fn operation(number: u32) -> Operation {
        Operation(number, Rc::default())
    }

    fn push(queue: &mut RoundRobin<Operation>, company: &str, numbers: impl IntoIterator<Item = u32>) {
        for number in numbers {
            assert!(queue.push(company, operation(number)));
        }
    }

    fn take(queue: &mut RoundRobin<Operation>) -> Option<(String, u32)> {
        queue.take_next().map(|(company, operation)| (company.to_string(), operation.0))
    }

    #[test]
    fn companies_alternate_one_operation_each() {
        let mut queue = RoundRobin::new(usize::MAX, usize::MAX);
        push(&mut queue, "large", 0..4);
        push(&mut queue, "small", [10]);
        push(&mut queue, "other", [20, 21]);
        let order: Vec<u32> = std::iter::from_fn(|| take(&mut queue)).map(|(_, number)| number).collect();
        assert_eq!(order, [0, 10, 20, 1, 21, 2, 3]);
        for (company, count) in [("large", 4), ("small", 1), ("other", 2)] {
            (0..count).for_each(|_| queue.finish(company));
        }
        assert!(queue.is_empty(), "idle companies are forgotten");
    }

    #[test]
    fn a_company_has_at_most_its_share_in_progress() {
        let mut queue = RoundRobin::new(2, usize::MAX);
        push(&mut queue, "large", 0..5);
        let taken = [take(&mut queue), take(&mut queue), take(&mut queue)];
        assert!(taken[1].is_some() && taken[2].is_none(), "{taken:?}");
        push(&mut queue, "small", [10]);
        queue.finish("large");
        let taken =
            [take(&mut queue), take(&mut queue), take(&mut queue)].map(|next| next.map(|next| next.1));
        assert_eq!(taken, [Some(10), Some(2), None], "the company that had its share is behind the other");
        queue.finish("small");
        for _ in 0..2 {
            queue.finish("large");
            assert!(take(&mut queue).is_some());
        }
        assert_eq!(take(&mut queue), None);
        (0..2).for_each(|_| queue.finish("large"));
        assert!(queue.is_empty());
    }

    #[test]
    fn operations_of_cancelled_callers_are_skipped_and_swept() {
        const MAX_WAITING: usize = 2 * MIN_SWEEP_INTERVAL;
        let mut queue = RoundRobin::new(1, MAX_WAITING);
        let cancelled = operation(0);
        cancelled.1.set(true);
        for _ in 0..3 * MIN_SWEEP_INTERVAL {
            assert!(queue.push("large", cancelled.clone()));
        }
        assert!(queue.companies["large"].waiting.len() <= MIN_SWEEP_INTERVAL);
        push(&mut queue, "large", [1]);
        assert_eq!(take(&mut queue), Some(("large".to_owned(), 1)));
        let waiting = operation(2);
        for _ in 0..MAX_WAITING {
            assert!(queue.push("large", waiting.clone()));
        }
        assert!((0..MAX_WAITING).all(|_| !queue.push("large", operation(0))), "all callers wait");
        assert!(queue.push("small", operation(0)), "each company has room of its own");
        waiting.1.set(true);
        assert!(
            (0..MIN_SWEEP_INTERVAL).any(|_| queue.push("large", operation(0))),
            "their callers have left"
        );
    }
}
