//! Brief polling of a queue before a thread or a task sleeps, because waking it costs as much as many reads.
//!
//! Everything here works the same without polling, only slower; [`SpinOptions`] selects it.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::thread;
use std::time::{Duration, Instant};

use futures_channel::oneshot;

use super::turn_queue::TurnReceiver;
use crate::company_turns::Waiting;

/// Number of times a reader thread polls the empty queue, yielding in between, before it blocks: some tens of
/// microseconds. Reads often follow one another, such as of a role and then of its documents.
const READER_ITERATIONS: usize = 400;

/// Time for which a reader thread's last wait for a read must not have lasted longer, so that it polls in the next one.
/// Otherwise reads are rare, and polling takes processor time from the turns that they belong to.
const READER_SPIN_TIME: Duration = Duration::from_micros(50);

/// Number of times a task polls for its result before it waits for the waker.
const TASK_ITERATIONS: usize = 100;

/// Number of times the writer thread polls the empty queue for more commits, yielding in between, if the previous
/// group was larger: some microseconds, compared with milliseconds for a disk flush.
const WRITER_ITERATIONS: usize = 100;

/// Switches of the polling. A program has no setting for them; benchmarks choose others than the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpinOptions {
    /// Reader threads poll the queue before they block; true.
    pub readers: bool,
    /// Tasks poll for the result of a read before they sleep; true.
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
    pub(super) fn receiver<T>(self, queue: TurnReceiver<T>) -> SpinReceiver<T> {
        SpinReceiver { queue, polls: self.readers, last_wait: Duration::MAX }
    }

    /// Waits for the result of a read. With polling, other ready tasks run in between.
    pub(super) async fn wait<T>(self, mut answered: oneshot::Receiver<T>) -> Result<T, oneshot::Canceled> {
        let mut remaining = if self.tasks { TASK_ITERATIONS } else { 0 };
        poll_fn(|cx| {
            let polled = Pin::new(&mut answered).poll(cx);
            if polled.is_pending() && remaining > 0 {
                remaining -= 1;
                cx.waker().wake_by_ref();
            }
            polled
        })
        .await
    }

    /// Returns how often the writer polls for more commits while a group is smaller than the previous one.
    pub(super) fn writer_iterations(self) -> usize {
        if self.writer { WRITER_ITERATIONS } else { 0 }
    }
}

/// Receiving end of a reader thread's queue.
pub(super) struct SpinReceiver<T> {
    queue: TurnReceiver<T>,
    /// True if the thread may poll.
    polls: bool,
    /// Duration of the last wait.
    last_wait: Duration,
}

impl<T: Waiting> SpinReceiver<T> {
    /// Returns the next item; `None` once the queue is closed and no item can be taken.
    pub(super) fn receive(&mut self) -> Option<T> {
        if let Some(item) = self.queue.try_receive() {
            self.last_wait = Duration::ZERO;
            return Some(item);
        }
        let wait_started = Instant::now();
        let found = if self.polls && self.last_wait <= READER_SPIN_TIME { self.spin() } else { None };
        let found = found.or_else(|| self.queue.receive());
        self.last_wait = wait_started.elapsed();
        found
    }

    fn spin(&mut self) -> Option<T> {
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
    use super::*;
    use crate::sqlite::turn_queue::TurnQueue;

    #[derive(Debug, PartialEq, Eq)]
    struct Item(u32);

    impl Waiting for Item {
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
            let queue = TurnQueue::new(usize::MAX);
            let mut receiver = options.receiver(queue.receiver());
            for number in 0..3 {
                queue.send("company", Item(number)).expect("it has room");
                assert_eq!(receiver.receive(), Some(Item(number)), "{options:?}");
            }
            queue.close();
            assert_eq!(receiver.receive(), None, "{options:?}");
        }
    }

    #[tokio::test]
    async fn a_late_result_and_a_cancelled_one_arrive() {
        for options in OPTIONS {
            let (sender, answered) = oneshot::channel();
            let waiting = tokio::spawn(options.wait(answered));
            for _ in 0..2 * TASK_ITERATIONS {
                tokio::task::yield_now().await;
            }
            sender.send(1).expect("it waits");
            assert_eq!(waiting.await.expect("no panic"), Ok(1), "{options:?}");
            let (sender, answered) = oneshot::channel::<()>();
            drop(sender);
            assert_eq!(options.wait(answered).await, Err(oneshot::Canceled));
        }
    }
}
