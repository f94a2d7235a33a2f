//! Waiting operations of companies, which are taken in turn.

use std::collections::{HashMap, VecDeque};
use std::iter;
use std::sync::Arc;

/// Minimum number of pushes of a company between two sweeps, which remove operations of cancelled callers before their turn.
/// Among many waiting operations it is a quarter of them, so that a push checks four on average, even if it is refused.
const MIN_SWEEP_INTERVAL: usize = 256;

/// An operation whose caller can be cancelled while it waits.
pub(crate) trait Waiting {
    /// Returns true if the caller still waits for the result.
    fn is_caller_waiting(&self) -> bool;
}

impl<T: Waiting + ?Sized> Waiting for Box<T> {
    fn is_caller_waiting(&self) -> bool {
        (**self).is_caller_waiting()
    }
}

/// Waiting operations by company, each company's in the order of their arrival. One operation is taken of each company in
/// turn, and no company has more than its share in progress, so that one with many operations delays those of another
/// by one operation at most.
pub(crate) struct CompanyTurns<T> {
    /// Maximum number of operations of one company that are in progress.
    share: usize,
    /// Maximum number of operations of one company that wait.
    max_waiting: usize,
    companies: HashMap<Arc<str>, CompanyState<T>>,
    /// Companies with waiting operations and less than their share in progress, next one first.
    turns: VecDeque<Arc<str>>,
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

impl<T> CompanyTurns<T> {
    /// Creates an empty queue. Both limits are at least one.
    pub(crate) fn new(share: usize, max_waiting: usize) -> Self {
        let (share, max_waiting) = (share.max(1), max_waiting.max(1));
        Self { share, max_waiting, companies: HashMap::new(), turns: VecDeque::new() }
    }

    /// Returns true if a waiting operation can be taken. It is one of a cancelled caller in rare cases.
    #[cfg(feature = "sqlite")]
    pub(crate) fn has_next(&self) -> bool {
        !self.turns.is_empty()
    }

    /// Returns true if a company has operations that wait or are in progress.
    #[cfg(feature = "postgres")]
    pub(crate) fn is_used_by(&self, company: &str) -> bool {
        self.companies.contains_key(company)
    }

    /// Counts an operation of a company as in progress, unless others of it wait or it has its share in progress.
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
                self.turns.push_back(state.name.clone());
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
        self.companies.is_empty() && self.turns.is_empty()
    }
}

impl<T: Waiting> CompanyTurns<T> {
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
            self.turns.push_back(name);
        }
        true
    }

    /// Takes the next operation whose caller still waits, and counts it as in progress for its company.
    pub(crate) fn take_next(&mut self) -> Option<(Arc<str>, T)> {
        while let Some(company) = self.turns.pop_front() {
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
                self.turns.push_back(company.clone());
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

    impl Waiting for Operation {
        fn is_caller_waiting(&self) -> bool {
            !self.1.get()
        }
    }

    fn operation(number: u32) -> Operation {
        Operation(number, Rc::default())
    }

    fn push(turns: &mut CompanyTurns<Operation>, company: &str, numbers: impl IntoIterator<Item = u32>) {
        for number in numbers {
            assert!(turns.push(company, operation(number)));
        }
    }

    fn take(turns: &mut CompanyTurns<Operation>) -> Option<(String, u32)> {
        turns.take_next().map(|(company, operation)| (company.to_string(), operation.0))
    }

    #[test]
    fn one_operation_of_each_company_is_taken_in_turn() {
        let mut turns = CompanyTurns::new(usize::MAX, usize::MAX);
        push(&mut turns, "large", 0..4);
        push(&mut turns, "small", [10]);
        push(&mut turns, "other", [20, 21]);
        let order: Vec<u32> = std::iter::from_fn(|| take(&mut turns)).map(|(_, number)| number).collect();
        assert_eq!(order, [0, 10, 20, 1, 21, 2, 3]);
        for (company, count) in [("large", 4), ("small", 1), ("other", 2)] {
            (0..count).for_each(|_| turns.finish(company));
        }
        assert!(turns.is_empty(), "idle companies are forgotten");
    }

    #[test]
    fn a_company_has_no_more_than_its_share_in_progress() {
        let mut turns = CompanyTurns::new(2, usize::MAX);
        push(&mut turns, "large", 0..5);
        let taken = [take(&mut turns), take(&mut turns), take(&mut turns)];
        assert!(taken[1].is_some() && taken[2].is_none(), "{taken:?}");
        push(&mut turns, "small", [10]);
        turns.finish("large");
        let taken =
            [take(&mut turns), take(&mut turns), take(&mut turns)].map(|next| next.map(|next| next.1));
        assert_eq!(taken, [Some(10), Some(2), None], "the company that had its share is behind the other");
        turns.finish("small");
        for _ in 0..2 {
            turns.finish("large");
            assert!(take(&mut turns).is_some());
        }
        assert_eq!(take(&mut turns), None);
        (0..2).for_each(|_| turns.finish("large"));
        assert!(turns.is_empty());
    }

    #[test]
    fn operations_of_cancelled_callers_take_neither_turns_nor_room() {
        const MAX_WAITING: usize = 2 * MIN_SWEEP_INTERVAL;
        let mut turns = CompanyTurns::new(1, MAX_WAITING);
        let cancelled = operation(0);
        cancelled.1.set(true);
        for _ in 0..3 * MIN_SWEEP_INTERVAL {
            assert!(turns.push("large", cancelled.clone()));
        }
        assert!(turns.companies["large"].waiting.len() <= MIN_SWEEP_INTERVAL);
        push(&mut turns, "large", [1]);
        assert_eq!(take(&mut turns), Some(("large".to_owned(), 1)));
        let waiting = operation(2);
        for _ in 0..MAX_WAITING {
            assert!(turns.push("large", waiting.clone()));
        }
        assert!((0..MAX_WAITING).all(|_| !turns.push("large", operation(0))), "all callers wait");
        assert!(turns.push("small", operation(0)), "each company has room of its own");
        waiting.1.set(true);
        assert!(
            (0..MIN_SWEEP_INTERVAL).any(|_| turns.push("large", operation(0))),
            "their callers have left"
        );
    }
}
