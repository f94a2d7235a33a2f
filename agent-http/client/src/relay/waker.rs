//! Waker that drops wake-ups caused by a task's own poll.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Wake, Waker};

use futures_util::task::AtomicWaker;

/// Waker that a task passes when it polls a resource, such as a connection or a run.
///
/// With the optimization a `CoalescingWaker` is between the two, so that the task is woken by the network only, and
/// does not poll a resource that has not woken it. The plain implementation is the task's own waker.
#[derive(Debug)]
pub struct RelayWaker {
    /// `None` without the optimization.
    coalescing: Option<(Arc<CoalescingWaker>, Waker)>,
}

impl RelayWaker {
    /// Creates the waker of a new resource; `coalescing` selects the optimization.
    pub fn new(coalescing: bool) -> Self {
        let create = || {
            let state = Arc::new(CoalescingWaker::default());
            let waker = Waker::from(state.clone());
            (state, waker)
        };
        Self { coalescing: coalescing.then(create) }
    }

    /// Returns the waker to poll the resource with, in a poll of the task that `task` wakes.
    pub fn waker<'w>(&'w self, task: &'w Waker) -> &'w Waker {
        self.coalescing.as_ref().map_or(task, |(_, waker)| waker)
    }

    /// Marks the beginning of a poll; must be called before the resource is polled.
    pub fn begin_poll(&self) {
        if let Some((state, _)) = &self.coalescing {
            state.begin_poll();
        }
    }

    /// Registers `task` to be woken, once the resource is pending; returns `false` if a wake-up has occurred since the
    /// poll began, which the task has not received: it must poll the resource again.
    #[must_use]
    pub fn register(&self, task: &Waker) -> bool {
        self.coalescing.as_ref().is_none_or(|(state, _)| state.register(task))
    }

    /// Returns true if it is known that polling the resource would be useless: no wake-up has occurred since
    /// [`register`](Self::register). `task` then replaces the registered waker.
    #[must_use]
    pub fn is_asleep(&self, task: &Waker) -> bool {
        self.coalescing.as_ref().is_some_and(|(state, _)| state.is_asleep(task))
    }

    /// Drops the registered waker.
    pub(crate) fn clear(&self) {
        if let Some((state, _)) = &self.coalescing {
            state.clear();
        }
    }
}

/// Waker between a polled resource and its task. It forwards wake-ups to the task, except those that occur while the
/// task polls anyway, and records whether one has occurred since.
#[derive(Debug, Default)]
struct CoalescingWaker {
    task: AtomicWaker,
    state: AtomicU8,
}

/// State: the task polls, or will poll without being woken.
const AWAKE: u8 = 0;
/// State: as `AWAKE`, with a wake-up since the poll began.
const WOKEN: u8 = 1;
/// State: the task waits for a wake-up.
const ASLEEP: u8 = 2;

impl CoalescingWaker {
    fn begin_poll(&self) {
        self.state.store(AWAKE, Ordering::SeqCst);
    }

    fn register(&self, task: &Waker) -> bool {
        if self.state.load(Ordering::SeqCst) == WOKEN {
            return false;
        }
        self.task.register(task);
        self.state.compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    fn is_asleep(&self, task: &Waker) -> bool {
        let asleep = || self.state.load(Ordering::SeqCst) == ASLEEP;
        if !asleep() {
            return false;
        }
        self.task.register(task);
        // A wake-up before the registration went to the previous waker.
        asleep()
    }

    fn clear(&self) {
        self.task.take();
    }
}

impl Wake for CoalescingWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.swap(WOKEN, Ordering::SeqCst) == ASLEEP {
            self.task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn task() -> (Arc<Task>, Waker) {
        let task = Arc::new(Task::default());
        (task.clone(), task.into())
    }

    #[test]
    fn a_task_that_sleeps_is_woken_once_and_one_that_polls_is_not() {
        let (wakes, (task, waker)) = (Arc::new(CoalescingWaker::default()), task());
        let woken = || task.0.load(Ordering::SeqCst);
        let source = Waker::from(wakes.clone());
        wakes.begin_poll();
        source.wake_by_ref();
        assert!(!wakes.register(&waker), "there was a wake while it polled");
        assert_eq!(woken(), 0);
        wakes.begin_poll();
        assert!(wakes.register(&waker) && wakes.is_asleep(&waker));
        source.wake_by_ref();
        source.wake_by_ref();
        assert_eq!(woken(), 1);
        assert!(!wakes.is_asleep(&waker), "it is to poll");
    }

    #[test]
    fn the_task_that_asked_last_is_the_one_that_is_woken() {
        let wakes = Arc::new(CoalescingWaker::default());
        let ((before, first), (after, second)) = (task(), task());
        wakes.begin_poll();
        assert!(wakes.register(&first) && wakes.is_asleep(&second));
        Waker::from(wakes).wake();
        assert_eq!([before, after].map(|task| task.0.load(Ordering::SeqCst)), [0, 1]);
    }
}
