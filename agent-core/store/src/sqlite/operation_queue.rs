//! Queue of operations from tasks to threads, served round-robin by company.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};

use super::error::SqliteError;
use crate::round_robin::{Cancellable, RoundRobin};

/// Maximum number of operations of one company that wait. Each has a separate caller, such as a run, so that only a process
/// with more connections than can be served reaches it.
const MAX_WAITING_PER_COMPANY: usize = 65_536;

/// Sending end of the queue.
pub(super) struct OperationQueue<T>(Arc<SharedQueue<T>>);

/// Receiving end of the queue, for one thread. When it is dropped, other threads receive the operations of its company; the drop of the last
/// one closes the queue and drops the operations in it, so that no caller waits for a thread that has ended.
pub(super) struct OperationReceiver<T> {
    shared: Arc<SharedQueue<T>>,
    /// Company of the operation that this end has received last.
    current: Option<Arc<str>>,
    /// True while the thread polls.
    is_polling: bool,
}

struct SharedQueue<T> {
    state: Mutex<QueueState<T>>,
    /// True while an operation can be taken, for threads that poll.
    has_next: AtomicBool,
}

struct QueueState<T> {
    operations: RoundRobin<T>,
    /// Number of receiving ends.
    receivers: usize,
    /// Threads that wait and have not been woken, in the order in which they began to wait. The last one is woken first, so
    /// that reads that follow one another meet the same thread: it polls for the next one, and its connection has the pages.
    sleeping: Vec<Thread>,
    /// Number of threads that poll. While there are any, no other thread is woken: it would take a processor from them.
    polling: usize,
    is_closed: bool,
}

impl<T: Cancellable> OperationQueue<T> {
    /// Creates a queue. At most `share` operations of one company are in progress.
    pub(super) fn new(share: usize) -> Self {
        let operations = RoundRobin::new(share, MAX_WAITING_PER_COMPANY);
        let state =
            QueueState { operations, receivers: 0, sleeping: Vec::new(), polling: 0, is_closed: false };
        Self(Arc::new(SharedQueue { state: Mutex::new(state), has_next: AtomicBool::new(false) }))
    }

    /// Creates a receiving end.
    pub(super) fn receiver(&self) -> OperationReceiver<T> {
        self.0.lock().receivers += 1;
        OperationReceiver { shared: Arc::clone(&self.0), current: None, is_polling: false }
    }

    /// Adds an operation. Returns true if a thread polls for it, and so has not to be woken.
    ///
    /// # Errors
    /// The queue is closed, or too many operations of the company wait. The operation is dropped.
    pub(super) fn send(&self, company: &str, operation: T) -> Result<bool, SqliteError> {
        let mut state = self.0.lock();
        if state.is_closed {
            return Err(SqliteError::closed());
        }
        let is_queued = state.operations.push(company, operation);
        let is_polled = state.polling > 0;
        self.0.wake_next(state);
        if is_queued { Ok(is_polled) } else { Err(SqliteError::busy()) }
    }

    /// Closes the queue. Threads receive the operations in it before they learn of its end.
    pub(super) fn close(&self) {
        let mut state = self.0.lock();
        state.is_closed = true;
        let sleeping = mem::take(&mut state.sleeping);
        drop(state);
        sleeping.iter().for_each(Thread::unpark);
    }
}

impl<T: Cancellable> OperationReceiver<T> {
    /// Waits for the next operation; `None` once the queue is closed and no operation can be taken. The last one counts as
    /// ended.
    pub(super) fn receive(&mut self) -> Option<T> {
        let mut state = self.shared.lock();
        stop_polling(&mut state, &mut self.is_polling);
        loop {
            let next = take_next(&mut state, &mut self.current);
            if next.is_some() || state.is_closed {
                self.shared.wake_next(state);
                return next;
            }
            // Nothing can be taken, and no other thread needs to know.
            self.shared.has_next.store(false, Ordering::Release);
            state = self.shared.sleep(state);
        }
    }

    /// Returns the next operation if there is one. The last one counts as ended.
    pub(super) fn try_receive(&mut self) -> Option<T> {
        let mut state = self.shared.lock();
        let next = take_next(&mut state, &mut self.current);
        if next.is_some() {
            stop_polling(&mut state, &mut self.is_polling);
        }
        self.shared.wake_next(state);
        next
    }

    /// Announces that the thread polls from now on, until it takes an operation or waits for one.
    pub(super) fn start_polling(&mut self) {
        if !mem::replace(&mut self.is_polling, true) {
            self.shared.lock().polling += 1;
        }
    }

    /// Returns the next operation if there is one. Takes no lock if there is none; the last one then still counts as in
    /// progress.
    pub(super) fn poll(&mut self) -> Option<T> {
        if self.shared.has_next.load(Ordering::Acquire) { self.try_receive() } else { None }
    }
}

impl<T> Drop for OperationReceiver<T> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        stop_polling(&mut state, &mut self.is_polling);
        state.receivers -= 1;
        if let Some(company) = self.current.take() {
            state.operations.finish(&company);
        }
        if state.receivers > 0 {
            return self.shared.wake_next(state);
        }
        state.is_closed = true;
        let dropped = mem::replace(&mut state.operations, RoundRobin::new(1, 1));
        // Wakes the callers.
        drop(state);
        drop(dropped);
    }
}

/// Takes the next operation after that of `current`, and replaces `current` by its company.
fn take_next<T: Cancellable>(state: &mut QueueState<T>, current: &mut Option<Arc<str>>) -> Option<T> {
    if let Some(company) = current.take() {
        state.operations.finish(&company);
    }
    let (company, operation) = state.operations.take_next()?;
    *current = Some(company);
    Some(operation)
}

fn stop_polling<T>(state: &mut QueueState<T>, is_polling: &mut bool) {
    if mem::take(is_polling) {
        state.polling -= 1;
    }
}

impl<T> SharedQueue<T> {
    /// Locks the state. No code panics while it holds the lock.
    fn lock(&self) -> MutexGuard<'_, QueueState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the thread is woken.
    fn sleep<'s>(&'s self, mut state: MutexGuard<'s, QueueState<T>>) -> MutexGuard<'s, QueueState<T>> {
        let current = thread::current();
        let id = current.id();
        state.sleeping.push(current);
        // A thread can also continue without a reason, or for one of an earlier wait.
        while state.sleeping.iter().any(|thread| thread.id() == id) {
            drop(state);
            thread::park();
            state = self.lock();
        }
        state
    }

    /// Ends a change of the state: wakes a thread that waits, if there is an operation for it. Threads that have been woken
    /// are not woken again by each operation that is sent until they continue; they look for operations before they wait again.
    fn wake_next(&self, mut state: MutexGuard<'_, QueueState<T>>) {
        let has_next = state.operations.has_next();
        self.has_next.store(has_next, Ordering::Release);
        let woken = if has_next && state.polling == 0 { state.sleeping.pop() } else { None };
        drop(state);
        if let Some(thread) = woken {
            thread.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::sqlite::{SpinOptions, SqliteErrorKind};

    #[derive(Debug, PartialEq, Eq)]
    struct Operation(u32);

    impl Cancellable for Operation {
        fn is_caller_waiting(&self) -> bool {
            true
        }
    }

    fn send(queue: &OperationQueue<Operation>, company: &str, numbers: impl IntoIterator<Item = u32>) {
        for number in numbers {
            queue.send(company, Operation(number)).expect("it has room");
        }
    }

    #[test]
    fn companies_alternate_and_a_closed_queue_is_drained() {
        let queue = OperationQueue::new(usize::MAX);
        let mut receiver = queue.receiver();
        assert_eq!(receiver.poll(), None);
        send(&queue, "large", 0..4);
        send(&queue, "small", [10]);
        assert_eq!(receiver.receive(), Some(Operation(0)));
        queue.close();
        let refused = queue.send("small", Operation(11)).expect_err("it is closed");
        assert_eq!(refused.kind(), SqliteErrorKind::Closed);
        let rest: Vec<u32> = std::iter::from_fn(|| receiver.receive()).map(|operation| operation.0).collect();
        assert_eq!(rest, [10, 1, 2, 3]);
        assert_eq!((receiver.poll(), receiver.receive()), (None, None));
    }

    #[test]
    fn a_company_has_a_limit_of_its_own() {
        let queue = OperationQueue::new(1);
        for number in 0..u32::try_from(MAX_WAITING_PER_COMPANY).expect("it fits") {
            queue.send("large", Operation(number)).expect("it has room");
        }
        let refused = queue.send("large", Operation(0)).expect_err("it is full");
        assert_eq!(refused.kind(), SqliteErrorKind::Busy);
        queue.send("small", Operation(0)).expect("it has room");
    }

    #[test]
    fn a_thread_is_kept_for_other_companies() {
        let queue = OperationQueue::new(1);
        let (mut first, mut second) = (queue.receiver(), queue.receiver());
        send(&queue, "large", 0..3);
        assert_eq!(first.receive(), Some(Operation(0)));
        assert_eq!(second.try_receive(), None, "the company has its share");
        send(&queue, "small", [10]);
        assert_eq!(second.poll(), Some(Operation(10)));
        assert_eq!(second.try_receive(), None, "its end makes no room for the other company");
        assert_eq!(first.receive(), Some(Operation(1)));
        queue.close();
        assert_eq!(second.receive(), None, "the thread that has the company's share takes the rest");
        assert_eq!((first.receive(), first.receive()), (Some(Operation(2)), None));
    }

    #[test]
    fn a_dropped_receiver_leaves_its_operations_to_others_and_the_last_one_closes_the_queue() {
        let queue = OperationQueue::new(1);
        let (mut first, mut second) = (queue.receiver(), queue.receiver());
        send(&queue, "large", 0..3);
        assert_eq!(first.receive(), Some(Operation(0)));
        assert_eq!(second.try_receive(), None, "the company has its share");
        drop(first);
        assert_eq!(second.try_receive(), Some(Operation(1)), "its thread has ended");
        drop(second);
        assert!(queue.0.lock().operations.is_empty(), "no thread would receive the last one");
        let refused = queue.send("large", Operation(3)).expect_err("it is closed");
        assert_eq!(refused.kind(), SqliteErrorKind::Closed);
    }

    /// Waits until this many threads wait.
    fn wait_until_asleep(queue: &OperationQueue<Operation>, threads: usize) {
        while queue.0.lock().sleeping.len() < threads {
            thread::yield_now();
        }
    }

    #[test]
    fn the_thread_that_began_to_wait_last_is_woken_first() {
        let queue = OperationQueue::<Operation>::new(usize::MAX);
        let (received, operations) = mpsc::channel();
        let woken = thread::scope(|scope| {
            for asleep in 1..=3 {
                let (mut receiver, received) = (queue.receiver(), received.clone());
                scope.spawn(move || received.send((asleep, receiver.receive())));
                wait_until_asleep(&queue, asleep);
            }
            let woken = [0, 1, 2].map(|number| {
                send(&queue, "company", [number]);
                operations.recv().expect("a thread receives it")
            });
            queue.close();
            woken
        });
        assert_eq!(woken, [(3, Some(Operation(0))), (2, Some(Operation(1))), (1, Some(Operation(2)))]);
    }

    #[test]
    fn no_thread_is_woken_beside_one_that_polls() {
        let queue = OperationQueue::<Operation>::new(usize::MAX);
        thread::scope(|scope| {
            let mut sleeping = queue.receiver();
            let woken = scope.spawn(move || sleeping.receive());
            wait_until_asleep(&queue, 1);
            let mut polling = queue.receiver();
            polling.start_polling();
            assert!(queue.send("company", Operation(0)).expect("it has room"), "a thread polls");
            send(&queue, "company", [1]);
            assert_eq!(queue.0.lock().sleeping.len(), 1, "the other thread stays asleep");
            assert_eq!(polling.poll(), Some(Operation(0)), "the thread that polls is busy from now on");
            assert_eq!(woken.join().expect("no panic"), Some(Operation(1)));
            assert!(!queue.send("company", Operation(2)).expect("it has room"), "no thread polls");
            polling.start_polling();
            drop(polling);
        });
        assert_eq!(queue.0.lock().polling, 0, "a thread that ends polls no more");
    }

    #[test]
    fn a_close_wakes_all_threads_that_wait() {
        let queue = OperationQueue::<Operation>::new(1);
        thread::scope(|scope| {
            let threads = [1, 2, 3].map(|asleep| {
                let mut receiver = queue.receiver();
                let thread = scope.spawn(move || receiver.receive());
                wait_until_asleep(&queue, asleep);
                thread.thread().unpark();
                thread
            });
            queue.close();
            assert_eq!(threads.map(|thread| thread.join().expect("no panic")), [None, None, None]);
        });
    }

    /// A lost wake-up leaves a caller without its answer: none sends its next operation before the answer to the last one.
    #[test]
    fn every_operation_of_callers_that_wait_is_received() {
        struct Call(mpsc::Sender<()>);
        impl Cancellable for Call {
            fn is_caller_waiting(&self) -> bool {
                true
            }
        }

        for (share, polls) in [(1, false), (3, false), (1, true), (3, true)] {
            let queue = OperationQueue::new(share);
            let options = SpinOptions { readers: polls, ..SpinOptions::default() };
            thread::scope(|scope| {
                for _ in 0..4 {
                    let mut receiver = options.receiver(queue.receiver());
                    scope.spawn(move || {
                        while let Some(Call(answer)) = receiver.receive() {
                            answer.send(()).expect("the caller waits");
                        }
                    });
                }
                let callers = [0, 1, 2, 3, 4, 5].map(|caller| {
                    let (queue, company) = (&queue, ["a", "b", "c"][caller / 2]);
                    scope.spawn(move || {
                        let (answer, answers) = mpsc::channel();
                        (0..2_000).all(|_| {
                            queue.send(company, Call(answer.clone())).expect("it has room");
                            answers.recv_timeout(Duration::from_secs(60)).is_ok()
                        })
                    })
                });
                let outcomes = callers.map(|caller| caller.join().expect("no panic"));
                // Wakes threads that would wait indefinitely, so that the test fails instead.
                queue.close();
                assert_eq!(outcomes, [true; 6], "share {share}, polling {polls}");
            });
        }
    }

    #[test]
    fn threads_that_wait_receive_what_is_sent_or_freed() {
        let queue = OperationQueue::<Operation>::new(1);
        let (received, operations) = mpsc::channel();
        thread::scope(|scope| {
            let (go_on, gates): (Vec<_>, Vec<_>) = (0..2).map(|_| mpsc::channel::<()>()).unzip();
            for gate in gates {
                let (mut receiver, received) = (queue.receiver(), received.clone());
                scope.spawn(move || {
                    while let Some(operation) = receiver.receive() {
                        received.send(operation.0).expect("it is counted");
                        gate.recv().expect("the thread may go on");
                    }
                });
            }
            send(&queue, "large", [0, 1]);
            send(&queue, "small", [10]);
            let mut first = [operations.recv(), operations.recv()].map(|number| number.expect("a number"));
            first.sort_unstable();
            assert_eq!(first, [0, 10], "both threads work, for one company each");
            go_on.iter().for_each(|gate| gate.send(()).expect("it waits"));
            assert_eq!(operations.recv(), Ok(1));
            go_on.iter().for_each(|gate| gate.send(()).expect("it is kept"));
            queue.close();
        });
        assert!(operations.try_recv().is_err(), "no operation is received twice");
    }
}
