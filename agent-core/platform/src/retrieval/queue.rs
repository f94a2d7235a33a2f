//! Queue of the documents that a process indexes or embeds in the background: round-robin over the companies.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_core::ids::CompanyId;
use futures_channel::mpsc;
use futures_util::StreamExt as _;
use futures_util::lock::Mutex as AsyncMutex;

/// Maximum number of waiting documents, of one company and of all.
pub(super) const MAX_DOCUMENTS_PER_COMPANY: usize = 10_000;
pub(super) const MAX_DOCUMENTS: usize = 100_000;

/// Wakes the task that waits for work. A wake-up while no task waits is kept for the next one.
pub(super) struct WakeSignal {
    wake: Mutex<mpsc::Sender<()>>,
    woken: AsyncMutex<mpsc::Receiver<()>>,
}

/// Queue of documents, each at most once. Documents beyond a limit are dropped: a search announces them again.
#[derive(Default)]
pub(super) struct DocumentQueue {
    waiting: Mutex<Waiting>,
    signal: WakeSignal,
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

impl Default for WakeSignal {
    fn default() -> Self {
        // One pending wake-up is enough.
        let (wake, woken) = mpsc::channel(0);
        Self { wake: Mutex::new(wake), woken: AsyncMutex::new(woken) }
    }
}

impl WakeSignal {
    /// Wakes the waiting task.
    pub(super) fn notify(&self) {
        // A full channel already has a pending wake-up.
        let _ = self.wake.lock().unwrap_or_else(PoisonError::into_inner).try_send(());
    }

    /// Waits for a wake-up.
    pub(super) async fn notified(&self) {
        let mut woken = self.woken.lock().await;
        // The signal has the other end of the channel, so it is open.
        woken.next().await;
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
        if queue.order.len() < MAX_DOCUMENTS_PER_COMPANY && queue.ids.insert(id.to_owned()) {
            queue.order.push_back(id.to_owned());
            *total += 1;
        }
        drop(waiting);
        self.signal.notify();
    }

    /// Waits for a document and takes it: the first one of the next company.
    pub(super) async fn next(&self) -> (CompanyId, String) {
        loop {
            match self.take_of(|_| true) {
                Some(next) => return next,
                None => self.signal.notified().await,
            }
        }
    }

    /// Takes the first document of the next company that is allowed; `None` if no such company has one.
    pub(super) fn take_of(
        &self,
        mut is_allowed: impl FnMut(&CompanyId) -> bool,
    ) -> Option<(CompanyId, String)> {
        let mut waiting = self.lock();
        let position = waiting.companies.iter().position(&mut is_allowed)?;
        let company_id = waiting.companies.remove(position)?;
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
    async fn a_company_that_is_not_allowed_is_passed_over() {
        let queue = DocumentQueue::default();
        for (company, id) in [("a", "1"), ("b", "1"), ("b", "2"), ("c", "1")] {
            queue.push(&company.into(), id);
        }
        let is_allowed = |company_id: &CompanyId| company_id.as_str() != "a";
        let taken: Vec<String> = std::iter::from_fn(|| queue.take_of(is_allowed))
            .map(|(company, id)| format!("{company}{id}"))
            .collect();
        assert_eq!(taken, ["b1", "c1", "b2"]);
        assert_eq!(queue.next().await, ("a".into(), "1".to_owned()));
    }

    #[tokio::test]
    async fn a_company_fills_only_its_share() {
        let queue = DocumentQueue::default();
        for n in 0..MAX_DOCUMENTS_PER_COMPANY + 10 {
            queue.push(&"a".into(), &n.to_string());
        }
        assert_eq!(queue.lock().total, MAX_DOCUMENTS_PER_COMPANY);
        queue.push(&"b".into(), "1");
        queue.next().await;
        assert_eq!(queue.next().await.0.as_str(), "b");
    }
}
