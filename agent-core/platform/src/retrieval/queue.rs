//! Queue of the documents that a process indexes or embeds in the background: round-robin over the companies.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_core::ids::CompanyId;
use futures_channel::mpsc;
use futures_util::StreamExt as _;
use futures_util::lock::Mutex as AsyncMutex;

/// Maximum number of waiting documents, of one company and of all.
const MAX_OF_COMPANY: usize = 10_000;
const MAX_DOCUMENTS: usize = 100_000;

/// Queue of documents, each at most once. Documents beyond a limit are dropped: a search announces them again.
pub(super) struct DocumentQueue {
    waiting: Mutex<Waiting>,
    wake: Mutex<mpsc::Sender<()>>,
    woken: AsyncMutex<mpsc::Receiver<()>>,
}

#[derive(Default)]
struct Waiting {
    /// The companies with waiting documents; the first one is next.
    companies: VecDeque<CompanyId>,
    by_company: HashMap<CompanyId, CompanyQueue>,
    total: usize,
}

#[derive(Default)]
struct CompanyQueue {
    order: VecDeque<String>,
    ids: HashSet<String>,
}

impl Default for DocumentQueue {
    fn default() -> Self {
        // One waiting wake-up is as good as many.
        let (wake, woken) = mpsc::channel(0);
        Self { waiting: Mutex::default(), wake: Mutex::new(wake), woken: AsyncMutex::new(woken) }
    }
}

impl DocumentQueue {
    /// Adds a document at the end of its company's queue, unless it waits already.
    pub(super) fn push(&self, company_id: &CompanyId, id: &str) {
        let mut waiting = self.lock();
        if waiting.total >= MAX_DOCUMENTS {
            return;
        }
        let Waiting { companies, by_company, total } = &mut *waiting;
        let queue = by_company.entry(company_id.clone()).or_insert_with(|| {
            companies.push_back(company_id.clone());
            CompanyQueue::default()
        });
        if queue.order.len() < MAX_OF_COMPANY && queue.ids.insert(id.to_owned()) {
            queue.order.push_back(id.to_owned());
            *total += 1;
        }
        drop(waiting);
        // A full channel has a wake-up that is still to be seen.
        let _ = self.wake.lock().unwrap_or_else(PoisonError::into_inner).try_send(());
    }

    /// Waits for a document and takes it: the first one of the next company.
    pub(super) async fn next(&self) -> (CompanyId, String) {
        let mut woken = self.woken.lock().await;
        loop {
            if let Some(next) = self.take() {
                return next;
            }
            // The queue has the other end of the channel, so it is open.
            woken.next().await;
        }
    }

    fn take(&self) -> Option<(CompanyId, String)> {
        let mut waiting = self.lock();
        let company_id = waiting.companies.pop_front()?;
        let queue = waiting.by_company.get_mut(&company_id)?;
        let id = queue.order.pop_front()?;
        queue.ids.remove(&id);
        if queue.order.is_empty() {
            waiting.by_company.remove(&company_id);
        } else {
            waiting.companies.push_back(company_id.clone());
        }
        waiting.total -= 1;
        Some((company_id, id))
    }

    /// Locks the queue. No code panics while holding the lock, so the data behind a poisoned one is intact.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn companies_take_turns_and_a_document_waits_once() {
        let queue = DocumentQueue::default();
        for (company, id) in [("a", "1"), ("a", "2"), ("a", "1"), ("a", "3"), ("b", "1")] {
            queue.push(&company.into(), id);
        }
        let mut taken = Vec::new();
        for _ in 0..4 {
            let (company, id) = queue.next().await;
            taken.push(format!("{company}{id}"));
        }
        assert_eq!(taken, ["a1", "b1", "a2", "a3"]);
        // A document that was taken may wait again.
        queue.push(&"a".into(), "1");
        assert_eq!(queue.next().await, ("a".into(), "1".to_owned()));
    }

    #[tokio::test]
    async fn a_company_fills_its_share_alone() {
        let queue = DocumentQueue::default();
        for n in 0..MAX_OF_COMPANY + 10 {
            queue.push(&"a".into(), &n.to_string());
        }
        assert_eq!(queue.lock().total, MAX_OF_COMPANY);
        queue.push(&"b".into(), "1");
        queue.next().await;
        assert_eq!(queue.next().await.0.as_str(), "b");
    }
}
