//! Queues of the writers that repeat a change of a record after a conflict.
//!
//! The first attempt of a writer does not wait. Of `n` writers that read the same version of a record, one succeeds. If
//! all others began again at once, they would need `n²/2` attempts in total, and each attempt would be slower. The
//! writers of a process therefore repeat their attempts one after the other, in the order in which they met their conflicts.
//! Writers of other processes still cause conflicts.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_channel::oneshot;

use super::key::Key;

/// Queues of the writers that repeat a change of the same record, first in, first out.
///
/// A record has a queue while a writer holds its permit, so their number and length are bounded by the requests in flight.
#[derive(Debug, Clone, Default)]
pub struct WriterQueues {
    /// The writers that wait, by record.
    waiting: Arc<Mutex<HashMap<Key, VecDeque<oneshot::Sender<WriterPermit>>>>>,
}

impl WriterQueues {
    /// Waits until no other writer holds the permit of the record. Cancel safe.
    pub async fn acquire(&self, key: &Key) -> WriterPermit {
        let new_permit = || WriterPermit { slot: Some((self.clone(), key.clone())) };
        let waiting = {
            let mut all = self.lock();
            match all.get_mut(key) {
                None => {
                    all.insert(key.clone(), VecDeque::new());
                    return new_permit();
                }
                Some(queue) => {
                    let (sender, receiver) = oneshot::channel();
                    queue.push_back(sender);
                    receiver
                }
            }
        };
        // A sender is only dropped after a permit was sent.
        waiting.await.unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, VecDeque<oneshot::Sender<WriterPermit>>>> {
        // No code panics between two changes that belong together, so the map behind a poisoned lock is intact.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes and returns the next writer of a record, and the record's entry if there is none.
    fn next_writer(&self, key: &Key) -> Option<oneshot::Sender<WriterPermit>> {
        let mut all = self.lock();
        let next = all.get_mut(key)?.pop_front();
        if next.is_none() {
            all.remove(key);
        }
        next
    }
}

/// Permit of a writer to repeat its change of a record; the next writer gets one when it is dropped.
#[derive(Debug, Default)]
#[must_use = "the next writer continues when this value is dropped"]
pub struct WriterPermit {
    slot: Option<(WriterQueues, Key)>,
}

impl Drop for WriterPermit {
    fn drop(&mut self) {
        let Some((queues, key)) = self.slot.take() else { return };
        while let Some(writer) = queues.next_writer(&key) {
            let permit = WriterPermit { slot: Some((queues.clone(), key.clone())) };
            match writer.send(permit) {
                Ok(()) => return,
                // The writer was cancelled while it waited.
                Err(mut unsent) => unsent.slot = None,
            }
        }
    }
}

#[cfg(test)]
mod tests;
