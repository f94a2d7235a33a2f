//! Brief polling of a queue before a thread or a task sleeps, because waking it costs as much as many reads.
//!
//! Everything here works the same without polling, only slower; [`SpinOptions`] selects it.

use std::future::poll_fn;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use futures_channel::oneshot;

use super::operation_queue::OperationReceiver;
use crate::round_robin::Cancellable;

/// Number of times a reader thread polls the empty queue, yielding in between, before it blocks: some tens of
/// microseconds. Reads often follow one another, such as of a role and then of its documents.
const READER_ITERATIONS: usize = 400;

/// Maximum duration of a reader thread's wait before its last one, for the thread to poll in its next wait. After a longer one
/// the next read comes late, and polling takes processor time from the turns that reads belong to. It is not that of the last
/// wait, because the reads of a pair follow one another at once and the next pair comes later. The time in which a sleeping
/// thread wakes is part of it.
const READER_SPIN_TIME: Duration = Duration::from_micros(100);

/// Maximum time for which a task polls for its result before it waits for the waker. Most reads take less.
const TASK_SPIN_TIME: Duration = Duration::from_micros(100);

/// Number of times the writer thread polls the empty queue for more commits, yielding in between, if the previous
/// group was larger: some microseconds, compared with milliseconds for a disk flush.
const WRITER_ITERATIONS: usize = 100;

/// Switches of the polling. A program has no setting for them; benchmarks choose others than the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpinOptions {
    /// Reader threads poll the queue before they block; true.
    pub readers: bool,
    /// A task polls for the result of a read before it sleeps, if a thread polls for the read and no other task waits; true.
    pub tasks: bool,
    /// The writer thread polls for more commits before it begins a transaction; true.
    pub writer: bool,
}

impl Default for SpinOptions {
    fn default() -> Self {
        Self { readers: true, tasks: true, writer: true }
    }
}

impl SpinOptions {
    /// Creates the receiving end of a reader thread's queue.
    pub(super) fn receiver<T>(self, queue: OperationReceiver<T>) -> SpinReceiver<T> {
        SpinReceiver { queue, polls: self.readers, last_waits: [Duration::MAX; 2] }
    }

    /// Creates the waits of tasks for the results of reads.
    pub(super) fn waits(self) -> SpinWaits {
        SpinWaits { polls: self.tasks, waiting: AtomicUsize::new(0) }
    }

    /// Returns the number of times that the writer polls for more commits while a group is smaller than the previous one.
    pub(super) fn writer_iterations(self) -> usize {
        if self.writer { WRITER_ITERATIONS } else { 0 }
    }
}

/// Waits of tasks for the results of reads. A task polls if a thread has polled for its read: one that must be woken first may
/// wake on the processor that the task would keep. It polls while no other waits: with several, the threads have work for the
/// time that a wake-up takes.
pub(super) struct SpinWaits {
    /// True if tasks may poll.
    polls: bool,
    /// Number of tasks that wait.
    waiting: AtomicUsize,
}

impl SpinWaits {
    /// Waits for the result of a read. The task polls for it only if `is_polled` is true: a reader thread polls for the read.
    /// Other ready tasks run before the task polls, and none on this thread meanwhile: a task that woke itself for each poll
    /// would each time wake another thread of the runtime, to take the task over.
    pub(super) async fn wait<T>(
        &self,
        mut answered: oneshot::Receiver<T>,
        is_polled: bool,
    ) -> Result<T, oneshot::Canceled> {
        let _count = WaitCount::new(&self.waiting);
        if is_polled && self.should_poll() {
            // Without it, a task that reads again and again would keep its thread from the others.
            yield_to_tasks().await;
            let started = Instant::now();
            while self.should_poll() && started.elapsed() < TASK_SPIN_TIME {
                if let Some(answer) = answered.try_recv()? {
                    return Ok(answer);
                }
                thread::yield_now();
            }
        }
        answered.await
    }

    /// Returns true if the task that waits may poll.
    fn should_poll(&self) -> bool {
        self.polls && self.waiting.load(Ordering::Relaxed) == 1
    }
}

/// Counts a task that waits until it is dropped.
struct WaitCount<'a>(&'a AtomicUsize);

impl<'a> WaitCount<'a> {
    fn new(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }
}

impl Drop for WaitCount<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Lets other ready tasks run.
async fn yield_to_tasks() {
    let mut has_yielded = false;
    poll_fn(|cx| {
        if mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Receiving end of a reader thread's queue.
pub(super) struct SpinReceiver<T> {
    queue: OperationReceiver<T>,
    /// True if the thread may poll.
    polls: bool,
    /// Durations of the last two waits, the last one first.
    last_waits: [Duration; 2],
}

impl<T: Cancellable> SpinReceiver<T> {
    /// Returns the next item; `None` once the queue is closed and no item can be taken.
    pub(super) fn receive(&mut self) -> Option<T> {
        if let Some(item) = self.queue.try_receive() {
            self.record_wait(Duration::ZERO);
            return Some(item);
        }
        let wait_started = Instant::now();
        let found = if self.should_poll() { self.spin() } else { None };
        let found = found.or_else(|| self.queue.receive());
        self.record_wait(wait_started.elapsed());
        found
    }

    fn record_wait(&mut self, duration: Duration) {
        self.last_waits = [duration, self.last_waits[0]];
    }

    /// Returns true if the thread polls in its next wait.
    fn should_poll(&self) -> bool {
        self.polls && self.last_waits[1] <= READER_SPIN_TIME
    }

    fn spin(&mut self) -> Option<T> {
        self.queue.start_polling();
        (0..READER_ITERATIONS).find_map(|_| {
            let item = self.queue.poll();
            if item.is_none() {
                thread::yield_now();
            }
            item
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::pin::pin;
    use std::sync::Arc;

    use futures_util::poll;

    use super::*;
    use crate::sqlite::operation_queue::OperationQueue;

    #[derive(Debug, PartialEq, Eq)]
    struct Item(u32);

    impl Cancellable for Item {
        fn is_caller_waiting(&self) -> bool {
            true
        }
    }

    const OPTIONS: [SpinOptions; 2] = [
        SpinOptions { readers: true, tasks: true, writer: true },
        SpinOptions { readers: false, tasks: false, writer: false },
    ];

    #[test]
    fn a_queue_is_emptied_before_its_end_is_reported() {
        for options in OPTIONS {
            let queue = OperationQueue::new(usize::MAX);
            let mut receiver = options.receiver(queue.receiver());
            for number in 0..3 {
                queue.send("company", Item(number)).expect("it has room");
                assert_eq!(receiver.receive(), Some(Item(number)), "{options:?}");
            }
            queue.close();
            assert_eq!(receiver.receive(), None, "{options:?}");
        }
    }

    #[test]
    fn a_thread_polls_if_the_wait_before_the_last_one_was_short() {
        let (short, long) = (READER_SPIN_TIME, READER_SPIN_TIME + Duration::from_micros(1));
        let queue = OperationQueue::<Item>::new(usize::MAX);
        let mut receiver = SpinOptions::default().receiver(queue.receiver());
        let mut polls = |wait: Duration| {
            receiver.record_wait(wait);
            receiver.should_poll()
        };
        assert!(!polls(short), "the wait before is not known");
        assert!([short, short].iter().all(|wait| polls(*wait)));
        let in_pairs = [long, short, long, short].map(&mut polls);
        assert_eq!(in_pairs, [true, false, true, false], "within pairs, and not between them");
        assert_eq!([long, long, long].map(polls), [true, false, false], "reads are rare");
        let mut receiver = OPTIONS[1].receiver(queue.receiver());
        [short, short].iter().for_each(|wait| receiver.record_wait(*wait));
        assert!(!receiver.should_poll(), "it is switched off");
    }

    #[tokio::test]
    async fn a_task_lets_others_run_before_it_polls() {
        let waits = SpinOptions::default().waits();
        let (sender, answered) = oneshot::channel();
        sender.send(1).expect("it is not dropped");
        let order = RefCell::new(Vec::new());
        let read = async {
            assert_eq!(waits.wait(answered, true).await, Ok(1));
            order.borrow_mut().push("read");
        };
        futures_util::join!(read, async { order.borrow_mut().push("other") });
        assert_eq!(*order.borrow(), ["other", "read"]);
    }

    #[tokio::test]
    async fn a_task_polls_while_no_other_waits() {
        let waits = SpinOptions::default().waits();
        let (sender, answered) = oneshot::channel::<()>();
        {
            let mut first = pin!(waits.wait(answered, true));
            assert!(poll!(&mut first).is_pending());
            assert!(waits.should_poll());
            let (_sender, answered) = oneshot::channel::<()>();
            let mut second = pin!(waits.wait(answered, true));
            assert!(poll!(&mut second).is_pending());
            assert!(!waits.should_poll(), "both sleep");
        }
        assert!(sender.is_canceled());
        assert_eq!(waits.waiting.load(Ordering::Relaxed), 0, "cancelled tasks wait no more");
    }

    #[tokio::test]
    async fn a_late_result_and_a_cancelled_one_arrive() {
        for options in OPTIONS {
            let waits = Arc::new(options.waits());
            let (sender, answered) = oneshot::channel();
            let task_waits = Arc::clone(&waits);
            let waiting = tokio::spawn(async move { task_waits.wait(answered, true).await });
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            sender.send(1).expect("it waits");
            assert_eq!(waiting.await.expect("no panic"), Ok(1), "{options:?}");
            let (sender, answered) = oneshot::channel::<()>();
            drop(sender);
            assert_eq!(waits.wait(answered, true).await, Err(oneshot::Canceled));
        }
    }
}
