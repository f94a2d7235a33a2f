//! Turns of the writers that repeat a change after a conflict.
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
/// A record has an entry while a writer has its turn, so their number and length are bounded by the requests in flight.
#[derive(Debug, Clone, Default)]
pub struct WriterQueues {
    /// The writers that wait, by record.
    waiting: Arc<Mutex<HashMap<Key, VecDeque<oneshot::Sender<WriterTurn>>>>>,
}

impl WriterQueues {
    /// Waits until no other writer has its turn at the record. Cancel safe.
    pub async fn wait_turn(&self, key: &Key) -> WriterTurn {
        let turn = || WriterTurn { held: Some((self.clone(), key.clone())) };
        let waiting = {
            let mut all = self.lock();
            match all.get_mut(key) {
                None => {
                    all.insert(key.clone(), VecDeque::new());
                    return turn();
                }
                Some(queue) => {
                    let (sender, receiver) = oneshot::channel();
                    queue.push_back(sender);
                    receiver
                }
            }
        };
        // A sender is only dropped after a turn was sent.
        waiting.await.unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, VecDeque<oneshot::Sender<WriterTurn>>>> {
        // No code panics between two changes that belong together, so the map behind a poisoned lock is intact.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes and returns the next writer of a record, and the record's entry if there is none.
    fn next_writer(&self, key: &Key) -> Option<oneshot::Sender<WriterTurn>> {
        let mut all = self.lock();
        let next = all.get_mut(key)?.pop_front();
        if next.is_none() {
            all.remove(key);
        }
        next
    }
}

/// Turn of a writer at a record; the next writer gets it when it is dropped.
#[derive(Debug, Default)]
#[must_use = "the turn ends when this value is dropped"]
pub struct WriterTurn {
    held: Option<(WriterQueues, Key)>,
}

impl Drop for WriterTurn {
    fn drop(&mut self) {
        let Some((queues, key)) = self.held.take() else { return };
        while let Some(writer) = queues.next_writer(&key) {
            let turn = WriterTurn { held: Some((queues.clone(), key.clone())) };
            match writer.send(turn) {
                Ok(()) => return,
                // The writer was cancelled while it waited.
                Err(mut unsent) => unsent.held = None,
            }
        }
    }
}

#[cfg(test)]
mod tests;
