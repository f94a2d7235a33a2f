//! The thread of an embedding model and its bounded queue.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use futures_channel::oneshot;

use super::call::EmbeddingPriority;
use super::encoder::TextEncoder;
use super::error::EmbeddingModelError;

/// Maximum number of waiting calls of each priority.
pub(super) const MAX_WAITING: usize = 16;

type CallResult = Result<Vec<Vec<f32>>, EmbeddingModelError>;

/// A call with the texts that are left, in reverse order, and the vectors so far.
struct Call {
    texts: Vec<String>,
    vectors: Vec<Vec<f32>>,
    reply: oneshot::Sender<CallResult>,
}

#[derive(Default)]
struct CallQueueState {
    queries: VecDeque<Call>,
    documents: VecDeque<Call>,
    is_closed: bool,
}

impl CallQueueState {
    fn calls(&mut self, priority: EmbeddingPriority) -> &mut VecDeque<Call> {
        match priority {
            EmbeddingPriority::Query => &mut self.queries,
            EmbeddingPriority::Document => &mut self.documents,
        }
    }

    /// Removes the next call: a question before documents. Calls that were cancelled are dropped.
    fn next(&mut self) -> Option<(Call, EmbeddingPriority)> {
        for priority in [EmbeddingPriority::Query, EmbeddingPriority::Document] {
            while let Some(call) = self.calls(priority).pop_front() {
                if !call.reply.is_canceled() {
                    return Some((call, priority));
                }
            }
        }
        None
    }
}

#[derive(Default)]
struct CallQueue {
    state: Mutex<CallQueueState>,
    changed: Condvar,
}

impl CallQueue {
    fn lock(&self) -> MutexGuard<'_, CallQueueState> {
        // No code that holds the lock leaves the state half changed, so a poisoned lock is safe to use.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks until there is a call; `None` once the queue is closed.
    fn next(&self) -> Option<(Call, EmbeddingPriority)> {
        let mut state = self.lock();
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(next) = state.next() {
                return Some(next);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Puts a call with texts that are left back to the front.
    fn requeue(&self, call: Call, priority: EmbeddingPriority) {
        self.lock().calls(priority).push_front(call);
    }
}

/// Handle of the thread. After it is dropped, the thread ends at the next text.
pub(super) struct Worker {
    queue: Arc<CallQueue>,
}

impl Worker {
    /// Starts the thread, which loads the model at the first call.
    pub(super) fn start(
        threads: NonZeroUsize,
        load: impl FnOnce() -> Result<TextEncoder, EmbeddingModelError> + Send + 'static,
    ) -> Result<Self, EmbeddingModelError> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads.get())
            .thread_name(|number| format!("embedding-{number}"))
            .build()
            .map_err(|_| EmbeddingModelError::Stopped)?;
        let queue = Arc::new(CallQueue::default());
        let calls = Arc::clone(&queue);
        let run = move || {
            let Some((call, priority)) = calls.next() else { return };
            calls.requeue(call, priority);
            let loaded = catch_unwind(AssertUnwindSafe(|| pool.install(load)));
            let loaded = loaded.unwrap_or_else(|_| Err(EmbeddingModelError::unusable("loading it failed")));
            while let Some((call, priority)) = calls.next() {
                match &loaded {
                    Ok(encoder) => {
                        if let Some(call) = pool.install(|| advance(encoder, call)) {
                            calls.requeue(call, priority);
                        }
                    }
                    // A send fails if the caller has gone.
                    Err(error) => drop(call.reply.send(Err(error.clone()))),
                }
            }
        };
        let spawned = thread::Builder::new().name("embedding".to_owned()).spawn(run);
        spawned.map_err(|_| EmbeddingModelError::Stopped)?;
        Ok(Self { queue })
    }

    /// Queues a call and waits for its end. Dropping the future cancels the call.
    pub(super) async fn call(&self, mut texts: Vec<String>, priority: EmbeddingPriority) -> CallResult {
        let (reply, answer) = oneshot::channel();
        texts.reverse();
        {
            let mut state = self.queue.lock();
            let calls = state.calls(priority);
            calls.retain(|call| !call.reply.is_canceled());
            if calls.len() >= MAX_WAITING {
                return Err(EmbeddingModelError::Busy);
            }
            calls.push_back(Call { vectors: Vec::with_capacity(texts.len()), texts, reply });
        }
        self.queue.changed.notify_all();
        answer.await.unwrap_or(Err(EmbeddingModelError::Stopped))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.queue.lock().is_closed = true;
        self.queue.changed.notify_all();
    }
}

/// Embeds one text of a call. Returns the call if texts are left, and sends its result otherwise.
fn advance(encoder: &TextEncoder, mut call: Call) -> Option<Call> {
    let result = match call.texts.pop() {
        None => Ok(()),
        Some(text) => match catch_unwind(AssertUnwindSafe(|| encoder.embed(&text))) {
            Ok(embedded) => embedded.map(|vector| call.vectors.push(vector)),
            Err(_) => Err(EmbeddingModelError::Failed("it panicked on a text".into())),
        },
    };
    if result.is_ok() && !call.texts.is_empty() {
        return Some(call);
    }
    // A send fails if the caller has gone.
    drop(call.reply.send(result.map(|()| call.vectors)));
    None
}
